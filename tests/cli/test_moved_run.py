"""A run in another folder than it was made in, whose model, prompts and reward file have moved."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.cli import app, run_commands
from rlfactory.config.problems import PlanError
from rlfactory.run.folder import RunFolder
from rlfactory.utils.current_folder import TRUST

REWARD = """
def letters(prompts, completions):
    return [sum(c.isalpha() for c in text) for text in completions]
"""


@pytest.fixture(scope="module")
def home(undrawn: None, gpt2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a prompt file, a reward, a finished run and a paused one of them."""
    home = tmp_path_factory.mktemp("home")
    shutil.copytree(gpt2_folder, home / "model")
    (home / "r.py").write_text(REWARD)
    (home / "p.txt").write_text("\n".join(f"prompt {i}" for i in range(40)))
    words = [
        *("model=gpt2", "model.path=model", "hardware=cpu", "algo=grpo_token"),
        *("reward=function", "reward.function=r.py:letters", "prompts=file", "prompts.path=p.txt"),
        *("iterations=2", "prompts_per_iteration=2", "group_size=2", "updates_per_iteration=1"),
        *("dynamics.length=8", "evaluation.prompts=4", "checkpoint.every=1"),
        *("checkpoint.keep=null", "learning_rate.final_scale=1"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert app.dispatch([*words, "run_dir=whole"]) == 0
        assert app.dispatch([*words, "run_dir=short", "iterations=1"]) == 0
    return home


@pytest.fixture(scope="module")
def moved(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another folder, with the runs and the model; the files of the first one are gone."""
    there = tmp_path_factory.mktemp("there")
    for name in ("whole", "short", "model"):
        shutil.copytree(home / name, there / name)
    for name in ("model", "r.py", "p.txt"):
        (home / name).rename(home / f"former_{name}")
    return there


@pytest.fixture(autouse=True)
def _elsewhere(moved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(moved)


@pytest.mark.slow
def test_it_resumes_with_more_iterations_to_the_same_bits(
    moved: Path, traces: Callable[[Path], dict[str, Any]]
) -> None:
    assert app.dispatch(["resume", "short", "--until", "2", "model.path=model"]) == 0
    short, whole = traces(moved / "short"), traces(moved / "whole")
    last = {name for name in whole if name.startswith("step_000002") or "000002.json" in name}
    assert last
    for trace in (short, whole):
        del trace["step_000002/state"]["timely"]  # a last checkpoint is no scheduled one
    assert {name: short[name] for name in last} == {name: whole[name] for name in last}
    log = (moved / "short" / "log.txt").read_text()
    assert "p.txt is gone, so the run's copy is read" in log
    assert app.dispatch(["resume", "short"]) == 0, "the model's place is remembered"


@pytest.mark.slow
def test_a_typed_prompt_needs_neither_prompts_nor_reward_and_nothing_is_overwritten(
    moved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(moved / "whole", run)
    shutil.rmtree(run / "inputs")
    words = ["sample", str(run), "--prompt", "the", "model.path=model"]
    assert app.dispatch([*words, "--seed", "3", "--temperature", "0.5"]) == 0
    assert f"1 sample in {run / 'samples' / 'drawn_001'}" in capsys.readouterr().out
    first = (run / "samples" / "drawn_001" / "samples.json").read_text()
    content = json.loads(first)
    assert (content["seed"], content["temperature"]) == (3, 0.5)
    assert [row["prompt"] for row in content["samples"]] == ["the"]
    assert app.dispatch([*words, "--count", "2"]) == 0
    assert "2 samples in" in capsys.readouterr().out
    assert (run / "samples" / "drawn_001" / "samples.json").read_text() == first
    assert (run / "samples" / "drawn_002" / "texts.md").is_file()


def test_on_another_machine_the_word_that_a_refusal_types_works(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was refused itself, by each command; so were folders with `=`, and code below commas."""
    run = tmp_path / "a=b, c {d}" / "whole"
    shutil.copytree(moved / "whole", run)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    for command, flags in {"evaluate": [], "verify": [], "export": ["--to", "exported"]}.items():
        monkeypatch.setenv(TRUST, "")
        words = [command, str(run), *flags, "model.path=model"]
        with pytest.raises(PlanError, match="code of its own") as refused:
            app.dispatch(words)
        _, _, typed = refused.value.problems[0].message.partition("then type ")
        assert app.dispatch([*words, *shlex.split(typed)]) == 0


def test_prompts_of_a_file_and_greedy_texts(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.txt").write_text("one\ntwo\n")
    base = ["sample", "whole", "model.path=model", "--prompts", str(tmp_path / "mine.txt")]
    texts = []
    for seed in ("1", "2"):
        out = tmp_path / seed
        words = [*base, "--temperature", "0", "--seed", seed, "--out", str(out)]
        assert app.dispatch(words) == 0
        texts.append(json.loads((out / "samples.json").read_text())["samples"])
    assert [row["prompt"] for row in texts[0]] == ["one", "two"]
    assert texts[0] == texts[1], "the most likely tokens, whatever the seed"


def test_prompts_of_a_file_are_in_the_column_of_the_run(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = run_commands.require_run(moved / "whole")
    config = {**known, "prompts": {**known["prompts"], "column": "Question"}}
    drawn: list[Any] = []

    def sample(run: Path, prompts: list[str], *_: Any) -> int:
        drawn.append(prompts)
        return 0

    monkeypatch.setattr(run_commands, "require_run", lambda run: config)
    monkeypatch.setattr("rlfactory.tools.sample.sample", sample)
    for text in ("Question,answer\none,1\ntwo,2\n", "prompt\none\ntwo\n"):
        (tmp_path / "asked.csv").write_text(text)
        words = ["sample", "whole", "model.path=model", "--prompts", str(tmp_path / "asked.csv")]
        app.dispatch(words)
    assert drawn == [["one", "two"]] * 2


def test_it_is_evaluated_greedily(moved: Path) -> None:
    for seed in (1, 2):
        words = ["evaluate", "whole", "model.path=model", "dynamics.temperature=0", f"seed={seed}"]
        assert app.dispatch(words) == 0
    dated = sorted(RunFolder(moved / "whole").evaluations.glob("2*.json"))
    one, other = (json.loads(path.read_text()) for path in dated)
    assert one["scores"] == other["scores"]
    assert one["separate"], "a tenth of the file's 40 prompts is held out"


def test_it_is_exported(tmp_path: Path) -> None:
    assert app.dispatch(["export", "whole", "--to", str(tmp_path / "out"), "model.path=model"]) == 0
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sample", "RUN", "--prompt", "x"], "is gone; type model.path=FOLDER, where it is now"),
        (["export", "RUN", "--to", "out"], "is gone; type model.path=FOLDER"),
        (["evaluate", "RUN"], "is gone; type model.path=FOLDER"),
        (["resume", "RUN"], "is gone; type model.path=FOLDER"),
        (["sample", "RUN", "--prompt", "x", "model.path=nowhere"], "nowhere does not exist"),
        (
            ["sample", "RUN", "--prompt", "x", "seed=3"],
            "is no path of this run",
        ),
        (
            ["sample", "RUN", "--prompt", "x", "iterations=3"],
            "iterations: is no path of this run; what can be typed is",
        ),
        (["sample", "RUN", "--prompt", "x", "--temperature", "-1"], "allowed are 0 or more"),
        (["sample", "RUN"], "--prompt"),
        (["evaluate", "RUN", "optimizer.lr=1"], "can't be changed in an evaluation"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_is_missing_or_cannot_be_changed_is_said(
    home: Path, refused: Callable[..., str], words: list[str], said: str
) -> None:
    run = str(home / "whole")
    shown = refused(*[run if word == "RUN" else word for word in words])
    assert said in shown
