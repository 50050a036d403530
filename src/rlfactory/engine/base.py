"""The contract of a rollout engine: it draws responses with a copy of the policy's weights.

`transformers.py` is the smallest example. Keyword-only parameters of `__init__` are the keys of the
YAML file; it gets no run-time objects. Evaluations are drawn by our own loop whatever the engine.

A run calls the methods in this order:

1. `__init__` once in each process, and `open`, before the first rollout.
2. In each rollout `load`, then `generate` with all prompts of this process.
3. `close` at the end.

The trainer computes likelihoods and values of the drawn tokens itself, in a pass over whole texts,
so an engine may draw from a slightly different distribution (`engine/log_prob_mismatch_mean`).

A static method `validate(options, run)` may check options of its own, and with them those of the
run (`utils.types.Faults`). It is compiled from its source while planning, so it uses builtins and
what it imports itself, without torch.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.utils.errors import UserError
from rlfactory.utils.types import Faults

if TYPE_CHECKING:
    from rlfactory.model.causal_lm import CausalLM
    from rlfactory.model.lm.generate import StopTexts


class EngineError(UserError, RuntimeError):
    """An engine that can't be started, stopped answering or returned what was not asked for."""


@dataclass(frozen=True)
class SamplingSettings:
    """How responses are drawn: from the softmax at a temperature, not truncated.

    Attributes:
        length: The most tokens of a response.
        temperature: Divides the logits.
        stop: Ids of the tokens that end a response; its last token is one, or it is cut.
        stop_texts: Texts that end a response too, with the token that completes one. An engine may
            go on: the caller cuts.
        unused: Ids of no token, never to be drawn.
    """

    length: int
    temperature: float
    stop: tuple[int, ...]
    stop_texts: "StopTexts | None" = None
    unused: tuple[int, ...] = ()

    def ends(self, ids: Sequence[int]) -> bool:
        """Whether a response has ended with its last token."""
        texts = self.stop_texts
        return ids[-1] in self.stop or (texts is not None and texts.is_completed(ids))


@dataclass(frozen=True)
class Completion:
    """One response.

    Attributes:
        ids: Token ids, the stop token included.
        log_probs: Log-probability of each under the distribution that the engine drew it from.
    """

    ids: Sequence[int]
    log_probs: Sequence[float]


class Engine(ABC):
    """Base class of all engines. Class attributes must be literals: checks read them.

    Attributes:
        draws_by: `engine`, or `model` where the model's own loop draws.
        package: The Python package that the engine imports; None: one that is always installed.
    """

    draws_by: ClassVar[str] = "engine"
    package: ClassVar[str | None] = None

    @staticmethod
    def validate(options: Mapping[str, Any], run: Mapping[str, Any]) -> Faults:
        """The engine draws from the distribution that the trainer computes likelihoods of."""
        dynamics = run["dynamics"]
        if options["draws_by"] == "engine" and run["hardware"].get("tile") is not None:
            message = "is set, and an engine divides passes in its own way; engine=own does not"
            yield "hardware.tile", message, "engine=own"
        if options["draws_by"] != "engine" or "top_k" not in dynamics:
            return
        for key, whole in (("top_k", 0), ("top_p", 1.0), ("stop_after", 0)):
            if dynamics[key] != whole:
                message = (
                    f"is {dynamics[key]}, and an engine draws from the whole distribution, up to"
                    " the first end; with it, engine=own draws"
                )
                yield f"dynamics.{key}", message, f"dynamics.{key}={whole}"
        if dynamics["log_prob_of"] == "untempered" and dynamics["temperature"] != 1:
            message = (
                "is untempered, and an engine's log-probabilities are those at the temperature;"
                " with it, engine=own draws"
            )
            yield "dynamics.log_prob_of", message, "dynamics.log_prob_of=full"

    @abstractmethod
    def open(self, model: "CausalLM") -> None:
        """Start the engine for a model, or connect to it; called once.

        Raises:
            EngineError: It can't be started, or serves another model.
        """

    @abstractmethod
    def load(self, model: "CausalLM") -> None:
        """Take over the weights that are in use; called before each rollout.

        Raises:
            EngineError: The engine did not take them.
        """

    @abstractmethod
    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        """Draw one response to each prompt.

        Args:
            prompts: Token ids, without padding.
            seeds: A number below 2^31 for each prompt; equal prompts have different ones.
            settings: How responses are drawn.

        Returns:
            The responses in the order of the prompts. The caller checks them.

        Raises:
            EngineError: The engine stopped answering.
        """

    def close(self) -> None:  # noqa: B027
        """Free what the engine holds; it may be called twice."""


@contextmanager
def plain_weights(model: "CausalLM") -> Iterator[dict[str, Tensor]]:
    """The network's tensors by the names of a network without adapters, which are merged within
    the `with`. They are not copied.
    """
    merged = nullcontext() if model.lora is None else model.lora.merged()
    with merged, torch.no_grad():
        yield {
            name.replace(".base_layer.", "."): tensor
            for name, tensor in model.network.state_dict().items()
            if ".lora_" not in name
        }


def save_plain(model: "CausalLM", folder: Path) -> None:
    """Write the weights in use, configuration and tokenizer as a transformers folder.

    An output projection that is tied to the embedding is written apart from it: vLLM 0.32 reloads
    a tied one as the embedding only, and would go on with its former projection.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with plain_weights(model) as state, no_bars():
        shown = copy.copy(model.network)
        # where this flag is set, save_pretrained writes the adapters alone
        shown._hf_peft_config_loaded = False
        if model.network.config.tie_word_embeddings:
            shown.config = copy.deepcopy(model.network.config)
            shown.config.tie_word_embeddings = False
            output, modules = model.network.get_output_embeddings(), model.network.named_modules()
            name = next(f"{name}.weight" for name, module in modules if module is output)
            state[name] = state[name].clone()
        shown.save_pretrained(folder, state_dict=state, safe_serialization=True)
    model.tokenizer.save_pretrained(folder)
