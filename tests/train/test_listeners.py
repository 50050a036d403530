"""Listeners: which hooks a run calls, and in which order."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rlfactory.config.schema.targets import instantiate
from rlfactory.reward.base import Reward, Samples
from rlfactory.run.folder import RunFolder
from rlfactory.run.metrics import read
from rlfactory.train import build as build_module
from rlfactory.train.build import instantiate_group
from rlfactory.train.components import Components
from rlfactory.train.listeners import Iteration, Listener, Summary, is_due
from rlfactory.train.scoring import build as scoring_build
from rlfactory.train.session import Session

WORDS = [
    *("algo=nft", "iterations=3", "evaluation.prompts=2", "evaluation.grid=2"),
    *("evaluation.every=2", "evaluation.preview_every=1", "checkpoint.every=2"),
]


class Brightness(Reward):
    media = "images"
    main = "shapes"

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        assert samples.images is not None
        return {"shapes": samples.images.float().mean((1, 2, 3)) / 255}


class Noting(Listener):
    """Notes the hooks that are called, and what is on the disk by then."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder, self.calls = folder, list[tuple[Any, ...]]()

    def before_training(self, components: Components, done: int) -> None:
        self.calls.append(("begin", done, components.reward.main))

    def after_iteration(self, iteration: Iteration) -> None:
        lines = read(self.folder.metrics)
        assert (
            lines[-1]["iteration"] == iteration.done
            or self.folder.evaluation(iteration.done).is_file()
        )
        assert len(iteration.rollout) == 12
        saved = (self.folder.checkpoints / f"step_{iteration.done:06d}").is_dir()
        self.calls.append(("iteration", iteration.done, iteration.is_last, saved))

    def after_evaluation(self, done: int, evaluation: Any, metrics: Mapping[str, float]) -> None:
        assert self.folder.evaluation(done).is_file()
        self.calls.append(("evaluation", done, "eval/shapes/mean" in metrics))

    def after_preview(self, done: int, samples: Any) -> None:
        self.calls.append(("preview", done, len(samples.images)))

    def after_training(self, summary: Summary) -> None:
        assert self.folder.summary.is_file()
        self.calls.append(("end", summary.outcome, summary.done, summary.final_scores is not None))


@pytest.fixture
def session(
    linear: Callable[..., Any],
    planned: Callable[..., Mapping[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Callable[..., tuple[Session, Noting]]:
    def begin(**options: Any) -> tuple[Session, Noting]:
        model = linear()
        monkeypatch.setattr(model, "export", lambda to, values: (to / "exported").write_text("x"))
        ours = {"model": model, "reward": Brightness()}

        def make_ours(config: object, group: str, **available: object) -> object:
            return ours.get(group) or instantiate_group(config, group, **available)

        monkeypatch.setattr(build_module, "instantiate_group", make_ours)
        monkeypatch.setattr(
            scoring_build,
            "instantiate",
            lambda node, key, **o: ours.get(key) or instantiate(node, key, **o),
        )
        path = tmp_path / "run"
        folder = RunFolder(path) if path.exists() else RunFolder.create(path)
        words = [*WORDS, "checkpoint.background=false", "checkpoint.best=false"]
        config = {**planned(*words), "run_dir": str(path), "choices": {}}
        folder.config.write_text(yaml.safe_dump(config))
        noting = Noting(folder)
        return Session(config, folder, listeners=[noting], **options), noting

    return begin


def test_hooks_are_called_in_order_and_after_the_run_s_own_listeners(
    session: Callable[..., tuple[Session, Noting]],
) -> None:
    first, noting = session(until=2)
    assert first.run() == "paused"
    assert noting.calls == [
        ("evaluation", 0, True),
        ("begin", 0, "shapes"),
        ("preview", 1, 2),
        ("iteration", 1, False, False),
        ("evaluation", 2, True),
        ("iteration", 2, False, True),
        ("end", "paused", 2, False),
    ]
    resumed, noting = session()
    assert resumed.run() == "done"
    # the checkpoint was saved before that evaluation, so it is repeated
    assert noting.calls == [
        ("begin", 2, "shapes"),
        ("evaluation", 2, True),
        ("iteration", 3, True, False),
        ("evaluation", 3, True),
        ("end", "done", 3, True),
    ]


def test_a_listener_that_raises_ends_the_run_and_loses_no_iteration(
    session: Callable[..., tuple[Session, Noting]],
) -> None:
    failing, noting = session()

    def fail(iteration: Iteration) -> None:
        raise ValueError(f"after {iteration.done}")

    noting.after_iteration = fail  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="after 1"):
        failing.run()
    assert (noting.folder.checkpoints / "step_000001").is_dir()


def test_hooks_that_are_not_overridden_do_nothing() -> None:
    everything: Any = None
    listener = Listener()
    listener.before_training(everything, 0)
    listener.after_iteration(everything)
    listener.after_evaluation(0, everything, {})
    listener.after_preview(0, everything)
    listener.after_training(everything)


@pytest.mark.parametrize(("done", "every", "due"), [(6, 3, True), (5, 3, False), (5, 0, False)])
def test_something_is_due_every_so_many_iterations(done: int, every: int, due: bool) -> None:
    assert is_due(done, every) is due
