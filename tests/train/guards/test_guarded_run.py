"""What is not finite stops a run before anything has moved; without the cause it goes on."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from rlfactory.algo.base import Loss
from rlfactory.batch import Outputs
from rlfactory.config.schema.targets import instantiate
from rlfactory.reward.base import Reward, RewardError, Samples, require_images, require_texts
from rlfactory.run.checkpoint.load import load_state
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.train import build as build_module
from rlfactory.train.build import instantiate_group
from rlfactory.train.guards.update_guard import GuardError
from rlfactory.train.scoring import build as scoring_build
from rlfactory.train.session import Session
from rlfactory.utils.errors import TrainingError

SMALL = [
    *("iterations=4", "evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0"),
    *("checkpoint.every=1", "checkpoint.keep=null", "checkpoint.best=false", "micro_batch=8"),
]
TEXTS = [
    *("model=gpt2", "algo=ppo", "reward=length", "dynamics.length=6"),
    *("prompts.starts=[a, the, It was]", "optimizer.lr=0.001"),
]


class Mean(Reward):
    """How bright a picture is, or how many of a text's characters are letters."""

    main = "mean"

    def __init__(self, media: str) -> None:
        self.media = media  # type: ignore[misc,assignment]

    def score(self, samples: Samples) -> dict[str, Tensor]:
        if self.media == "images":
            return {"mean": require_images(samples).float().mean((1, 2, 3)) / 255}
        letters = [sum(c.isalpha() for c in text) for text in require_texts(samples)]
        return {"mean": torch.tensor(letters, dtype=torch.float32)}


Begin = Callable[..., Session]
MEDIA = pytest.mark.parametrize("media", ["images", "texts"])


@pytest.fixture
def begin(
    linear: Callable[..., Any],
    planned: Callable[..., Mapping[str, Any]],
    gpt2_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Begin:
    """Begins, or goes on with, a run of the two-number model or of a small language model."""

    def of(media: str, name: str, *words: str, **options: Any) -> Session:
        ours: dict[str, object] = {"reward": Mean(media)}
        words = (*SMALL, "algo=grpo", *words)
        if media == "images":
            ours["model"] = model = linear()
            monkeypatch.setattr(model, "export", lambda to, values: (to / "x").write_text("x"))
        else:
            words = (*SMALL, *TEXTS, f"model.path={gpt2_folder}", *words[len(SMALL) + 1 :])

        def make_ours(config: object, group: str, **available: object) -> object:
            return ours.get(group) or instantiate_group(config, group, **available)

        monkeypatch.setattr(build_module, "instantiate_group", make_ours)
        monkeypatch.setattr(
            scoring_build,
            "instantiate",
            lambda node, key, **o: ours.get(key) or instantiate(node, key, **o),
        )
        path = tmp_path / name
        folder = RunFolder(path) if path.exists() else RunFolder.create(path)
        config = {**planned(*words), "run_dir": str(path), "choices": {}}
        folder.config.write_text(yaml.safe_dump(config))
        return Session(config, folder, **options)

    return of


def spoil_loss(session: Session, when: Callable[[], bool]) -> None:
    change_loss(session, when, lambda loss: replace(loss, value=loss.value * torch.nan))


def spoil_log_prob(session: Session, when: Callable[[], bool]) -> None:
    def spoiled(loss: Loss) -> Loss:
        outputs: Any = loss.outputs
        step = outputs.step if isinstance(outputs, Outputs) else outputs
        log_prob = step.log_prob.detach().clone()
        log_prob[-1] = torch.nan
        step = replace(step, log_prob=log_prob)
        is_image = isinstance(outputs, Outputs)
        return replace(loss, outputs=replace(outputs, step=step) if is_image else step)

    change_loss(session, when, spoiled)


def change_loss(session: Session, when: Callable[[], bool], change: Callable[[Loss], Loss]) -> None:
    algo = session.components.algo
    loss = algo.loss

    def changed(*asked: Any) -> Loss:
        return change(loss(*asked)) if when() else loss(*asked)

    algo.loss = changed  # type: ignore[method-assign]


def spoil_advantage(session: Session, when: Callable[[], bool]) -> None:
    algo = session.components.algo
    compute = algo.compute_advantages

    def changed(*asked: Any) -> Any:
        rollout = compute(*asked)
        if not when():
            return rollout
        advantage = rollout.advantage.clone()
        advantage[:, ...] = torch.inf
        return replace(rollout, advantage=advantage)

    algo.compute_advantages = changed  # type: ignore[method-assign]


def spoil_gradient(session: Session, when: Callable[[], bool]) -> None:
    parameter = next(iter(session.components.model.weights.parameters.values()))
    parameter.register_hook(lambda gradient: gradient * torch.nan if when() else gradient)


SPOILERS = {
    "loss": (spoil_loss, "the loss"),
    "log-probability": (spoil_log_prob, "log-probabilities of "),
    "advantage": (spoil_advantage, "advantages of"),
    "gradient": (spoil_gradient, "the gradient's norm"),
}


@pytest.mark.slow
@MEDIA
@pytest.mark.parametrize("what", SPOILERS)
def test_a_run_stops_before_the_step_and_goes_on_exactly_when_the_cause_is_gone(
    media: str, what: str, begin: Begin, traces: Callable[[Path], dict[str, Any]], tmp_path: Path
) -> None:
    session = begin(media, "run")
    spoil, named = SPOILERS[what]
    spoil(session, lambda: session.done == 2)
    with pytest.raises(GuardError) as stopped:
        session.run()
    said, folder = str(stopped.value), RunFolder(tmp_path / "run")
    assert f"Not finite: {named}" in said
    assert "iteration 3, update 1" in said
    assert ("micro-batch 1" in said) is (what != "gradient")
    assert f"Evidence: {folder.evidence / 'iteration_000003'}." in said
    # nothing has moved
    border = load_file(folder.checkpoints / "step_000002" / "weights.safetensors")
    now = session.components.model.weights.state_dict()
    assert all(torch.equal(now[name], value) for name, value in border.items())
    assert session.trainer.learner.updates == 4
    assert not session.trainer.learner.has_moved
    # what the evidence tells
    place = folder.evidence / "iteration_000003"
    about = json.loads((place / "about.json").read_text())
    assert (about["iteration"], about["update"]) == (3, 1)
    assert about["prompts"]
    assert repr(about["prompts"][-1]) in said or "more." in said
    assert len(about["samples"]) == len(about["prompts"])
    tensors = load_file(place / "batch.safetensors")
    assert "batch/advantage" in tensors
    assert "metrics/ratio/mean" in tensors or what == "gradient"
    # and without the cause
    begin(media, "run").run()
    begin(media, "whole").run()
    assert traces(tmp_path / "run") == traces(tmp_path / "whole")


@MEDIA
@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (torch.inf, RewardError, "score 'mean': score 0 is inf; a score is finite"),
        (torch.nan, TrainingError, "100.0% of the samples got no score"),
    ],
)
def test_rewards_that_are_not_finite_stop_before_learning(
    media: str, value: float, kind: type[Exception], said: str, begin: Begin
) -> None:
    session = begin(media, "run")
    score = session.components.reward.score

    def spoiled(samples: Samples) -> dict[str, Tensor]:
        scores = score(samples)
        return {name: each * value for name, each in scores.items()} if session.done else scores

    session.components.reward.score = spoiled  # type: ignore[method-assign]
    with pytest.raises(kind) as stopped:
        session.run()
    assert said in str(stopped.value)
    assert session.trainer.learner.updates == 2
    assert not session.trainer.learner.has_moved


@MEDIA
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_an_update_can_be_left_out(
    media: str,
    what: str,
    begin: Begin,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = begin(media, "run", "guard.non_finite=skip", "epochs=1")
    spoil, named = SPOILERS[what]
    learner = session.trainer.learner
    spoil(session, lambda: session.done == 1 and learner.guard.skipped == 0)
    with caplog.at_level(logging.WARNING, "rlfactory.train.guards.update_guard"):
        session.run()
    lines = [line for line in read(tmp_path / "run" / "metrics.jsonl") if "time/learn" in line]
    assert [line["guard/skipped"] for line in lines] == [0, 1, 0, 0]
    assert all(line["loss/policy"] is not None for line in lines), "the mean leaves it out too"
    assert learner.updates == 7
    assert [record.getMessage().count(named) for record in caplog.records] == [1]
    assert "It is left out, number 1 in a row" in caplog.text
    assert (tmp_path / "run" / "evidence" / "iteration_000002" / "about.json").is_file()


def test_not_for_ever_and_the_count_goes_on_over_attempts(begin: Begin, tmp_path: Path) -> None:
    words = ["guard.non_finite=skip", "guard.max_skipped=3"]
    first = begin("images", "run", *words, until=2)
    spoil_loss(first, lambda: first.done == 1)
    first.run()
    saved = RunFolder(tmp_path / "run").checkpoints / "step_000002"
    assert load_state(saved)["skipped"] == 2
    second = begin("images", "run", *words)
    spoil_loss(second, lambda: True)
    with pytest.raises(GuardError, match=r"number 4 in a row, and guard\.max_skipped=3") as stopped:
        second.run()
    assert "iteration 3, update 2" in str(stopped.value)
    assert second.trainer.learner.updates == 2
    kept = json.loads((tmp_path / "run/evidence/iteration_000003/about.json").read_text())
    assert kept["update"] == 1, "the first of a row tells how it began"


def test_advice_is_said_once_in_a_run_and_stands_in_its_summary(
    begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def flat(session: Session) -> Session:
        session.components.reward.score = (  # type: ignore[method-assign]
            lambda samples: {"mean": torch.ones(len(samples.prompts))}
        )
        return session

    words = ["iterations=8", "evaluation.every=0"]
    flat(begin("images", "run", *words, until=6)).run()
    assert capsys.readouterr().out.count("advice after iteration 5: all samples have had") == 1
    flat(begin("images", "run", *words)).run()
    assert "advice after" not in capsys.readouterr().out
    assert "## Advice\n\n- after iteration 5: all samples" in RunFolder(
        tmp_path / "run"
    ).summary.read_text(encoding="utf-8")
