"""What tests share: a network to compute with by hand, a random SD3, and the command."""

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor, nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.config.schema.targets import instantiate
from rlfactory.dynamics.base import Dynamics
from rlfactory.dynamics.flow_sde import FlowSDE
from rlfactory.dynamics.ops.forward_process import RectifiedFlow
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.hardware.local import Local
from rlfactory.model.base import ImageModel, Resolution
from rlfactory.model.weight_sets import WeightSets
from rlfactory.report import results
from rlfactory.reward.base import Reward, Samples
from rlfactory.rollout import Condition, Rollout
from rlfactory.run.checkpoint.load import load_state
from rlfactory.run.folder import RunFolder
from rlfactory.train import build as build_module
from rlfactory.train.build import build, instantiate_group, training_budget
from rlfactory.train.components import NoProgress
from rlfactory.train.sampling.trajectories import RolloutSpec, sample_with_transitions
from rlfactory.train.scoring import build as scoring_build
from rlfactory.train.trainer import Trainer
from rlfactory.utils.current_folder import TRUST

sys.path.append(str(Path(__file__).parent))  # for `tiny_pipelines`

# small networks are bound by overhead: a process a core beats threads that wait for each other
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")
# read by now by whatever fetches: no test does, but the plan would refuse every model of the hub
os.environ.pop("HF_HUB_OFFLINE", None)
# collecting the tests makes objects that stay, and looking for garbage among them takes seconds
gc.disable()

SOURCE = Path(__file__).parents[1] / "src"
Command = Callable[..., subprocess.CompletedProcess[str]]
RECIPES = Path(__file__).parents[1] / "scripts" / "zoo"


PAGES = (
    *("docs", "scripts", "sweeps", "config/peers", "report/test_sweep_results.py"),
    *("config/test_companions.py", "test_readme.py", "test_vocabulary.py"),
)
"""Tests of texts, data files and scripts, which change by themselves: marked `pages`."""
NOT_PAGES = ("scripts/test_suggestions.py", "config/test_companions.py::test_the_nearest_is_chosen")


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Mark what tests texts, data files and scripts; notebooks have a marker of their own."""
    pages, others = (
        tuple(f"tests/{name}{'' if '.py' in name else '/'}" for name in names)
        for names in (PAGES, NOT_PAGES)
    )
    for item in items:
        is_page = item.nodeid.startswith(pages) and not item.nodeid.startswith(others)
        if is_page and item.get_closest_marker("notebooks") is None:
            item.add_marker("pages")


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among what has been imported and collected."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _own_settings(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The key that signs runs isn't the user's."""
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("settings"))


@pytest.fixture(autouse=True)
def _own_import_path() -> Iterator[None]:
    """What a command in this process sets for the processes that it starts ends with its test."""
    names = ("PYTHONSAFEPATH", TRUST)
    before = {name: os.environ.get(name) for name in names}
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture(scope="module", autouse=True)
def _kept_apart() -> Iterator[None]:
    """What a file leaves (imports, what its session shares) isn't looked through ever after."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _not_drawn() -> Iterator[None]:
    """A run of a test's own draws no curves and no page, which take longer than all else.

    One that a file's tests share does, as fixtures of a wider scope come first.
    """
    draw = results.draw_run
    results.draw_run = lambda folder, *_: folder.page
    yield
    results.draw_run = draw


class LinearModel(ImageModel):
    """Predicts `weight * x + bias`: two numbers to train, `[B, 1, 2, 2]` latents."""

    process = "flow"
    forward_process = RectifiedFlow()
    resolution = Resolution((1, 2, 2), shift=3.0)
    device = torch.device("cpu")

    def __init__(self, weight: float, bias: float) -> None:
        self.weight = nn.Parameter(torch.tensor(weight))
        self.bias = nn.Parameter(torch.tensor(bias))
        self.weights = WeightSets({"weight": self.weight, "bias": self.bias})
        self.calls = 0

    def resolution_of(self, size: int) -> Resolution:
        return Resolution((1, size, size), shift=3.0)

    def encode(self, prompts: Sequence[str]) -> Condition:
        return Condition({"length": torch.tensor([float(len(prompt)) for prompt in prompts])})

    def predict(self, x: Tensor, t: Tensor, condition: Condition) -> Tensor:
        self.calls += 1
        self.evaluations.add(len(x))
        return self.weight * x + self.bias

    def decode(self, latents: Tensor) -> Tensor:
        return (latents.repeat(1, 3, 1, 1) * 50 + 128).clamp(0, 255).to(torch.uint8)

    def encode_images(self, images: Tensor) -> Tensor:
        grey = images.double().mean(1, keepdim=True)
        return nn.functional.adaptive_avg_pool2d((grey - 128) / 50, 2).float()

    def export(self, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
        raise NotImplementedError

    def export_merged(self, folder: Path) -> None:
        raise NotImplementedError

    def pipeline_arguments(self) -> dict[str, object]:
        return {}


@pytest.fixture
def linear() -> Callable[..., LinearModel]:
    """Makes the two-number model."""

    def make(weight: float = 0.3, bias: float = -0.1) -> LinearModel:
        return LinearModel(weight, bias)

    return make


@pytest.fixture
def roll() -> Callable[..., Rollout]:
    """Samples a model on six steps, the second and the fourth of them stochastic."""

    from tiny_pipelines import with_pictures

    def make(
        model: ImageModel, advantage: Sequence[float], dynamics: Dynamics | None = None
    ) -> Rollout:
        count, window = len(advantage), [1, 3]
        shape = (count, *model.resolution.shape)
        step_shape = (count, len(window), *model.resolution.shape)
        generator = torch.Generator().manual_seed(0)
        prompts = with_pictures(model, [f"prompt {i}" for i in range(count)])
        condition = model.encode(prompts)
        latents, transitions = sample_with_transitions(
            model,
            condition,
            torch.randn(shape, generator=generator),
            uniform_sigmas(6, 3.0),
            RolloutSpec(
                dynamics or FlowSDE(noise_level=0.7),
                window,
                torch.randn(step_shape, generator=generator),
                mean=True,
            ),
        )
        return Rollout(
            prompts=prompts,
            metadata=[{} for _ in range(count)],
            groups=torch.zeros(count, dtype=torch.int64),
            index=torch.arange(count),
            condition=condition,
            latents=latents,
            images=model.decode(latents),
            transitions=transitions,
            rewards={},
            advantage=torch.tensor(advantage),
        )

    return make


class Brightness(Reward):
    """How bright a picture is; those that show the same get the same."""

    media = "images"
    main = "shapes"

    def score(self, samples: Samples) -> dict[str, Tensor]:
        assert samples.images is not None
        return {"shapes": samples.images.float().mean((1, 2, 3)) / 255}


@pytest.fixture(scope="session")
def planned() -> Callable[..., Mapping[str, Any]]:
    """The configuration of a command line, of an iteration of twelve samples in six steps."""
    small = ["prompts_per_iteration=3", "group_size=4", "updates_per_iteration=2", "iterations=1"]
    plain = ["hardware=cpu", "optimizer.lr=0.03", "schedule.steps=6", *small]

    @cache
    def plan(*words: str) -> Mapping[str, Any]:
        composed = compose([*plain, *words])
        return make_plan(composed.values, composed.choices).config

    return plan


@pytest.fixture
def loop(
    linear: Callable[..., LinearModel],
    planned: Callable[..., Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., Trainer]:
    """Builds what a command line says, for the two-number model and a reward of brightness."""

    def begin(*words: str, reward: Reward | None = None) -> Trainer:
        ours = {"model": linear(), "reward": reward or Brightness()}

        def make_ours(config: object, group: str, **available: object) -> object:
            return ours.get(group) or instantiate_group(config, group, **available)

        monkeypatch.setattr(build_module, "instantiate_group", make_ours)
        monkeypatch.setattr(
            scoring_build,
            "instantiate",
            lambda node, key, **o: ours.get(key) or instantiate(node, key, **o),
        )
        config = planned(*words)
        return Trainer(build(config), training_budget(config), NoProgress())

    return begin


class Threaded(Local):
    """One of several processes that are threads: they wait for each other at every question."""

    def __init__(self, rank: int, count: int, table: list[Any], barrier: threading.Barrier) -> None:
        super().__init__(device="cpu")
        self.rank, self.world_size = rank, count
        self._table, self._barrier = table, barrier

    def _all(self, value: Any) -> list[Any]:
        self._table[self.rank] = value
        self._barrier.wait()
        found = list(self._table)
        self._barrier.wait()
        return found

    def all_gather(self, values: Tensor) -> Tensor:
        return torch.cat(self._all(values))

    def all_gather_strings(self, texts: Sequence[str]) -> list[str]:
        return [text for part in self._all(list(texts)) for text in part]

    def all_reduce_sum(self, value: float) -> float:
        return float(sum(self._all(value)))

    def all_reduce_max(self, value: float) -> float:
        return float(max(self._all(value)))

    def any_rank(self, flag: bool) -> bool:
        return any(self._all(flag))

    def first_rank_where(self, flag: bool) -> int | None:
        return next((rank for rank, found in enumerate(self._all(flag)) if found), None)

    def broadcast(self, value: Any, source: int = 0) -> Any:
        return self._all(value)[source]

    def step(self, optimizer: Any, parameters: Sequence[nn.Parameter], limit: float) -> Any:
        every = self._all([None if p.grad is None else p.grad.clone() for p in parameters])
        for parameter, grads in zip(parameters, zip(*every, strict=True), strict=True):
            known = [grad for grad in grads if grad is not None]
            parameter.grad = sum(known, torch.zeros_like(parameter)) if known else None
        return super().step(optimizer, parameters, limit)


@pytest.fixture
def together() -> Callable[..., list[Any]]:
    """What some work on a `hardware` gives in each of several processes, which are threads."""

    def run(count: int, work: Callable[[Threaded], Any]) -> list[Any]:
        table, barrier = [None] * count, threading.Barrier(count, timeout=20)

        def one(rank: int) -> Any:
            try:
                return work(Threaded(rank, count, table, barrier))
            except BaseException:
                barrier.abort()
                raise

        with ThreadPoolExecutor(count) as pool:
            return [future.result() for future in [pool.submit(one, r) for r in range(count)]]

    return run


@cache
def load_recipe(name: str) -> ModuleType:
    """A script of the zoo as a module."""
    from load_script import load_script

    sys.path.insert(0, str(RECIPES))  # the recipes import each other's parts, as scripts do
    module = load_script(RECIPES / f"{name}.py")
    sys.path.remove(str(RECIPES))
    return module


@pytest.fixture(scope="session")
def recipe() -> ModuleType:
    """The script that makes `tiny_sd3`, as a module."""
    return load_recipe("tiny_sd3")


@pytest.fixture(scope="session")
def recipes(recipe: ModuleType) -> Callable[[str], ModuleType]:
    """Any script of the zoo, as a module; some import that of `tiny_sd3`."""
    return load_recipe


@pytest.fixture(scope="session")
def sd3_folder(recipe: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pipeline folder of Stable Diffusion 3's own classes: random weights, saved in float16."""
    folder = tmp_path_factory.mktemp("tiny_sd3")
    pipe = recipe.build_pipeline(folder, 0)
    pipe.vae.register_to_config(shift_factor=0.1, scaling_factor=1.4)
    # untrained modulation and output layers are near zero, and every comparison an easy one
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in pipe.transformer.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    recipe.save(pipe, folder / "pipe")
    return folder / "pipe"


@pytest.fixture(scope="session")
def gpt2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random GPT-2 of two layers and a tokenizer of bytes, saved as models are."""
    folder = tmp_path_factory.mktemp("gpt2")
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate([*alphabet, "<|endoftext|>"])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>"
    ).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        end = vocabulary["<|endoftext|>"]
        config = GPT2Config(
            vocab_size=len(vocabulary),
            n_positions=64,
            n_embd=32,
            n_layer=2,
            n_head=2,
            bos_token_id=end,
            eos_token_id=end,
            initializer_range=0.3,
        )
        GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """Runs `rlfactory WORDS` in an empty folder, in a process of its own.

    Further folders on the path come as `path=[...]`.
    """

    def call(*words: str, path: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
        search = os.pathsep.join(map(str, [SOURCE, *path]))
        return subprocess.run(
            [sys.executable, "-m", "rlfactory.cli", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": search, "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return call


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs what the command runs, in an empty folder but in this process."""
    from rlfactory.cli import app

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patched:
            patched.chdir(tmp_path)
            patched.setattr(sys, "argv", ["rlfactory", *words])
            patched.setattr(sys, "path", [*sys.path])
            patched.setenv("NO_COLOR", "1")
            patched.setenv("RLFACTORY_TRUST", "")
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                app.main()
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), *shown)

    return call


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs the command in this process, sees it exit with 2, and returns what it said."""
    from rlfactory.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLFACTORY_TRUST", "")

    def call(*words: str) -> str:
        monkeypatch.setattr(sys, "argv", ["rlfactory", *words])
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(SystemExit) as stopped:
            app.main()
        shown = capsys.readouterr()
        assert stopped.value.code == 2, shown
        assert shown.out == ""
        assert "Traceback" not in shown.err
        assert sorted(tmp_path.rglob("*")) == before, "a refused command writes nothing"
        return shown.err

    return call


@pytest.fixture(scope="session")
def traces() -> Callable[[Path], dict[str, Any]]:
    """All that a run leaves, but for what tells the time and where it was interrupted."""
    attempts = {"seconds", "config", "looked", "lines", "best", "logger"}

    def of(path: Path) -> dict[str, Any]:
        folder, found = RunFolder(path), dict[str, Any]()
        told = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
        clocks = ("time", "memory")
        found["metrics"] = [
            {k: v for k, v in line.items() if not k.startswith(clocks)} for line in told
        ]
        for place in (folder.evaluations, folder.samples):
            files = sorted(p for p in place.rglob("*") if p.is_file())
            found |= {str(p.relative_to(path)): p.read_bytes() for p in files}
        for place in sorted(folder.checkpoints.glob("step_*")):
            for file in sorted(place.glob("*.safetensors")):
                found[f"{place.name}/{file.stem}"] = file.read_bytes()
            # of a sharded run; torch may write a file's tensors in another order
            for file in sorted(place.glob("shards/*.safetensors")):
                for name, tensor in sorted(load_file(file).items()):
                    found[f"{place.name}/{file.name}/{name}"] = tensor.numpy().tobytes()
            assert any(key.startswith(f"{place.name}/") for key in found)
            state = load_state(place)
            found[f"{place.name}/state"] = {k: v for k, v in state.items() if k not in attempts}
        return found

    return of
