"""Models of fake tensors: built by their adapters as for a run, without reading weights."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import diffusers
import torch
import transformers
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from rlfactory.config.memory.model_parts import published_as
from rlfactory.model import image_base
from rlfactory.model.lm import loading
from rlfactory.model.pipelines.embedding_cache import LENGTHS
from rlfactory.model.pipelines.local_models import folder_of, index_of, read_json
from rlfactory.model.pipelines.modular import is_modular, with_components
from rlfactory.model.pipelines.pipeline_loading import load_pipeline
from rlfactory.model.prompt_encoding import PromptEncoding
from rlfactory.reward.base import Reward, Samples
from rlfactory.rollout import Condition
from rlfactory.tools.fake_tensors import with_fake_tensors
from rlfactory.train import build as engine
from rlfactory.utils.errors import UserError

Config = Mapping[str, Any]
Fake = Callable[[nn.Module], nn.Module]


@contextmanager
def empty_models(mode: FakeTensorMode) -> Iterator[None]:
    """Models that are built in the `with` are of fake tensors, and rewards have no networks."""

    def fake(module: nn.Module) -> nn.Module:
        with _disable_current_modes():
            return with_fake_tensors(module, mode).requires_grad_(False).eval()

    def opened(*arguments: Any, trained_parts: Sequence[str], **_: Any) -> Any:
        kind, path, _device, precision, memory, _cache, encode = arguments
        pipe = _pipeline(kind, path, fake, precision.weights, trained_parts)
        memory.prepare_vae(pipe.vae)
        if folder_of(path) is None:
            encode = _in_published_shapes(path, encode, mode, precision.weights)
        return pipe, OneEncoder(encode)

    def loaded(location: str, dtype: torch.dtype, *given: Any) -> nn.Module:
        config = transformers.AutoConfig.from_pretrained(location)
        with _disable_current_modes(), torch.device("meta"):
            network = getattr(transformers, given[-1]).from_config(config, dtype=dtype)
        return fake(network)

    def rewards(config: Config, _: Any) -> tuple[Reward, dict[str, Reward]]:
        return StandInReward(), {name: StandInReward() for name in config["eval_rewards"]["of"]}

    with (
        mock.patch.object(image_base, "open_pipeline", opened),
        mock.patch.object(loading, "_load_network", loaded),
        mock.patch.object(engine, "build_rewards", rewards),
    ):
        yield


class StandInReward(Reward):
    """A reward in the place of those that are configured, whose networks aren't counted."""

    media = "images"
    main = "reward"

    def score(self, samples: Samples) -> dict[str, Tensor]:
        """Numbers of any size."""
        return {self.main: torch.rand(len(samples.prompts))}

    def score_pixels(
        self, pixels: Tensor, prompts: Sequence[str], metadata: Sequence[Mapping[str, Any]]
    ) -> Tensor:
        """A number whose gradient reaches all pixels."""
        return pixels.mean((1, 2, 3))


class OneEncoder:
    """Text encoders that encode one prompt, and give its rows to all others; none in advance."""

    def __init__(self, encode: Callable[[list[str]], Mapping[str, Tensor]]) -> None:
        self._encode, self._rows = encode, dict[str, Tensor]()

    def __call__(self, prompts: Sequence[str]) -> Condition:
        if not self._rows:
            with torch.no_grad():
                self._rows = {n: rows.clone() for n, rows in self._encode([prompts[0]]).items()}
        count = len(prompts)
        return Condition({n: r.expand(count, *r.shape[1:]).clone() for n, r in self._rows.items()})

    def has_new_prompts(self) -> bool:
        return False

    def prepare(self, *_: Any) -> None:
        pass


def _pipeline(kind: Any, path: str, fake: Fake, dtype: torch.dtype, trained: Sequence[str]) -> Any:
    """A pipeline of fake tensors, of a folder or, then without text encoders, in published shapes.

    Raises:
        UserError: it is neither here nor published.
    """
    published, found = published_as(path), dict[str, tuple[Any, ...]]()
    if folder := folder_of(path):
        for name, kind_of_part in index_of(folder).items():
            if config := read_json(folder / name / "config.json"):
                found[name] = (*kind_of_part[:2], config)
    elif not published:
        message = "is neither on this machine nor known: download it first"
        raise UserError(f"model.path={path} {message}")
    else:
        for name, part in published["parts"].items():
            if not name.startswith("text_encoder"):
                found[name] = (*part["class"].split("."), part["config"])
    networks: dict[str, Any] = {}
    libraries = {"diffusers": diffusers, "transformers": transformers}
    for name, (library, class_name, config) in found.items():
        if (network := _empty(getattr(libraries[library], class_name), config)) is not None:
            networks[name] = fake(network.to(torch.float32 if name in ("vae", *trained) else dtype))
    if folder:
        return load_pipeline(kind, path, dtype, **networks)
    scheduler = published["scheduler"]
    kind_of_scheduler = getattr(diffusers, scheduler["class"].split(".")[1])
    networks["scheduler"] = kind_of_scheduler(**scheduler["config"])
    if is_modular(kind):
        return with_components(kind, networks)
    options = inspect.signature(kind.__init__).parameters
    left_out = {n: None for n, p in options.items() if n != "self" and p.default is p.empty}
    more = {"requires_safety_checker": False} if "requires_safety_checker" in options else {}
    if "image_encoder" in networks:
        more["image_processor"] = transformers.CLIPImageProcessor()
    return kind(**{**left_out, **networks, **more, **published.get("options", {})})


def _empty(kind: Any, config: Config) -> Any:
    """A network on `meta`; None of a component that is none."""
    if not issubclass(kind, nn.Module):
        return None
    with _disable_current_modes(), torch.device("meta"):
        if issubclass(kind, transformers.PreTrainedModel):
            return kind(kind.config_class(**config))
        return kind.from_config(config)


def _in_published_shapes(path: str, encode: Any, mode: FakeTensorMode, dtype: torch.dtype) -> Any:
    """An adapter's `_encode` whose text is in the shapes of a published model."""
    shapes, model = published_as(path)["text"], encode.__self__
    tokens = model.clip_tokens + model.text_tokens

    def made(name: str, rows: int) -> Tensor:
        if name == LENGTHS:
            return torch.full((rows,), tokens)
        size = [tokens if length == "tokens" else length for length in shapes[name]]
        with mode:
            return torch.ones(rows, *size, dtype=torch.bool if name == "mask" else dtype)

    def shaped(_: Any, prompts: Sequence[str]) -> dict[str, Tensor]:
        return {name: made(name, len(prompts)) for name in shapes}

    # of the class that encodes text alone; one derived from it may add a picture
    lineage = [kind for kind in type(model).__mro__ if "_encode" in vars(kind)]
    text = PromptEncoding if model.encoded else lineage[lineage.index(PromptEncoding) - 1]
    own = shaped if text is lineage[0] else encode.__func__

    def encoded(prompts: list[str]) -> Any:
        with mock.patch.object(text, "_encode", shaped):
            return own(model, prompts)

    return encoded
