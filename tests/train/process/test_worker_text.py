"""Whole runs on a language model, through the command."""

import json
import re
from pathlib import Path

import pytest
import yaml
from transformers import AutoModelForCausalLM

from rlfactory.cli import app
from rlfactory.config.problems import PlanError
from rlfactory.run.checkpoint.find import best_step, newest
from rlfactory.run.environment import read_environments
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.scores import Scores

DOCS = Path(__file__).parents[3] / "docs"
SHARE_OF_E = """
def share_of_e(prompts, completions):
    return [text.count("e") / max(len(text), 1) for text in completions]
def letters(prompts, completions):
    return [sum(c.isalpha() for c in text) for text in completions]
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("judge") / "judge.py"
    file.write_text(SHARE_OF_E)
    return file


@pytest.fixture(scope="module")
def tiny(gpt2_folder: Path, judge: Path) -> list[str]:
    return [
        "model=gpt2",
        f"model.path={gpt2_folder}",
        "reward=function",
        f"reward.function={judge}:share_of_e",
        "prompts.starts=[a, the, It was]",
        "hardware=cpu",
        "dynamics.length=16",
        "dynamics.stop_at_end=false",
        "evaluation.prompts=32",
        "evaluation.preview_every=2",
        "micro_batch=64",
        "sample_batch=64",
    ]


def train(run: Path, words: list[str], *more: str) -> int:
    return app.dispatch([f"run_dir={run}", *words, *more])


def varied(tiny: list[str]) -> str:
    """A reward that differs between any few samples."""
    function = next(word for word in tiny if word.startswith("reward.function="))
    return function.replace("share_of_e", "letters")


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory, tiny: list[str]) -> Path:
    """A run that learns to write the letter e."""
    run = tmp_path_factory.mktemp("runs") / "ppo"
    more = [
        "evaluation.every=5",
        "iterations=15",
        "epochs=4",
        "updates_per_iteration=4",
        "prompts_per_iteration=64",
        "optimizer.lr=3e-3",
        "ema.decay=0.5",
    ]
    assert train(run, tiny, *more, "regularizer.coefficient.value=0.0") == 0
    return run


@pytest.mark.slow
def test_it_learns_what_is_rewarded(learned: Path) -> None:
    folder = RunFolder(learned)
    before, after = (Scores.load(folder.evaluation(i)).means()["share_of_e"] for i in (0, 15))
    assert before < 0.05
    assert after > before + 0.2


def test_a_run_leaves_its_samples_as_tables(learned: Path) -> None:
    folder = RunFolder(learned)
    assert folder.read_status() == "done"
    table = (folder.samples / "eval_000015.md").read_text()
    assert table.count("\n| ") >= 24
    assert "It was" in table
    strip = (folder.samples / "strip.md").read_text()
    assert "| 0 |" in strip
    assert "| 15 |" in strip
    assert "schedule" not in folder.plan.read_text()
    assert folder.curves.is_file()
    page = folder.page.read_text(encoding="utf-8")
    assert "Samples before and after training" in page
    assert "<dt>Status</dt><dd>done, " in page
    (environment,) = read_environments(folder.environment)
    assert "torch" in environment.versions


def test_ratios_begin_at_one_and_every_metric_is_in_the_glossary(learned: Path) -> None:
    known = re.findall(r"`([a-z]+/[^`]+)`", (DOCS / "metrics.md").read_text())
    patterns = [re.compile(re.sub(r"<\w+>", r"[^/]+", name) + "$") for name in known]
    lines = [json.loads(line) for line in RunFolder(learned).metrics.read_text().splitlines()]
    names = {name for line in lines for name in line} - {"iteration", "time"}
    assert [name for name in names if not any(p.match(name) for p in patterns)] == []
    firsts = [line["ratio/first_max_dev"] for line in lines if "ratio/first_max_dev" in line]
    assert len(firsts) == 15
    assert max(firsts) < 1e-3


def test_a_checkpoint_opens_with_transformers_and_goes_on_writing(
    learned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = RunFolder(learned).checkpoints / "step_000015"
    assert AutoModelForCausalLM.from_pretrained(checkpoint) is not None
    words = ["--prompt", "the", "--count", "3", "--out", str(tmp_path)]
    assert app.dispatch(["sample", str(learned), *words]) == 0
    shown = capsys.readouterr().out
    assert "<|endoftext|>the\n" in shown
    assert shown.count("--- answer") == 3
    assert (tmp_path / "texts.md").read_text().count("**the**") == 3


def test_evaluate_repeats_what_the_run_measured(learned: Path) -> None:
    folder = RunFolder(learned)
    before = set(folder.evaluations.glob("*.json"))
    assert app.dispatch(["evaluate", str(learned)]) == 0
    (new,) = set(folder.evaluations.glob("*.json")) - before
    assert json.loads(new.read_text()) == json.loads(folder.evaluation(15).read_text())


def test_the_best_checkpoint_is_kept_and_can_be_used(learned: Path) -> None:
    folder = RunFolder(learned)
    means = {i: Scores.load(folder.evaluation(i)).means()["share_of_e"] for i in (5, 10, 15)}
    best = max(means, key=lambda step: means[step])
    assert best_step(folder.checkpoints) == best
    kept = {path.name for path in folder.checkpoints.glob("step_*")}
    assert kept == {f"step_{best:06d}", "step_000015"}
    before = set(folder.evaluations.glob("*.json"))
    assert app.dispatch(["evaluate", str(learned), "--best"]) == 0
    (new,) = set(folder.evaluations.glob("*.json")) - before
    assert Scores.load(new).means()["share_of_e"] == pytest.approx(means[best])
    new.unlink()


def test_a_run_without_a_best_checkpoint_says_so(tmp_path: Path, tiny: list[str]) -> None:
    words = ["iterations=1", "prompts_per_iteration=8", "checkpoint.best=false"]
    assert train(tmp_path / "run", tiny, *words, "evaluation.prompts=6") == 0
    words = ["sample", str(tmp_path / "run"), "--prompt", "a", "--best"]
    with pytest.raises(RunFolderError, match="no best checkpoint"):
        app.dispatch(words)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["algo=ppo", "regularizer.placement=reward", "regularizer.estimator=k1"],
        ["algo=ppo", "regularizer=none", "algo.lam=0.0", "algo.normalize=minibatch"],
        ["algo=rloo", "group_size=4", "prompts_per_iteration=2"],
        ["algo=grpo_token", "group_size=4", "prompts_per_iteration=2"],
        ["algo=ppo", "model.finetune=lora", "model.value_head=linear"],
        ["algo=ppo", "dynamics.top_k=20", "dynamics.log_prob_of=full", "target_kl=1e-9"],
    ],
    ids=str,
)
def test_every_way_of_learning_runs(tmp_path: Path, tiny: list[str], words: list[str]) -> None:
    small = ["iterations=2", "evaluation.prompts=6", varied(tiny)]
    if "prompts_per_iteration=2" not in words:
        small.append("prompts_per_iteration=8")
    assert train(tmp_path / "run", [*tiny, *words], *small) == 0
    lines = [
        json.loads(line) for line in RunFolder(tmp_path / "run").metrics.read_text().splitlines()
    ]
    assert lines[1]["grad/norm"] > 0
    assert lines[1]["ratio/first_max_dev"] < 1e-3


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(tmp_path: Path, tiny: list[str]) -> None:
    small = ["iterations=1", "prompts_per_iteration=8", "evaluation.prompts=6"]
    states = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert train(tmp_path / name, tiny, *small, f"seed={seed}") == 0
        path = RunFolder(tmp_path / name).checkpoints / "step_000001" / "weights.safetensors"
        states.append(path.read_bytes())
    assert states[0] == states[1]
    assert states[0] != states[2]


def test_a_steered_coefficient_moves_and_is_logged(tmp_path: Path, tiny: list[str]) -> None:
    words = [
        "regularizer=kl_token_adaptive",
        "regularizer.estimator=abs",
        "regularizer.coefficient.value=0.5",
        "regularizer.coefficient.target=1e-6",
        "regularizer.coefficient.horizon=100",
        "optimizer.lr=1e-2",
        "iterations=2",
        "prompts_per_iteration=8",
        "evaluation.prompts=6",
    ]
    assert train(tmp_path / "run", tiny, *words, varied(tiny)) == 0
    lines = [
        json.loads(line) for line in RunFolder(tmp_path / "run").metrics.read_text().splitlines()
    ]
    values = [line["kl/coefficient"] for line in lines if "kl/coefficient" in line]
    # the policy begins as its reference, at a divergence of exactly 0, below any target
    assert values[0] == pytest.approx(0.5 * (1 - 0.2 * 8 / 100))
    assert values[1] == pytest.approx(values[0] * (1 + 0.2 * 8 / 100))
    assert (
        yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["regularizer"][
            "coefficient"
        ]["value"]
        == 0.5
    ), "the configuration goes on describing how the run began"
    state = json.loads((tmp_path / "run/checkpoints/step_000002/state.json").read_text())
    assert state["iterations"] == 2
    assert state["coefficients"]["kl/coefficient"]["value"] == pytest.approx(
        0.5 * (1 - 0.2 * 8 / 100) * (1 + 0.2 * 8 / 100)
    )


REFUSALS = [
    (["regularizer.estimator=k1"], "regularizer.estimator"),
    (["algo=nft"], "algo"),
    (["regularizer=kl_v"], "regularizer"),
    (["reward=shapes"], "reward"),
    (["algo=rloo", "group_size=1"], "group_size"),
    (["regularizer.coefficient.value=-1"], "regularizer.coefficient.value"),
    (["regularizer.coefficient._target_=os.system"], "regularizer.coefficient._target_"),
    (["dynamics.top_p=0"], "dynamics.top_p"),
]


@pytest.mark.parametrize(("words", "key"), REFUSALS, ids=str)
def test_what_can_not_be_is_said_before_anything_begins(
    refused, tiny: list[str], words: list[str], key: str
) -> None:
    typed = [w for w in tiny if not (words[0].startswith("reward=") and w.startswith("reward"))]
    shown = refused("check", *typed, *words)
    assert f"error: {key}: " in shown


def test_a_failing_judge_ends_the_run_and_keeps_the_folder(
    tmp_path: Path, tiny: list[str], judge: Path
) -> None:
    (tmp_path / "bad.py").write_text("def bad(prompts, completions):\n    raise OSError('gone')\n")
    words = [w for w in tiny if not w.startswith("reward.function")]
    assert train(tmp_path / "run", [*words, f"reward.function={tmp_path}/bad.py:bad"]) == 1
    folder = RunFolder(tmp_path / "run")
    assert folder.read_status() == "failed"
    assert "gone" in folder.log.read_text()


def test_a_judge_that_fails_later_costs_nothing_of_what_was_learned(
    tmp_path: Path, tiny: list[str]
) -> None:
    file = tmp_path / "tired.py"
    file.write_text(
        "calls = []\n"
        "def tired(prompts, completions):\n"
        "    calls.append(1)\n"
        "    scores = [float(len(text)) for text in completions]\n"
        "    return scores if len(calls) < 4 else scores[1:]\n"
    )
    words = [w for w in tiny if not w.startswith(("reward.function", "evaluation.preview"))]
    more = ["prompts_per_iteration=8", "evaluation.prompts=6", f"reward.function={file}:tired"]
    assert train(tmp_path / "run", words, *more) == 1
    folder = RunFolder(tmp_path / "run")
    assert "there came 7 of them; wanted are 8 numbers" in folder.log.read_text()
    kept = newest(folder.checkpoints)
    assert kept is not None
    assert kept.name == "step_000002"


def test_a_prompt_without_room_is_found_before_the_first_iteration(
    tmp_path: Path, tiny: list[str]
) -> None:
    (tmp_path / "long.txt").write_text("short\n" * 50 + "very long " * 7 + "\n")
    words = [w for w in tiny if not w.startswith("prompts.starts")]
    more = ["prompts=file", f"prompts.path={tmp_path}/long.txt"]
    with pytest.raises(PlanError, match="'very long"):
        train(tmp_path / "run", words, *more)
    assert not (tmp_path / "run").exists()
