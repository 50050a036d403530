"""What tests share: a network to compute with by hand, a random SD3, and the command.

What takes seconds to import is imported by the fixtures: the process that hands tests to the others
reads this file too, before they start.
"""

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import huggingface_hub.constants  # noqa: F401  (reads what is forgotten below)
import pytest

from rlfactory.run.folder import RunFolder
from rlfactory.utils.current_folder import TRUST

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from stand_ins import LinearModel, Threaded
    from warm_process import Warm

    from rlfactory.dynamics.base import Dynamics
    from rlfactory.model.base import ImageModel
    from rlfactory.reward.base import Reward
    from rlfactory.rollout import Rollout
    from rlfactory.train.trainer import Trainer

sys.path.append(str(Path(__file__).parent))  # for `stand_ins` and `tiny_pipelines`

# hundreds of processes start below, and every file of tests is rewritten: compile each file once
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# small networks are bound by overhead: a process a core beats threads that wait for each other
os.environ["OMP_NUM_THREADS"] = "1"
# where a run asks for two, a thread that waits sleeps: the cores have other tests to do
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
# read by now by whatever fetches: no test does, but the plan would refuse every model of the hub
os.environ.pop("HF_HUB_OFFLINE", None)
# collecting the tests makes objects that stay, and looking for garbage among them takes seconds
gc.disable()

SOURCE = Path(__file__).parents[1] / "src"
Command = Callable[..., subprocess.CompletedProcess[str]]
RECIPES = Path(__file__).parents[1] / "scripts" / "zoo"


PAGES = (
    *("docs", "scripts", "sweeps", "config/peers", "report/test_sweep_results.py"),
    *("config/test_companions.py", "config/test_peers.py", "test_readme.py", "test_vocabulary.py"),
)
"""Tests of texts, data files and scripts, which change by themselves: marked `pages`."""
SLOW = (
    *("strangers", "device/test_pretended.py", "model/test_kontext_run.py"),
    *("train/test_videos.py", "train/process/test_worker_text.py"),
)
"""Hundreds of commands as strangers type them, a device that counts, whole runs: marked `slow`."""
NOT_PAGES = ("scripts/test_suggestions.py", "config/test_companions.py::test_the_nearest_is_chosen")


GARBAGE = (20_000, 20, 20)
"""Python looks after 700 new objects, and a plan makes a million: a fifth of its time."""
TESTS = Path(__file__).parent
LEFT_OUT = {"pages": PAGES, "slow": SLOW, "faults": ("faults",), "dist": ("dist",)}
"""Folders and files of tests that have these markers, to the last one."""


@cache
def _is_below(path: Path, places: tuple[str, ...]) -> bool:
    # as text: `is_relative_to` of thousands of paths takes half a second
    inside = f"{path}/".removeprefix(f"{TESTS}/")
    return any(inside.startswith(f"{place.partition('::')[0]}/") for place in places)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't import what `-m` leaves out to the last test: a third of the time of collecting."""
    named = {Path(word.partition("::")[0]).resolve() for word in config.args}
    if (
        collection_path.is_dir()
        or collection_path in named
        or _is_below(collection_path, NOT_PAGES)
    ):
        return None
    selects = f"{config.option.markexpr} "
    for marker, places in LEFT_OUT.items():
        if f"not {marker} " in selects and _is_below(collection_path, places):
            return True
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for cases which repeat others' paths, and for standards."""
    parser.addoption("--whole", action="store_true", help="cases marked `whole` too")
    parser.addoption(
        "--write-standards",
        choices=("new", "moved"),
        help="with -n 0: store what this kind of machine lacks; moved: and what has changed",
    )


def _leave_out_repeated(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect cases marked `whole`, without `--whole`."""
    if config.option.whole:
        return
    repeated = [item for item in items if item.get_closest_marker("whole") is not None]
    if repeated:
        config.hook.pytest_deselected(items=repeated)
        items[:] = [item for item in items if item.get_closest_marker("whole") is None]


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is slow, and what tests texts, data files and scripts; notebooks have a marker of
    their own.
    """
    _leave_out_repeated(config, items)
    others = tuple(f"tests/{name}" for name in NOT_PAGES)
    for item in items:
        is_page = _is_below(item.path, PAGES) and not item.nodeid.startswith(others)
        if is_page and item.get_closest_marker("notebooks") is None:
            item.add_marker("pages")
        if _is_below(item.path, SLOW):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Look for garbage again, but not among what has been imported and collected."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)
    gc.enable()


def pytest_unconfigure() -> None:
    """Keep Triton, which comes with torch for CUDA, from reporting what stays at the end."""
    if "triton" in sys.modules:
        gc.unfreeze()


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


@contextmanager
def not_drawn() -> Iterator[None]:
    """Let runs draw no curves and no page, which take longer than all else."""
    from rlfactory.report import results

    draw = results.draw_run
    results.draw_run = lambda folder, *_: folder.page
    try:
        yield
    finally:
        results.draw_run = draw


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> "list[Figure]":
    """Every figure that is saved, to be looked into."""
    from matplotlib.figure import Figure

    kept: list[Figure] = []
    real = Figure.savefig

    def keep(self: Figure, *args: Any, **kwargs: Any) -> None:
        kept.append(self)
        real(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)
    return kept


@pytest.fixture(autouse=True)
def _not_drawn() -> Iterator[None]:
    """A run of a test's own isn't drawn; one that a file's tests share is, unless it is `undrawn`:
    fixtures of a wider scope come first.
    """
    with not_drawn():
        yield


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Runs that a file's tests share aren't drawn either."""
    with not_drawn():
        yield


@pytest.fixture
def linear() -> "Callable[..., LinearModel]":
    """Makes the two-number model."""
    from stand_ins import LinearModel

    def make(weight: float = 0.3, bias: float = -0.1) -> LinearModel:
        return LinearModel(weight, bias)

    return make


@pytest.fixture
def roll() -> "Callable[..., Rollout]":
    """Samples a model on six steps, the second and the fourth of them stochastic."""
    import torch
    from tiny_pipelines import with_pictures

    from rlfactory.dynamics.flow_sde import FlowSDE
    from rlfactory.dynamics.schedule import uniform_sigmas
    from rlfactory.rollout import Rollout
    from rlfactory.train.sampling.trajectories import RolloutSpec, sample_with_transitions

    def make(
        model: "ImageModel", advantage: Sequence[float], dynamics: "Dynamics | None" = None
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


@pytest.fixture(scope="session")
def planned() -> Callable[..., Mapping[str, Any]]:
    """The configuration of a command line, of an iteration of twelve samples in six steps."""
    from rlfactory.config.overrides import compose
    from rlfactory.config.plan import make_plan

    small = ["prompts_per_iteration=3", "group_size=4", "updates_per_iteration=2", "iterations=1"]
    plain = ["hardware=cpu", "optimizer.lr=0.03", "schedule.steps=6", *small]

    @cache
    def plan(*words: str) -> Mapping[str, Any]:
        composed = compose([*plain, *words])
        return make_plan(composed.values, composed.choices).config

    return plan


@pytest.fixture
def loop(
    linear: "Callable[..., LinearModel]",
    planned: Callable[..., Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> "Callable[..., Trainer]":
    """Builds what a command line says, for the two-number model and a reward of brightness."""
    from stand_ins import Brightness

    from rlfactory.config.schema.targets import instantiate
    from rlfactory.train import build as build_module
    from rlfactory.train.build import build, instantiate_group, training_budget
    from rlfactory.train.components import NoProgress
    from rlfactory.train.scoring import build as scoring_build
    from rlfactory.train.trainer import Trainer

    def begin(*words: str, reward: "Reward | None" = None) -> Trainer:
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


@pytest.fixture
def together() -> Callable[..., list[Any]]:
    """What some work on a `hardware` gives in each of several processes, which are threads."""
    from stand_ins import Threaded

    def run(count: int, work: "Callable[[Threaded], Any]") -> list[Any]:
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
    import torch

    folder = tmp_path_factory.mktemp("tiny_sd3")
    pipe = recipe.build_pipeline(0)
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
    from stand_ins import save_gpt2

    folder = tmp_path_factory.mktemp("gpt2")
    save_gpt2(folder)
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


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Warm]":
    """Commands, scripts, ranks and trainings in processes that have their imports behind them."""
    from warm_process import started

    with started(tmp_path_factory.mktemp("warm") / "errors.txt") as process:
        yield process


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
    from safetensors.torch import load_file

    from rlfactory.run.checkpoint.load import load_state

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
