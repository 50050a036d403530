"""The Python interface: the same bits as the command, live objects, and what a run gives back."""

import asyncio
import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from diffusers import StableDiffusion3Pipeline
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlfactory as rl
from rlfactory.algo.base import Algorithm
from rlfactory.algo.ppo import PPO
from rlfactory.api import as_words
from rlfactory.cli.app import dispatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.model.base import Model
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.prompts.ops.in_memory import with_prompts
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers import Logger, TensorBoard
from rlfactory.run.metrics import read
from rlfactory.tools.run import require_same_prompts
from rlfactory.train.listeners import Iteration, Listener
from rlfactory.train.process import launch
from rlfactory.utils.console import number
from rlfactory.utils.errors import UserError

SMALL = [
    *("iterations=2", "prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1"),
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0", "hardware=cpu"),
]
PROMPTS = ["the film is", "a movie that", "the plot"]


def shortness(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """A reward of texts."""
    return [-float(len(text)) for text in completions]


@pytest.fixture(scope="module")
def live() -> Mapping[str, Any]:
    folder = zoo_path("tiny_gpt2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return {"model": AutoModelForCausalLM.from_pretrained(folder), "tokenizer": tokenizer}


@pytest.fixture(scope="module")
def run(live: Mapping[str, Any], tmp_path_factory: pytest.TempPathFactory) -> rl.Run:
    """A finished run, which tests read."""
    path = tmp_path_factory.mktemp("live") / "run"
    return rl.train(*SMALL, **live, reward=shortness, prompts=PROMPTS, run_dir=path)


def weights_of(run: Path) -> bytes:
    checkpoint = newest(run / "checkpoints")
    assert checkpoint is not None
    return (checkpoint / "weights.safetensors").read_bytes()


def test_importing_the_package_is_light() -> None:
    """It takes hundredths of a second: ours are three modules, the others are Python's own."""
    code = (
        "import sys; before = {*sys.modules}; import rlfactory; new = {*sys.modules} - before\n"
        "print(sorted(n for n in new if n.split('.')[0] not in sys.stdlib_module_names), len(new))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours, _, count = done.stdout.rpartition(" ")
    assert ours == "['rlfactory', 'rlfactory.train', 'rlfactory.utils', 'rlfactory.utils.version']"
    assert int(count) < 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["model=tiny_gpt2"], ["schedule.steps=3", "model.size=32"]],
    ids=["tokens", "images"],
)
def test_the_same_words_give_the_same_weights_as_the_command(
    words: list[str], tmp_path: Path
) -> None:
    assert dispatch([*SMALL, *words, f"run_dir={tmp_path / 'typed'}"]) == 0
    run = rl.train(*SMALL, *words, run_dir=tmp_path / "called")
    assert run.status == "done"
    assert weights_of(tmp_path / "typed") == weights_of(run.path)


@pytest.mark.slow
def test_a_model_in_memory_gives_the_same_weights_and_is_not_changed(
    live: Mapping[str, Any], tmp_path: Path
) -> None:
    before = {name: tensor.clone() for name, tensor in live["model"].state_dict().items()}
    words = [*SMALL, "reward=length"]
    run = rl.train(*words, **live, run_dir=tmp_path / "live")
    typed = rl.train(*words, "model=tiny_gpt2", run_dir=tmp_path / "typed")
    assert weights_of(run.path) == weights_of(typed.path)
    assert all(bool((before[n] == t).all()) for n, t in live["model"].state_dict().items())


def test_a_function_and_prompts_are_trained_on(run: rl.Run) -> None:
    assert run.config["reward"]["function"] == "object:reward"
    assert "shortness" in run.folder.objects.read_text()
    assert [*run.before] == [*run.after] == ["shortness"]
    rows = run.metrics if isinstance(run.metrics, list) else run.metrics.to_dict("records")
    assert max(row["iteration"] for row in rows) == 2
    assert repr(run).startswith(f"<Run {run.path}: done, shortness -")
    described = json.loads(run.folder.objects.read_text())
    assert re.search(r"GPT2LMHeadModel \S*tiny_gpt2", described["model"])
    assert "InMemoryPrompts of 3" in described["prompts"]


def test_metrics_are_a_table_where_pandas_is_installed(
    run: rl.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=lambda rows: ("df", rows)))
    kind, rows = run.metrics
    assert kind == "df"
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert run.metrics == rows
    assert rows[-1]["eval/shortness/mean"] == pytest.approx(run.after["shortness"])


class Notebook:
    """Stands in for IPython in a kernel: keeps what its cells show."""

    def __init__(self) -> None:
        self.shell = SimpleNamespace(kernel=object(), execution_count=1)
        self.cells: list[str] = []

    def get_ipython(self) -> Any:
        return self.shell

    def display(self, html: str, display_id: bool) -> Any:
        self.cells.append(html)
        position = len(self.cells) - 1
        return SimpleNamespace(update=lambda new: self.cells.__setitem__(position, new))

    def HTML(self, html: str) -> str:  # noqa: N802
        return html


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Notebook:
    made = Notebook()
    monkeypatch.setitem(sys.modules, "IPython", made)
    monkeypatch.setitem(sys.modules, "IPython.display", made)
    return made


@pytest.mark.slow
def test_a_notebook_shows_progress_and_then_scores_and_pictures(
    notebook: Notebook, live: Mapping[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS, "run_dir": tmp_path / "run"}
    run = rl.train(*SMALL, "iterations=1", **given)
    progress, shown = notebook.cells
    assert "iteration 1/1" in progress
    assert "shortness" in progress
    assert "iteration 1/1" not in capsys.readouterr().out
    assert f">{number(run.after['shortness'])}</td>" in shown
    assert "the film is" in shown
    assert run._repr_html_() is None  # the same cell: it has been shown
    notebook.shell.execution_count += 1
    run.folder.curves.write_bytes(b"a picture")
    html = run._repr_html_()
    assert html is not None
    assert re.search(r'<img alt="curves" [^>]*src="data:image/png;base64,', html)


@pytest.mark.slow
def test_the_tuned_model_is_sampled_and_exported(run: rl.Run, tmp_path: Path) -> None:
    texts = run.samples(PROMPTS[:2], count=2, seed=3)
    assert len(texts) == 4
    assert texts == run.samples(PROMPTS[:2], count=2, seed=3)
    network, tokenizer = run.pipeline()
    assert tokenizer("the film").input_ids
    assert sum(p.numel() for p in network.parameters()) > 1_000_000
    assert (run.export(tmp_path / "exported") / "README.md").is_file()


@pytest.mark.slow
def test_a_run_is_resumed_with_the_objects_that_it_needs(
    run: rl.Run, live: Mapping[str, Any], tmp_path: Path
) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS}
    words = [*SMALL, f"run_dir={tmp_path / 'paused'}"]
    paused = rl.train(*words, **given, until=1)
    assert paused.status == "paused"
    found = rl.load_run(paused.path)
    with pytest.raises(PlanError, match=r"reward: was .*shortness .*hand it over"):
        found.resume()
    exported = rl.load_run(paused.path, **live).export(tmp_path / "exported")
    assert (exported / "config.json").is_file()
    others = {**given, "prompts": [*PROMPTS, "another"], "eval_prompts": PROMPTS[::2]}
    for go_on in (found.resume, partial(rl.train, *words)):
        with pytest.raises(PlanError, match="prompts: are not those that the run"):
            go_on(**others)
    assert rl.load_run(paused.path, **given).resume().status == "done"
    assert found.resume(**given).status == "done"
    assert weights_of(found.path) == weights_of(run.path)


@pytest.mark.slow
def test_a_finished_run_stays_as_it_is(
    run: rl.Run, live: Mapping[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*.json*")}
    given = {**live, "reward": lambda completions: [1.0] * len(completions)}
    again = rl.train(*SMALL, **given, prompts=[*PROMPTS, "another"], run_dir=run.path)
    assert again.after == run.resume().after == run.after
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*.json*")} == before
    assert capsys.readouterr().out.count("is done (iterations=2)") == 2


def test_a_run_whose_prompts_are_an_options_takes_none_from_memory(tmp_path: Path) -> None:
    """It ended in a FileNotFoundError: no object of memory was described in its folder."""
    (tmp_path / "config.yaml").write_text(plan_from_words("model=tiny_gpt2").frozen())
    prompts = with_prompts({"prompts": PROMPTS})
    with pytest.raises(PlanError, match=r"prompts: are not read by the run in .*leave them out"):
        require_same_prompts(RunFolder(tmp_path), prompts, force=False)


@pytest.mark.slow
def test_force_resumes_under_the_new_configuration(live: Mapping[str, Any], tmp_path: Path) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS, "run_dir": tmp_path / "run"}
    words = [*SMALL, "learning_rate.final_scale=1"]
    rl.train(*words, "optimizer.lr=1e-3", **given, until=1)
    with pytest.raises(PlanError, match="began with 0.001"):
        rl.train(*words, "optimizer.lr=3e-3", **given)
    forced = rl.train(*words, "optimizer.lr=3e-3", **given, force=True)
    rows = read(forced.folder.metrics)
    assert [row["optimizer/lr"] for row in rows if "optimizer/lr" in row] == [1e-3, 3e-3]


@pytest.mark.slow
def test_a_run_is_extended(live: Mapping[str, Any], tmp_path: Path) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS, "run_dir": tmp_path / "run"}
    words = [*SMALL[1:], "learning_rate.final_scale=1"]
    run = rl.train(*words, "iterations=1", **given)
    assert run.resume(until=1).status == "done"
    assert run.config["iterations"] == 1
    assert run.resume(until=2).status == "done"
    assert run.config["iterations"] == 2
    straight = rl.train(*words, "iterations=2", **{**given, "run_dir": tmp_path / "straight"})
    assert weights_of(run.path) == weights_of(straight.path)


@pytest.mark.slow
def test_an_extension_that_changes_the_learning_rate_is_forced(
    live: Mapping[str, Any], tmp_path: Path
) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS, "run_dir": tmp_path / "run"}
    run = rl.train(*SMALL, "iterations=1", "learning_rate.final_scale=0.1", **given)
    with pytest.raises(PlanError, match="force=True resumes with the rates of a run of 2"):
        run.resume(until=2)
    assert run.config["iterations"] == 1


class Interrupt(Listener):
    """What Ctrl-C does, and interrupting a notebook's kernel, in the first iteration."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_iteration(self, iteration: Iteration) -> None:
        self.seen.append(iteration.done)
        if self.seen == [1]:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """A shell has what it runs in the background ignore SIGINT."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


@pytest.mark.slow
@pytest.mark.usefixtures("_interruptible")
def test_an_interrupt_keeps_what_was_learned(
    run: rl.Run, live: Mapping[str, Any], tmp_path: Path
) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS, "run_dir": tmp_path / "run"}
    listener = Interrupt()
    stopped = rl.train(*SMALL, **given, listeners=[listener])
    assert stopped.status == "interrupted"
    assert listener.seen == [1]
    checkpoint = newest(stopped.path / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.name == "step_000001"
    assert stopped.samples(PROMPTS[:1])
    assert stopped.resume(listeners=[listener]).status == "done"
    assert listener.seen == [1, 2]
    assert weights_of(stopped.path) == weights_of(run.path)


async def brevity(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """An async reward."""
    await asyncio.sleep(0)
    return [1.0] * len(completions)


@pytest.mark.slow
def test_several_rewards_are_combined(live: Mapping[str, Any], tmp_path: Path) -> None:
    rewards = {"short": (shortness, 0.5), "brevity": brevity, "repetition": ("repetition", 0.0)}
    given = {**live, "reward": rewards, "prompts": PROMPTS, "run_dir": tmp_path / "run"}
    words = [*SMALL, "iterations=1", "reward.weights.brevity=2"]
    run = rl.train(*words, **given)
    assert run.config["reward"]["weights"] == {"short": 0.5, "repetition": 0.0, "brevity": 2}
    assert run.after["brevity"] == 1
    assert run.after["combined"] == pytest.approx(0.5 * run.after["short"] + 2)
    missing = r"reward.short: was .*shortness .*reward={'short': ...}.*\n?.*reward.brevity"
    with pytest.raises(PlanError, match=missing):
        rl.load_run(run.path).resume()
    again = rl.load_run(run.path).resume(**{k: v for k, v in given.items() if k != "run_dir"})
    assert again.status == "done"


def test_the_command_says_where_such_a_run_is_resumed(run: rl.Run) -> None:
    with pytest.raises(PlanError, match=r"was started from Python with .*reward"):
        dispatch(["sample", str(run.path), "--prompt", "x"])
    # what is recorded needs none of them
    assert dispatch(["sync", str(run.path), "logger=tensorboard"]) == 0
    assert [*(run.path / "tensorboard").iterdir()]


class Doubled(PPO):
    """PPO with another default."""

    seen: list[float] = []

    def __init__(self, dynamics: Token, *, clip_range: float = 0.3, factor: float = 1.0) -> None:
        super().__init__(dynamics, clip_range=clip_range)
        self.seen.append(factor)


@pytest.mark.slow
def test_an_algorithm_of_ones_own_begins_with_the_options_of_its_parent(
    live: Mapping[str, Any], tmp_path: Path
) -> None:
    words = [*SMALL, "iterations=1", "algo.factor=2.0"]
    given = {**live, "reward": shortness, "prompts": PROMPTS, "algo": Doubled}
    plan = rl.plan(*words, **given)
    assert plan.config["algo"]["_target_"] == "object:algo"
    assert plan.config["algo"]["clip_range"] == 0.2
    assert "algo" in plan.table()
    assert rl.train(*words, **given, run_dir=tmp_path / "own").status == "done"
    assert Doubled.seen == [2.0]
    assert dispatch(["sync", str(tmp_path / "own"), "logger=tensorboard"]) == 0


class Forwarding(Doubled):
    """Passes on what its parent takes."""

    def __init__(self, dynamics: Token, *, slope: float = 1.0, **options: Any) -> None:
        super().__init__(dynamics, **options)


def test_options_of_an_own_algorithm_are_typed_as_those_of_a_shipped_one(
    live: Mapping[str, Any],
) -> None:
    given = {**live, "reward": shortness, "prompts": PROMPTS}
    node = rl.plan(*SMALL, **given, algo=Forwarding, **{"algo.slope": 0.5}).config["algo"]
    assert (node["slope"], node["clip_range"]) == (0.5, 0.2)
    known = r"algo.slop: .*known here: clip_range, factor, slope. Did you mean algo.slope"
    with pytest.raises(PlanError, match=known) as refused:
        rl.plan(*SMALL, "algo.slop=1", "iterations=0", **given, algo=Forwarding)
    assert [problem.key for problem in refused.value.problems] == ["algo.slop", "iterations"]


class Own(Algorithm[Any, Any, Any]):
    """Of no shipped ancestor."""

    requires = "transitions"

    def training_items(self, rollout: Any, model: Any, *, seed: int, iteration: int) -> Any:
        raise NotImplementedError

    def loss(self, model: Any, batch: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("algo", [Own, Own()], ids=["class", "instance"])
def test_an_algorithm_of_no_ancestor_begins_with_the_companions_of_its_kind(algo: Any) -> None:
    plan = rl.plan(algo=algo, prompts=PROMPTS)
    assert plan.config["algo"] == {"_target_": "object:algo"}
    assert (plan.choices["window"], plan.choices["dynamics"]) == ("fixed", "flow_sde")
    assert plan.choices["algo"] == "Own"
    with pytest.raises(PlanError, match="algo.factor: "):
        rl.plan("algo.factor=2", algo=algo, prompts=PROMPTS)


def test_a_wrapped_model_is_the_one_inside(live: Mapping[str, Any], tmp_path: Path) -> None:
    wrapped = {**live, "model": torch.nn.DataParallel(live["model"])}
    given = {**wrapped, "reward": shortness, "prompts": PROMPTS}
    run = rl.train(*SMALL, "iterations=1", **given, run_dir=tmp_path / "run")
    run.export(tmp_path / "exported")
    assert (tmp_path / "exported" / "model.safetensors").is_file()


def test_the_plan_says_what_is_in_memory(live: Mapping[str, Any]) -> None:
    given = {**live, "prompts": PROMPTS, "eval_prompts": PROMPTS[:2]}
    plan = rl.plan(*SMALL, "evaluation.prompts=3", reward=shortness, **given)
    rows = dict(line.split(maxsplit=1) for line in plan.table().splitlines())
    assert rows["prompts"] == "3 prompts, in memory"
    assert rows["reward"] == "shortness, in memory"
    assert rows["model"] == "in memory, with the settings of tiny_gpt2"
    assert rows["algo"] == "ppo"
    evaluated = plan.derived["evaluated on"]
    assert evaluated.startswith("2 training prompts; eval_prompts=[...] has others")
    several = rl.plan(*SMALL, reward={"short": shortness, "repetition": "repetition"}, **given)
    assert re.search(r"^reward +combine: short in memory$", several.table(), re.MULTILINE)


def test_paths_of_prompts_are_those_of_files(tmp_path: Path) -> None:
    for name in ("mine.txt", "held out.txt"):
        (tmp_path / name).write_text("a red cube\na blue ball\n")
    paths = {"prompts": tmp_path / "mine.txt", "eval_prompts": tmp_path / "held out.txt"}
    node = rl.plan("reward=compressibility", **paths).config["prompts"]
    assert [node[key] for key in ("path", "eval_path")] == [*map(str, paths.values())]
    assert rl.plan("reward=compressibility", prompts=tmp_path).choices["prompts"] == "datasets"
    with pytest.raises(UserError, match="is a PosixPath|is a WindowsPath"):
        rl.plan(prompts=PROMPTS, eval_prompts=paths["eval_prompts"])


def test_prompts_that_were_not_downloaded_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "hf download" in rl.plan(prompts="hpdv2", reward="compressibility").table()
    with pytest.raises(PlanError, match=r"prompts.path: .* is not here; type hf download"):
        rl.train(prompts="hpdv2", reward="compressibility")
    assert not [*tmp_path.iterdir()]


def test_a_device_that_is_not_here_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "lacks_gpu", lambda: True)
    with pytest.raises(PlanError, match=r"hardware.device: is cuda, and no GPU"):
        rl.train(*SMALL, "hardware.device=cuda", run_dir=tmp_path / "run")
    assert not [*tmp_path.iterdir()]


def test_settings_are_words() -> None:
    settings = {"iterations": 3, "optimizer": {"lr": 1e-4}, "run_dir": Path("a b"), "seed": None}
    words = ["iterations=3", "optimizer.lr=0.0001", "run_dir='a b'", "seed=null"]
    assert as_words(settings) == words
    assert as_words({"model": {"lora_targets": ["a.b", "c"]}}) == ["model.lora_targets=[a.b,c]"]
    assert as_words({"prompts": "file", "hardware": "cpu"}) == ["prompts=file", "hardware=cpu"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"model": object()}, "model: is a object; what can be trained is a diffusers pipeline"),
        ({"tokenizer": object()}, "tokenizer: is for a language model"),
        ({"eval_prompts": ["a"]}, "eval_prompts: are for prompts that are handed over"),
        ({"nothing": 1}, "nothing: there is no such key"),
        ({"nothing": shortness}, "nothing: is a function; objects can be model, tokenizer, reward"),
        ({"reward_funcs": [shortness], "callbacks": []}, "reward_funcs: is reward= here"),
        ({"args": object()}, "args: is one keyword for each option"),
        ({"peft_config": object()}, "peft_config: is the words 'model.finetune=lora'"),
        ({"algo": object}, "object derives from no Algorithm"),
        ({"reward": [shortness, 0.5]}, "reward.float: 0.5 is no reward"),
        ({"reward": [shortness, shortness]}, "reward.shortness: can't be its name; name each"),
        ({"reward": [shortness, "nothing"]}, "there is no reward nothing"),
    ],
)
def test_what_can_not_be_handed_over_is_a_problem(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        rl.plan(**given)


def test_a_function_has_the_options_of_one_and_words_may_name_a_folder(tmp_path: Path) -> None:
    given = {"reward": brightness, "prompts": PROMPTS, "prompts_per_iteration": 2}
    assert rl.plan("reward.timeout=2", **given).config["reward"]["timeout"] == 2
    several = {**given, "reward": [brightness, "compressibility"]}
    words = ["reward.parts.brightness.timeout=2", "reward.parts.compressibility.quality=50"]
    node = rl.plan(*words, "reward.weights=[1,0.5]", **several).config["reward"]
    assert node["parts"]["brightness"]["timeout"] == 2
    assert node["parts"]["brightness"]["function"] == "object:reward.brightness"
    assert node["parts"]["compressibility"]["quality"] == 50
    assert node["weights"] == {"brightness": 1, "compressibility": 0.5}
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\niterations: 3\n")
    assert rl.plan("-cd", str(tmp_path), "experiment=mine").config["iterations"] == 3
    with pytest.raises(PlanError, match="is no word"):
        rl.plan({"iterations": 3})  # type: ignore[arg-type]


def test_an_error_is_raised_and_the_run_has_failed(
    live: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Logger] = []
    monkeypatch.setattr(TensorBoard, "finish", lambda self: closed.append(self))

    def broken(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
        raise ZeroDivisionError("no")

    path, words = tmp_path / "run", [*SMALL, "logger=tensorboard"]
    with pytest.raises(Exception, match="no score"):
        rl.train(*words, **live, reward=broken, prompts=PROMPTS, run_dir=path)
    assert rl.load_run(path).status == "failed"
    assert len(closed) == 1, "else the next run of the process had its service's run"


def test_a_run_stays_where_it_began(
    live: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reward that changed the current folder had half of the run written there."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def leaving(completions: Sequence[str]) -> list[float]:
        os.chdir(elsewhere)
        return [0.5] * len(completions)

    monkeypatch.chdir(tmp_path)
    run = rl.train(*SMALL, **live, reward=leaving, prompts=PROMPTS, run_dir="run")
    assert run.after == {"leaving": 0.5}
    assert [*elsewhere.iterdir()] == []


def test_a_pipeline_that_can_not_be_copied_and_exported_is_refused() -> None:
    pipe = StableDiffusion3Pipeline.from_pretrained(zoo_path("tiny_sd3"), dtype=torch.float32)

    def refused(message: str) -> None:
        with pytest.raises(PlanError, match=message):
            rl.plan(model=pipe, prompts=PROMPTS)

    pipe.transformer.add_adapter(LoraConfig(r=2, target_modules=["to_q"]))
    refused(r"its transformer; merge them: pipe.fuse_lora\(\) and pipe.unload_lora_weights\(\)")
    pipe.fuse_lora(components=["transformer"])
    pipe.unload_lora_weights()
    rl.plan(model=pipe, prompts=PROMPTS)
    pipe.transformer = get_peft_model(pipe.transformer, LoraConfig(r=2, target_modules=["to_q"]))
    refused(r"merge them: pipe.transformer = pipe.transformer.merge_and_unload\(\)")
    pipe.transformer = pipe.transformer.merge_and_unload()
    rl.plan(model=pipe, prompts=PROMPTS)
    pipe.transformer.enable_layerwise_casting(torch.float8_e4m3fn, torch.float32)
    refused("has hooks of diffusers in its transformer")
    pipe.enable_sequential_cpu_offload(device="cpu")
    refused("without weights")


@pytest.mark.slow
@pytest.mark.parametrize("finetune", [pytest.param("full", marks=pytest.mark.whole), "lora"])
def test_a_pipeline_in_memory_gives_the_same_weights_and_is_not_changed(
    finetune: str, tmp_path: Path
) -> None:
    folder = zoo_path("tiny_sd3")
    pipe = StableDiffusion3Pipeline.from_pretrained(folder, dtype=torch.float32)
    before = {name: t.clone() for name, t in pipe.transformer.state_dict().items()}
    network, pipe.transformer = pipe.transformer, torch.compile(pipe.transformer)
    words = [*SMALL, "schedule.steps=3", "reward=compressibility", f"model.finetune={finetune}"]
    run = rl.train(*words, model=pipe, prompts=PROMPTS, run_dir=tmp_path / "live")
    assert run.config["model"]["size"] == 64
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(PROMPTS))
    same = ["prompts=file", f"prompts.path={prompts}"]
    typed = rl.train(*words, *same, run_dir=tmp_path / "typed")
    assert weights_of(run.path) == weights_of(typed.path)
    after = network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], t) for name, t in after.items())
    image = run.samples(["a red circle"])[0]
    assert image.size == (64, 64)
    tuned = run.pipeline()
    assert isinstance(tuned, StableDiffusion3Pipeline)


def brightness(images: Any, prompts: Any, metadata: Any) -> list[float]:
    """A reward of images."""
    return [float(image.float().mean()) for image in images]


@pytest.mark.slow
def test_a_function_of_images_is_a_reward_and_no_model_stays_in_memory(tmp_path: Path) -> None:
    def models() -> int:
        return sum(isinstance(of, Model) for of in gc.get_objects())

    gc.collect()  # what other tests left
    before = models()
    words = [*SMALL, "algo=vgrpo", "schedule.steps=3"]
    run = rl.train(*words, reward=brightness, prompts=PROMPTS, run_dir=tmp_path / "run")
    assert models() == before, "a notebook trains again"
    assert [*run.after] == ["brightness"]
    run.samples(["a red circle"])
    assert models() == before


@pytest.mark.slow
def test_the_examples_of_the_pages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = Path(__file__).parents[1] / "docs"
    pages = [docs / "python.md", docs / "guides" / "python_objects.md"]  # the second continues
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(block, names)
        if "MyFlowDPPO(" in block:
            assert len(block.splitlines()) <= 60
    shipped = rl.train(
        *("algo=flow_dppo", "algo.kl_threshold=1e-6", *SMALL[1:3], "group_size=4", "iterations=2"),
        *("epochs=2", "schedule.steps=4", "evaluation.prompts=2"),
        reward=names["redness"],
        prompts=["a circle", "a square"],
        run_dir="shipped",
    )
    assert weights_of(tmp_path / "my_flow_dppo") == weights_of(shipped.path)
    rows = [row for row in read(shipped.folder.metrics) if "ratio/clip_fraction" in row]
    assert max(row["ratio/clip_fraction"] for row in rows) > 0
    assert names["run"].status == "done"
    assert len(names["images"]) == 2
    assert (tmp_path / "exported" / "README.md").is_file()
