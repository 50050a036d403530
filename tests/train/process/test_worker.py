"""Whole runs through the command, on the model that ships and the smallest of budgets."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
import yaml
from diffusers import SD3Transformer2DModel, StableDiffusion3Pipeline
from PIL import Image

from rlfactory.cli import app
from rlfactory.cli.resume import create_run
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.reward.jpeg import Compressibility
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.train import session as session_module
from rlfactory.train.checkpointing import savepoint
from rlfactory.train.process import worker
from rlfactory.train.process.run_arguments import RunArguments
from rlfactory.train.process.signals import Stop
from rlfactory.train.process.worker import requeue, train_in_python
from rlfactory.utils.console import print_status
from rlfactory.utils.errors import TrainingError

DOCS = Path(__file__).parents[3] / "docs"
TINY = [
    "hardware=cpu",
    "iterations=2",
    "prompts_per_iteration=2",
    "group_size=2",
    "schedule.steps=3",
    "evaluation.prompts=4",
    "evaluation.grid=4",
    "evaluation.preview_every=1",
]
"""A run of seconds."""


def train(run: Path, *words: str) -> int:
    return app.dispatch([f"run_dir={run}", *TINY, *words])


def new_run(run: Path) -> Path:
    """A run folder in which nothing has been trained."""
    create_run(plan_from_words(f"run_dir={run}", *TINY), "")
    return run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "nft"
    assert train(run, "model.finetune=lora") == 0
    return run


@pytest.mark.slow
def test_a_run_leaves_what_the_readme_lists(finished: Path) -> None:
    folder = RunFolder(finished)
    assert folder.read_status() == "done"
    assert yaml.safe_load(folder.config.read_text())["choices"]["algo"] == "nft"
    assert "nft" in folder.plan.read_text()
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1, 2, 2]
    assert "before" in folder.summary.read_text()
    for picture in (folder.curves, folder.strip, folder.grid(0), folder.grid(2)):
        assert min(Image.open(picture).size) > 100
    assert len(list(folder.evaluations.glob("*.json"))) == 2


def test_every_metric_is_in_the_glossary(finished: Path) -> None:
    known = re.findall(r"`([a-z]+/[^`]+)`", (DOCS / "metrics.md").read_text())
    patterns = [re.compile(re.sub(r"<\w+>", r"[^/]+", name) + "$") for name in known]
    lines = [json.loads(line) for line in RunFolder(finished).metrics.read_text().splitlines()]
    names = {name for line in lines for name in line} - {"iteration", "time"}
    assert names
    assert [name for name in names if not any(p.match(name) for p in patterns)] == []


def test_a_checkpoint_opens_with_diffusers(finished: Path) -> None:
    checkpoint = RunFolder(finished).checkpoints / "step_000002"
    pipe = StableDiffusion3Pipeline.from_pretrained(
        zoo_path("tiny_sd3"), dtype={"default": torch.float32}
    )
    pipe.load_lora_weights(checkpoint)
    image = pipe(
        "a red circle",
        num_inference_steps=2,
        guidance_scale=1.0,
        height=64,
        width=64,
        max_sequence_length=16,
    ).images[0]
    assert image.size == (64, 64)


@pytest.mark.parametrize("weights", ["ema", "policy", "reference"])
def test_sample_draws_with_each_weight_set(finished: Path, tmp_path: Path, weights: str) -> None:
    words = ["--prompt", "a red circle", "--count", "2", "--out", str(tmp_path)]
    assert app.dispatch(["sample", str(finished), *words, "--weights", weights]) == 0
    assert len(list(tmp_path.glob("0*.png"))) == 2
    assert (tmp_path / "grid.png").is_file()


@pytest.mark.slow
def test_evaluate_repeats_what_the_run_measured(finished: Path) -> None:
    folder = RunFolder(finished)
    before = set(folder.evaluations.glob("*.json"))
    assert app.dispatch(["evaluate", str(finished)]) == 0
    (new,) = set(folder.evaluations.glob("*.json")) - before
    assert json.loads(new.read_text()) == json.loads(folder.evaluation(2).read_text())


NFT = ["algo=nft", "regularizer=kl_v"]
GRPO = ["algo=grpo", "regularizer=kl_gaussian", "reward=compressibility"]
WINDOWED = ["algo=grpo", "window=random_contiguous", "reward=compressibility"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "finetune"),
    [
        pytest.param(NFT, "full"),
        pytest.param(GRPO, "lora"),
        # lora and nft: the run that is `finished`
        *(
            pytest.param(words, form, marks=pytest.mark.whole)
            for words, form in (
                (NFT, "lora"),
                (GRPO, "full"),
                (WINDOWED, "lora"),
                (WINDOWED, "full"),
            )
        ),
    ],
)
def test_every_algorithm_trains_in_either_form(
    tmp_path: Path, words: list[str], finetune: str
) -> None:
    run = tmp_path / "run"
    assert train(run, *words, f"model.finetune={finetune}", "iterations=1") == 0
    lines = [json.loads(line) for line in RunFolder(run).metrics.read_text().splitlines()]
    assert lines[1]["grad/norm"] > 0
    if "algo=grpo" in words:
        assert lines[1]["ratio/first_max_dev"] < 1e-6
    if finetune == "full":
        exported = RunFolder(run).checkpoints / "step_000001" / "transformer"
        assert SD3Transformer2DModel.from_pretrained(exported) is not None


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    weights = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert train(tmp_path / name, f"seed={seed}", "iterations=1") == 0
        path = RunFolder(tmp_path / name).checkpoints / "step_000001" / "weights.safetensors"
        weights.append(path.read_bytes())
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


@pytest.mark.slow
def test_a_reward_that_raises_fails_the_run_and_keeps_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the judge is gone")

    monkeypatch.setattr(Compressibility, "score", broken)
    assert train(tmp_path / "run", "algo=grpo", "reward=compressibility") == 1
    folder = RunFolder(tmp_path / "run")
    assert folder.read_status() == "failed"
    assert "the judge is gone" in folder.log.read_text()
    assert "Traceback" in folder.log.read_text()


@pytest.mark.slow
def test_a_full_disk_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, needed: int) -> None:
        raise RunFolderError(f"{path} has 1 kB free, and {needed} bytes are needed")

    monkeypatch.setattr(savepoint, "enough_space", full)
    assert train(tmp_path / "run", "iterations=1") == 1
    assert "are needed" in capsys.readouterr().err
    assert list(RunFolder(tmp_path / "run").checkpoints.iterdir()) == []
    assert not RunFolder(tmp_path / "run").evaluation(0).exists()


@pytest.mark.slow
def test_known_prompts_are_encoded_once_for_all_runs(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("a red circle\na blue star\n")
    words = ["prompts=file", f"prompts.path={tmp_path}/prompts.txt", "reward=compressibility"]
    words += ["algo=grpo", f"prompt_cache={tmp_path}/cache", "iterations=1"]
    for name, new in (("a", True), ("b", False)):
        assert train(tmp_path / name, *words) == 0
        said = RunFolder(tmp_path / name).log.read_text()
        assert ("2 of 2 prompts are encoded" in said) is new
        assert "loaded again" not in said
    assert len(list((tmp_path / "cache").rglob("*.safetensors"))) == 2
    drawn = ["--prompt", "something new", "--out", str(tmp_path / "drawn")]
    assert app.dispatch(["sample", str(tmp_path / "b"), *drawn]) == 0


@pytest.mark.slow
def test_ctrl_c_leaves_a_usable_run_folder(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [f"run_dir={run}", *TINY, "iterations=500"]
    source = str(Path(__file__).parents[3] / "src")
    process = subprocess.Popen(
        [sys.executable, "-m", "rlfactory.cli", *words],
        env=os.environ | {"PYTHONPATH": source},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # whoever starts tests in the background has them ignore what Ctrl-C sends
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    metrics, deadline = RunFolder(run).metrics, time.monotonic() + 120
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert RunFolder(run).read_status() == "interrupted"
    assert str(run) in err
    assert "Traceback" not in out + err
    for path in (RunFolder(run).curves, RunFolder(run).strip, RunFolder(run).summary):
        assert path.is_file()
    assert (
        app.dispatch(["sample", str(run), "--prompt", "a star", "--out", str(tmp_path / "new")])
        == 0
    )


def test_memory_that_runs_out_is_told_once_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_out(self: object) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(session_module.Session, "run", run_out)
    assert train(tmp_path / "run") == 1
    folder = RunFolder(tmp_path / "run")
    said = capsys.readouterr().err
    assert "error: out of memory; the plan expected about" in said
    assert "What helps most, in this order: " in said
    assert "Traceback" not in said
    assert "OutOfMemoryError" in folder.log.read_text()
    assert folder.read_status() == "failed"


def test_a_disk_that_fills_outside_of_any_block_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A figure at the end of a run, whose library names no file."""
    # raised in a library: of code of the user's own its line is said first
    full = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(session_module.Session, "run", full)
    run = tmp_path / "run"
    assert train(run) == 1
    said = capsys.readouterr().err
    assert "error: a file of the run could not be written: No space left on device" in said
    assert f"make room; then type: rlfactory resume {run}" in said


def test_a_callers_settings_of_torch_do_not_reach_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def note(self: object) -> str:
        seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        return "done"

    run = tmp_path / "run"
    monkeypatch.setattr(session_module.Session, "run", note)
    with torch.no_grad(), torch.autocast("cpu"):
        train_in_python(new_run(run))
        assert torch.is_autocast_enabled("cpu")
    assert seen == [(True, False)]


def test_a_temporary_run_that_is_stopped_says_nothing_of_resuming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(self: session_module.Session) -> str:
        with self.stop.wished():
            os.kill(os.getpid(), signal.SIGINT)
        return "interrupted"

    monkeypatch.setattr(session_module.Session, "run", stop)
    arguments = RunArguments(new_run(tmp_path / "run"), temporary=True)
    assert worker.run_main_process(arguments) == 130
    assert "resume" not in capsys.readouterr().err


def test_an_error_leaves_the_settings_of_a_python_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        assert torch.are_deterministic_algorithms_enabled()
        raise TrainingError("no")

    monkeypatch.setattr(session_module.Session, "run", fail)
    run = tmp_path / "run"
    create_run(plan_from_words(f"run_dir={run}", *TINY, "hardware.deterministic=true"), "")
    try:
        with pytest.raises(TrainingError, match="no"):
            train_in_python(run)
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


Slurm = Callable[[str], Path]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A `scontrol` of these lines, that writes down its arguments."""

    def make(lines: str) -> Path:
        script = tmp_path / "scontrol"
        script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n{lines}\n')
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        return tmp_path / "asked"

    return make


def test_a_preempted_job_is_requeued_by_its_number(slurm: Slurm) -> None:
    asked = slurm("exit 0")
    requeue("42")
    assert asked.read_text() == "requeue 42\n"


def test_the_refusal_of_a_requeue_is_reported(slurm: Slurm) -> None:
    slurm("echo 'Requested operation is presently disabled' >&2; exit 1")
    with pytest.raises(RuntimeError, match="requeue 42 failed: Requested operation is presently"):
        requeue("42")


def test_a_requeue_needs_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="No such file"):
        requeue("42")


@pytest.mark.parametrize(
    ("saved", "said"),
    [
        (
            [],
            "Interrupted before the first checkpoint: nothing is saved. To begin: rlfactory resume",
        ),
        (["step_000001"], "Interrupted; the run so far is saved in"),
    ],
)
def test_an_interruption_says_what_is_saved(
    saved: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in saved:
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    stop = Stop()
    stop.requested = signal.SIGINT
    config = {"checkpoint": {"requeue": False}}
    assert worker.report_end(RunFolder(tmp_path), "interrupted", stop, config) == 130
    assert said in " ".join(capsys.readouterr().err.split())


def test_interruptions_while_a_run_ends_hide_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C once more is ignored while the run says what is saved."""

    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)

    def told(message: str) -> None:
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        print_status(message)

    monkeypatch.setattr(worker, "build_hardware", interrupted)
    monkeypatch.setattr(worker, "print_status", told)
    assert train(tmp_path / "run") == 130
    assert "nothing is saved. To begin: rlfactory resume" in capsys.readouterr().err


def test_an_interrupted_import_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that is interrupted while it imports raises an error of its own."""

    def build(*_: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt as error:
            raise RuntimeError("Failed to import a library") from error

    monkeypatch.setattr(worker, "build_hardware", build)
    assert train(tmp_path / "run") == 130
    assert RunFolder(tmp_path / "run").read_status() == "interrupted"
    assert "Failed to import" not in capsys.readouterr().err
