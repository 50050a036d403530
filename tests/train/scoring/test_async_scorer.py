"""Scores are the same whenever they are computed, and what fails in the background is told."""

from collections.abc import Callable
from threading import Event, get_ident
from time import sleep

import pytest
import torch
from torch import nn

from rlfactory.model.memory import OffloadedModules
from rlfactory.reward.base import Reward, RewardError, Samples
from rlfactory.train.scoring.async_scorer import Scorer, networks_of

SIZE = 3


def samples(first: int, count: int) -> Samples:
    numbers = torch.arange(first, first + count)
    images = numbers.to(torch.uint8)[:, None, None, None].expand(count, 3, 2, 2)
    words = [f"{i}" for i in numbers.tolist()]
    return Samples(words, [{"n": i} for i in numbers.tolist()], numbers // SIZE, images)


class Judge:
    """The number of a sample less the mean of its group, which must be whole."""

    def __init__(self, work: Callable[[int], None] = lambda call: None) -> None:
        self.work, self.sizes, self.threads = work, list[int](), set[int]()

    def __call__(self, given: Samples) -> dict[str, torch.Tensor]:
        self.work(len(self.sizes))
        self.sizes.append(len(given.prompts))
        self.threads.add(get_ident())
        assert given.images is not None
        values = given.images.float().mean((1, 2, 3))
        groups, sizes = given.groups.unique(return_counts=True)
        assert sizes.tolist() == [SIZE] * len(groups), "a group was cut"
        assert [row["n"] for row in given.metadata] == [int(word) for word in given.prompts]
        means = torch.stack([values[given.groups == group].mean() for group in given.groups])
        return {"main": values - means, "number": values}


def scored(judge: Judge, scorer: Scorer, *counts: int) -> dict[str, torch.Tensor]:
    with scorer.begin(judge, SIZE) as gathering:
        first = 0
        for count in counts:
            gathering.add(samples(first, count))
            first += count
        return gathering.scores()


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize("counts", [(12,), (3, 3, 3, 3), (2, 2, 2, 2, 4), (1, 7, 4), (5, 1, 5, 1)])
def test_groups_stay_whole_and_samples_in_order(background: bool, counts: tuple[int, ...]) -> None:
    judge = Judge()
    found = scored(judge, Scorer(background), *counts)
    assert found["number"].tolist() == list(range(12))
    assert found["main"].tolist() == [-1.0, 0.0, 1.0] * 4
    assert sum(judge.sizes) == 12
    assert (get_ident() in judge.threads) is not background


def test_with_and_without_a_background_the_batches_are_the_same() -> None:
    aside, later = Judge(), Judge()
    found = [scored(aside, Scorer(True), 4, 4, 4), scored(later, Scorer(False), 4, 4, 4)]
    assert aside.sizes == later.sizes == [3, 3, 6]
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_scoring_goes_on_while_samples_are_drawn() -> None:
    judge = Judge(lambda call: sleep(0.05))
    with Scorer().begin(judge, SIZE) as gathering:
        for first in range(0, 12, 3):
            gathering.add(samples(first, 3))
            sleep(0.08)
        gathering.scores()
    assert gathering.overlapped_seconds > 0.15
    with Scorer(False).begin(judge, SIZE) as waited:
        waited.add(samples(0, 3))
        waited.scores()
    assert waited.overlapped_seconds == 0


def test_what_fails_in_the_background_is_raised_where_it_is_waited_for() -> None:
    def fail(call: int) -> None:
        if call == 1:
            raise RewardError("the second batch is bad")

    for background in (True, False):
        with pytest.raises(RewardError, match="the second batch is bad"):
            scored(Judge(fail), Scorer(background), 3, 3, 3)


def test_a_failure_is_raised_while_others_are_still_drawn() -> None:
    failing = Event()

    def fail(call: int) -> None:
        failing.set()
        raise KeyError("at once")

    with Scorer().begin(Judge(fail), SIZE) as gathering:
        gathering.add(samples(0, 3))
        failing.wait(30)
        sleep(0.2)
        with pytest.raises(KeyError, match="at once"):
            gathering.add(samples(3, 3))


def test_a_reward_that_exits_does_not_end_the_run_unseen() -> None:
    def leave(call: int) -> None:
        raise SystemExit(3)

    with pytest.raises(RewardError, match=r"sys\.exit\(3\)"):
        scored(Judge(leave), Scorer(), 3)


def test_a_thread_that_hangs_ends_the_run_with_what_to_try() -> None:
    release = Event()
    judge = Judge(lambda call: release.wait(30) and None)
    with pytest.raises(RewardError, match=r"scoring\.timeout=0\.05 s.*scoring\.background=process"):
        scored(judge, Scorer(timeout=0.05), 3)
    release.set()


def test_nothing_is_scored_that_nobody_waits_for_any_more() -> None:
    begun, release = Event(), Event()

    def hold(call: int) -> None:
        begun.set()
        release.wait(10)

    judge = Judge(hold)
    with Scorer().begin(judge, SIZE) as gathering:
        for first in (0, 3, 6):
            gathering.add(samples(first, 3))
        begun.wait(10)
    release.set()
    sleep(0.1)
    assert judge.sizes == [3]


def test_a_batch_that_lacks_a_score_has_none() -> None:
    class Uneven(Judge):
        def __call__(self, given: Samples) -> dict[str, torch.Tensor]:
            found = super().__call__(given)
            return found if len(self.sizes) == 2 else {"main": found["main"]}

    found = scored(Uneven(), Scorer(), 3, 3)["number"]
    assert found.isnan().tolist() == [True] * 3 + [False] * 3


class Network(Reward):
    media = "images"
    main = "network"

    def __init__(self, *networks: nn.Module) -> None:
        self.one, self.more = networks[0], {"rest": [*networks[1:]]}

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        return {"network": torch.zeros(len(samples.prompts))}


def test_networks_are_found_wherever_a_reward_holds_them() -> None:
    a, b, c = (nn.Linear(1, 1) for _ in range(3))
    assert networks_of([Network(a, b), Network(b, c)]) == [a, b, c]


def test_networks_are_on_their_device_only_while_scores_are_computed() -> None:
    moved, places = Moved(), list[str]()
    offloader = OffloadedModules([moved], torch.device("meta"))  # type: ignore[list-item]
    offloader.offload()

    def judge(given: Samples) -> dict[str, torch.Tensor]:
        places.append(moved.place)
        return {"network": torch.zeros(len(given.prompts))}

    with Scorer(offloader=offloader).begin(judge) as gathering:
        gathering.add(samples(0, 3))
        gathering.add(samples(3, 3))
        gathering.scores()
        assert moved.moves == 3, "away, here for all batches, and away before anything is learned"
    assert (places, moved.place, moved.moves) == (["meta", "meta"], "cpu", 3)


class Moved:
    """Counts where it is moved to."""

    place, moves = "", 0

    def modules(self) -> list[nn.Module]:
        return []

    def to(self, device: torch.device, **_: object) -> None:
        self.place, self.moves = str(device), self.moves + 1


def test_the_thread_that_scores_has_the_gpu_of_the_one_that_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    with Scorer().begin(lambda given: {"a": torch.zeros(len(given.prompts))}) as pending:
        pending.add(samples(0, 3))
        pending.scores()
    assert chosen == [3]


def test_whoever_waits_for_scores_can_leave() -> None:
    told, end = list[int](), Event()

    def leave(count: int) -> None:
        told.append(count)
        if len(told) == 2:
            raise KeyError

    judge, scorer = Judge(lambda call: end.wait(10) and None), Scorer(advance=leave)
    with pytest.raises(KeyError):
        scored(judge, scorer, 3)
    end.set()
    assert told == [0, 0]
