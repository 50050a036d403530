"""A run in several attempts is the run in one, to the last bit."""

import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rlfactory.config.schema.targets import instantiate
from rlfactory.report.read import read_run
from rlfactory.reward.base import Reward, Samples
from rlfactory.run.checkpoint import save as checkpoint_module
from rlfactory.run.disk_errors import DiskError
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.run.loggers import NoLogger
from rlfactory.run.scores import Scores
from rlfactory.train import build as build_module
from rlfactory.train.build import instantiate_group
from rlfactory.train.evaluation.evaluation_schedule import EvaluationSchedule
from rlfactory.train.learner import Learner
from rlfactory.train.process.signals import Stop
from rlfactory.train.scoring import build as scoring_build
from rlfactory.train.session import Session
from rlfactory.train.trainer import Trainer

IMAGE_PAIRS = Path(__file__).parents[1] / "data" / "image_pairs.jsonl"
SMALL = [
    "evaluation.prompts=4",
    "evaluation.grid=4",
    "evaluation.every=2",
    "evaluation.preview_every=1",
    "checkpoint.every=2",
    "checkpoint.keep=null",
    "iterations=5",
]
IMAGES = {
    "nft": ["algo=nft", "regularizer=kl_v"],
    "awm": ["algo=awm", "regularizer=kl_ema"],
    "vgrpo": ["algo=vgrpo"],
    "crd": ["algo=crd", "prompts_per_iteration=4"],
    "dgpo": ["algo=dgpo", "regularizer=kl_v", "prompts_per_iteration=4"],
    "diffusion_dpo": ["algo=diffusion_dpo", "epochs=2", "prompts_per_iteration=4"],
    "diffusion_dpo_offline": [
        *("algo=diffusion_dpo_offline", "prompts=file", f"prompts.path={IMAGE_PAIRS}"),
        *("epochs=2", "prompts_per_iteration=4", "group_size=2"),
    ],
    "grpo": ["algo=grpo", "regularizer=kl_gaussian", "window=random_contiguous"],
    "grpo_guard": ["algo=grpo_guard", "epochs=2"],
    "ddpo": ["algo=ddpo", "advantage.min_count=2"],
    "ddpo_sf": ["algo=ddpo_sf", "updates_per_iteration=1", "advantage.min_count=2"],
    "steered": [
        *("algo=nft", "regularizer=kl_v", "optimizer.betas=[0.5,0.9]"),
        "regularizer.coefficient._target_=rlfactory.regularizer.coefficient.Proportional",
        "regularizer.coefficient.value=0.5",
        *("+regularizer.coefficient.target=0.01", "+regularizer.coefficient.horizon=50"),
        *("ema.schedule=linear", "ema.warmup=20", "learning_rate.final_scale=0.1"),
        *("old.update=step", "old.interval=3", "old.decay=0.5", "stop.reward=9", "stop.window=3"),
    ],
}


class KilledError(BaseException):
    """What nobody catches, as a kill is not."""


class Brightness(Reward):
    """How bright a picture is, and how much of it was seen so far, which is to survive."""

    media = "images"
    main = "shapes"

    def __init__(self) -> None:
        self.seen = 0.0

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        assert samples.images is not None
        return {"shapes": samples.images.float().mean((1, 2, 3)) / 255}

    def normalise(
        self, scores: Mapping[str, torch.Tensor], groups: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        self.seen += float(scores["shapes"].sum())
        return {"shapes": scores["shapes"] * (1 + self.seen)}

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.seen = state["seen"]


Start = Callable[..., Session]


@pytest.fixture
def start(
    linear: Callable[..., Any],
    planned: Callable[..., Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> Start:
    """Begins or goes on with a run of the two-number model, whatever generators stand at."""

    def begin(path: Path, *words: str, **options: Any) -> Session:
        model, ours = linear(), {"reward": Brightness()}
        monkeypatch.setattr(model, "export", lambda to, values: (to / "exported").write_text("x"))

        def make_ours(config: object, group: str, **available: object) -> object:
            return {**ours, "model": model}.get(group) or instantiate_group(
                config, group, **available
            )

        monkeypatch.setattr(build_module, "instantiate_group", make_ours)
        monkeypatch.setattr(
            scoring_build,
            "instantiate",
            lambda node, key, **o: ours.get(key) or instantiate(node, key, **o),
        )
        for garble in (torch.manual_seed, np.random.seed, random.seed):
            garble(random.SystemRandom().randrange(2**32))
        folder = RunFolder(path) if path.exists() else RunFolder.create(path)
        config = {**planned(*SMALL, *words), "run_dir": str(path), "choices": {}}
        folder.config.write_text(yaml.safe_dump(config))
        return Session(config, folder, **options)

    return begin


Traces = Callable[[Path], dict[str, Any]]


@pytest.mark.slow
def test_evaluations_of_prompt_sets_are_resumed_bit_for_bit(start: Start, tmp_path: Path) -> None:
    words = ["algo=nft", "iterations=2", "evaluation.every=1", "checkpoint.every=1"]
    words += ["eval_sets.of=[shapes,preferences]", "eval_sets.counts.preferences=3"]
    words += ["eval_sets.rewards.preferences=[compressibility]"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert start(whole, *words).run() == "done"
    assert start(parts, *words, until=1).run() == "paused"
    assert start(parts, *words).run() == "done"
    for name, score in {"shapes": "shapes", "preferences": "compressibility"}.items():
        ours, theirs = RunFolder(whole).prompt_set(name), RunFolder(parts).prompt_set(name)
        for done in range(3):
            assert ours.evaluation(done).read_text() == theirs.evaluation(done).read_text()
        assert score in Scores.load(ours.evaluation(2)).values
        assert read_run(parts).better[f"{name}/{score}"] == "higher"
        assert f"eval/{name}/{score}/mean" in read_run(parts).series


@pytest.fixture(scope="module")
def whole() -> dict[str, dict[str, Any]]:
    """What uninterrupted runs left."""
    return {}


def uninterrupted(
    whole: dict[str, Any], start: Start, traces: Traces, folder: Path, name: str
) -> dict[str, Any]:
    if name not in whole:
        assert start(folder / "whole", *IMAGES[name]).run() == "done"
        whole[name] = traces(folder / "whole")
    found: dict[str, Any] = whole[name]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", IMAGES)
def test_stopped_after_any_iteration_it_goes_on_bit_for_bit(
    name: str, start: Start, traces: Traces, tmp_path: Path, whole: dict[str, Any]
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, name)
    for stop in range(1, 5):
        assert start(tmp_path / "parts", *IMAGES[name], until=stop).run() == "paused"
    assert start(tmp_path / "parts", *IMAGES[name]).run() == "done"
    found = traces(tmp_path / "parts")
    # each pause has its checkpoint
    extra = {
        key for key in found if key.startswith(("checkpoints", "step_")) and key not in expected
    }
    assert {key: found[key] for key in found.keys() - extra} == expected


def _at(
    count: int,
    function: Callable[..., Any],
    after: bool = False,
    error: BaseException | type[BaseException] = KilledError,
) -> Callable[..., Any]:
    """A function whose call of that number is a kill, or an error."""
    calls: list[int] = []

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) == count and not after:
            raise error
        result = function(*arguments, **named)
        if len(calls) == count:
            raise error
        return result

    return call


FAULTS = pytest.mark.faults
KILLS = {
    "while sampling": (Trainer, "sample", 4, False),
    "between updates": (Learner, "_update_weight_sets", 5, True),
    "while saving": (checkpoint_module, "write_manifest", 2, False),
    "after the iteration": (EvaluationSchedule, "evaluate_if_due", 4, False),
}
MORE_KILLS = {
    "in the middle of an update": (Learner, "_update_weight_sets", 5, False),
    "after learning": (Trainer, "_reason_to_stop", 3, True),
    "before the rename": (checkpoint_module, "write_manifest", 2, True),
    "after an evaluation": (EvaluationSchedule, "evaluate", 2, True),
    "in the last evaluation": (EvaluationSchedule, "evaluate", 4, False),
    "before anything was saved": (Learner, "_update", 2, True),
}


KILLED = [
    *((name, moment) for name in IMAGES for moment in KILLS),
    *((name, moment) for name in ("steered", "ddpo") for moment in MORE_KILLS),
]


def marks_of(number: int, name: str, moment: str) -> tuple[Any, ...]:
    """Each moment is met by `steered`, and each algorithm by one moment in turn."""
    if (name, moment) == ("steered", "between updates"):
        return ()
    row, column = divmod(number, len(KILLS))
    is_kept = name == "steered" or row < len(IMAGES) and column == row % len(KILLS)
    return (FAULTS,) if is_kept else (FAULTS, pytest.mark.whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "moment"),
    # one is of the fast suite: `steered` holds all that can be held, and meets every moment
    [pytest.param(*pair, marks=marks_of(number, *pair)) for number, pair in enumerate(KILLED)],
)
def test_killed_at_any_moment_it_ends_bit_for_bit(
    name: str,
    moment: str,
    start: Start,
    traces: Traces,
    tmp_path: Path,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, name)
    owner, attribute, count, after = (KILLS | MORE_KILLS)[moment]
    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, _at(count, getattr(owner, attribute), after))
        session = start(tmp_path / "parts", *IMAGES[name])
        with pytest.raises(KilledError):
            session.run()
    assert start(tmp_path / "parts", *IMAGES[name]).run() == "done"
    assert traces(tmp_path / "parts") == expected


@pytest.mark.slow
def test_an_evaluation_that_a_checkpoint_knows_of_is_not_made_twice(
    start: Start,
    traces: Traces,
    tmp_path: Path,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "nft")
    words = [*IMAGES["nft"], "checkpoint.every=0"]  # that of the best evaluation alone
    with monkeypatch.context() as patched:
        patched.setattr(Learner, "_update_weight_sets", _at(13, Learner._update_weight_sets))
        session = start(tmp_path / "parts", *words)
        with pytest.raises(KilledError):
            session.run()
    again = start(tmp_path / "parts", *words)
    assert again.evaluation.last_evaluated == again.done >= 2
    assert again.run() == "done"
    assert traces(tmp_path / "parts")["metrics"] == expected["metrics"]


def test_what_is_damaged_is_named_and_done_again(
    start: Start,
    traces: Traces,
    tmp_path: Path,
    whole: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "nft")
    start(tmp_path / "parts", *IMAGES["nft"], until=4).run()
    place = RunFolder(tmp_path / "parts").checkpoints
    data = bytearray((place / "step_000004" / "optimizer.safetensors").read_bytes())
    data[-1] ^= 1
    (place / "step_000004" / "optimizer.safetensors").write_bytes(data)
    assert start(tmp_path / "parts", *IMAGES["nft"]).run() == "done"
    said = capsys.readouterr().out
    assert "step_000004 is damaged: optimizer.safetensors has other content" in said
    assert "resuming after iteration 2 of 5" in said
    assert (place / "damaged_step_000004").is_dir()
    assert traces(tmp_path / "parts") == expected


def test_where_all_are_damaged_it_begins_again(
    start: Start, traces: Traces, tmp_path: Path, whole: dict[str, Any]
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "nft")
    start(tmp_path / "parts", *IMAGES["nft"], until=4).run()
    for manifest in tmp_path.glob("parts/checkpoints/*/MANIFEST.json"):
        manifest.unlink()
    assert start(tmp_path / "parts", *IMAGES["nft"]).run() == "done"
    assert traces(tmp_path / "parts") == expected


def test_another_configuration_is_refused_unless_it_is_forced(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run", until=2).run()
    with pytest.raises(RunFolderError, match=r"\(optimizer\.lr: 0\.03 -> 0\.5\); add --force"):
        start(tmp_path / "run", "optimizer.lr=0.5")
    forced = start(tmp_path / "run", "optimizer.lr=0.5", force=True)
    assert forced.run() == "done"
    assert forced.components.optimizer.param_groups[0]["lr"] == 0.5


def test_a_run_that_met_its_threshold_stays_ended(start: Start, tmp_path: Path) -> None:
    words = ["stop.reward=0", "stop.patience=3", "algo=nft"]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EvaluationSchedule, "evaluate", _at(3, EvaluationSchedule.evaluate))
        session = start(tmp_path / "run", *words)
        with pytest.raises(KilledError):
            session.run()
    again = start(tmp_path / "run", *words)
    assert again.trainer.ended is not None
    assert again.run() == "done"
    assert again.done == 3


def test_a_run_that_met_its_threshold_goes_on_where_that_is_changed(
    start: Start, tmp_path: Path
) -> None:
    words = ["stop.reward=0", "stop.patience=3", "algo=nft"]
    first = start(tmp_path / "run", *words)
    assert first.run() == "done"
    assert first.done == 3
    again = start(tmp_path / "run", *words, "stop.reward=1000", force=True)
    assert again.trainer.ended is None
    again.run()
    assert again.done == again.trainer.budget.iterations > 3


def test_minutes_of_training_count_on(start: Start, tmp_path: Path) -> None:
    first = start(tmp_path / "run", until=2)
    first.run()
    again = start(tmp_path / "run")
    assert 0 < again.trainer.seconds <= first.trainer.elapsed
    assert again.trainer.elapsed == again.trainer.seconds, "what is not training does not count"


@pytest.mark.parametrize(
    ("owner", "attribute", "count", "snapshot", "saved"),
    [
        (Brightness, "normalise", 3, False, ["step_000002"]),
        (Learner, "_update_weight_sets", 8, True, ["step_000002"]),
        (Learner, "_update_weight_sets", 8, False, []),
    ],
)
def test_an_error_loses_no_iteration_and_saves_no_half_one(
    owner: type,
    attribute: str,
    count: int,
    snapshot: bool,
    saved: list[str],
    start: Start,
    traces: Traces,
    whole: dict[str, Any],
    tmp_path: Path,
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "nft")
    words = [*IMAGES["nft"], "checkpoint.every=0", "checkpoint.best=false"]
    words.append(f"checkpoint.snapshot={str(snapshot).lower()}")
    with pytest.MonkeyPatch.context() as patched:
        failing = _at(count, getattr(owner, attribute), error=OSError("gone"))
        patched.setattr(owner, attribute, failing)
        with pytest.raises(OSError, match="gone"):
            start(tmp_path / "run", *words).run()
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == saved
    assert start(tmp_path / "run", *words).run() == "done"
    assert ends(traces(tmp_path / "run")) == ends(expected)


class Countdown(Stop):
    """A preemption at the small step of that number; `steps` counts them."""

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.steps, self.at = 0, at

    def leave(self) -> None:
        self.steps += 1
        if self.steps == self.at:
            self.asked = signal.SIGTERM
        super().leave()


def ends(found: dict[str, Any]) -> dict[str, Any]:
    """What a run comes to, wherever it was saved on its way."""
    found = dict(found)
    for key in [key for key in found if key.startswith("step_") and "step_000005" not in key]:
        del found[key]
    state = found["step_000005/state"]
    found["step_000005/state"] = {k: v for k, v in state.items() if k != "timely"}
    return found


LEFT = [
    (name, every) for every in (0, 1) for name in ("nft", "grpo", "steered", "grpo_guard", "ddpo")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "every"),
    # each way of saving with some of the algorithms
    [
        pytest.param(*pair, marks=() if i % 2 == 0 else pytest.mark.whole)
        for i, pair in enumerate(LEFT)
    ],
)
def test_left_at_any_small_step_it_ends_bit_for_bit(
    name: str, every: int, start: Start, traces: Traces, tmp_path: Path, whole: dict[str, Any]
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, name)
    words = [*IMAGES[name], f"checkpoint.every={every}", "checkpoint.minutes=0"]
    counted = Countdown()
    assert start(tmp_path / "counted", *words, stop=counted).run() == "done"
    assert counted.steps > 100
    for at in range(1 + every, counted.steps, counted.steps // 6):
        run = tmp_path / f"left_{at}"
        stop = Countdown(at)
        session = start(run, *words, stop=stop)
        assert session.run() == "preempted"
        assert stop.steps == at, "nothing more is computed"
        assert RunFolder(run).read_status() == "preempted"
        kept = {p.name for p in RunFolder(run).checkpoints.glob("step_*")}
        assert (f"step_{session.done:06d}" in kept) is (session.done > 0)
        again = start(run, *words)
        assert again.done == session.done, "no iteration is lost"
        assert again.run() == "done"
        assert ends(traces(run)) == ends(expected), at


@pytest.mark.slow
def test_without_a_snapshot_the_iteration_is_ended_first(
    start: Start,
    traces: Traces,
    tmp_path: Path,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "grpo")
    words = [*IMAGES["grpo"], "checkpoint.every=0", "checkpoint.snapshot=false"]
    stop, update = Stop(), Learner._update

    def asked(learner: Learner) -> Any:
        if learner.updates == 3:  # of the second iteration
            stop.asked = signal.SIGINT
        return update(learner)

    with monkeypatch.context() as patched:
        patched.setattr(Learner, "_update", asked)
        session = start(tmp_path / "run", *words, stop=stop)
        assert session.run() == "interrupted"
    assert session.done == 2
    assert start(tmp_path / "run", *words).run() == "done"
    assert ends(traces(tmp_path / "run")) == ends(expected)


def test_what_a_stop_breaks_is_no_error(
    start: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stop = Stop()

    def died(self: object, samples: Samples) -> dict[str, torch.Tensor]:
        stop.asked = signal.SIGTERM
        raise RuntimeError("the process of a reward died")

    session = start(tmp_path / "run", "evaluation.every=0", until=1)
    session.run()
    session = start(tmp_path / "run", "evaluation.every=0", stop=stop)
    monkeypatch.setattr(Brightness, "score", died)
    assert session.run() == "preempted"
    assert "an error after the run was asked to stop" in caplog.text


def test_a_logger_that_fails_ends_no_run(
    start: Start,
    traces: Traces,
    tmp_path: Path,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "nft")

    def gone(self: NoLogger, iteration: int, values: Mapping[str, float]) -> None:
        if iteration == 2:
            raise OSError("no network")

    monkeypatch.setattr(NoLogger, "log", gone)
    assert start(tmp_path / "run", *IMAGES["nft"]).run() == "done"
    assert capsys.readouterr().out.count("logger NoLogger failed (no network)") == 1
    assert traces(tmp_path / "run") == expected


@pytest.mark.parametrize("moment", ["write_manifest", "save_file"])
def test_a_full_disk_ends_it_with_the_last_good_one(
    moment: str, start: Start, traces: Traces, tmp_path: Path, whole: dict[str, Any]
) -> None:
    expected = uninterrupted(whole, start, traces, tmp_path, "nft")
    with pytest.MonkeyPatch.context() as patched:
        full = OSError(28, "No space left on device")
        failing = _at(
            4 if moment == "save_file" else 2, getattr(checkpoint_module, moment), error=full
        )
        patched.setattr(checkpoint_module, moment, failing)
        with pytest.raises(DiskError, match=r"checkpoint step_000004 .*needed, .* free.*resume"):
            start(tmp_path / "run", *IMAGES["nft"]).run()
    names = [p.name for p in (tmp_path / "run" / "checkpoints").iterdir() if "best" not in p.name]
    assert names == ["step_000002"]
    assert start(tmp_path / "run", *IMAGES["nft"]).run() == "done"
    assert traces(tmp_path / "run") == expected


def test_an_error_of_the_writer_ends_the_run(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(checkpoint_module, "write_manifest", full)
    with pytest.raises(OSError, match="No space left"):
        start(tmp_path / "run").run()
    assert [*(tmp_path / "run" / "checkpoints").iterdir()] == []


def test_a_second_attempt_lacks_the_first_scores(start: Start, tmp_path: Path) -> None:
    start(tmp_path / "run", until=2).run()
    RunFolder(tmp_path / "run").evaluation(0).unlink()
    with pytest.raises(RunFolderError, match=r"000000\.json is missing"):
        start(tmp_path / "run").run()


def test_only_what_is_to_stay_stays(start: Start, tmp_path: Path) -> None:
    words = ["checkpoint.every=1", "checkpoint.keep=1", "checkpoint.keep_every=2"]
    start(tmp_path / "run", *words, "checkpoint.best=false", "evaluation.every=0").run()
    names = sorted(p.name for p in (tmp_path / "run" / "checkpoints").iterdir())
    assert names == ["step_000002", "step_000004", "step_000005"]


def test_a_beginning_that_left_no_checkpoint_is_logged_anew(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a run that was killed before its first one, TensorBoard had each iteration twice."""
    told: list[str] = []
    monkeypatch.setattr(NoLogger, "restart", lambda *_: told.append("restart"), raising=False)
    monkeypatch.setattr(NoLogger, "resume", lambda *_: told.append("resume"), raising=False)
    start(tmp_path / "run", "evaluation.every=0", until=1).run()
    start(tmp_path / "run", "evaluation.every=0")
    assert told == ["restart", "resume"]
