"""ZeRO by DeepSpeed in one process, which has all of it; several are tried in tests/dist."""

import copy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlfactory.hardware.base import HardwareError
from rlfactory.hardware.deepspeed import DeepSpeed
from rlfactory.hardware.local import Local
from rlfactory.model.weights import POLICY, REFERENCE, Weights
from rlfactory.run.divided import mapped, moments_of
from rlfactory.run.snapshot import Snapshot

pytest.importorskip("deepspeed", reason="the extra deepspeed is not installed")

X = torch.linspace(-1, 1, 6).view(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.second = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(torch.tanh(self.first(x)))
        return found


@pytest.fixture(autouse=True, scope="module")
def alone() -> Iterator[None]:
    """DeepSpeed keeps groups of processes for good: all tests are of one."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RANK", "LOCAL_RANK", "DS_ACCELERATOR"):
            patch.delenv(name, raising=False)
        yield
    dist.destroy_process_group()


def model_of(seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = Net()
    return SimpleNamespace(network=network, weights=Weights(dict(network.named_parameters())))


class Team:
    """A network, its optimiser and what computes."""

    def __init__(
        self, stage: Literal[0, 1, 2, 3], offload: Literal["none", "cpu"] = "none"
    ) -> None:
        self.model = model_of()
        parameters = list(self.model.weights.parameters.values())
        self.optimizer = torch.optim.AdamW(parameters, lr=0.1, eps=1e-5)
        self.hardware = Local(device="cpu")
        if stage:
            self.hardware = DeepSpeed(device="cpu", zero=stage, offload=offload)  # type: ignore[assignment]
        self.hardware.adopt(self.optimizer, self.model)
        self.model.weights.add(REFERENCE)

    def backward(self, scale: float = 1.0) -> None:
        for rows in X.split(1):
            self.hardware.backward(scale * self.model.network(rows).square().sum())

    def step(self, scale: float = 1.0, limit: float = 0.5) -> float | None:
        self.backward(scale)
        parameters = list(self.model.weights.parameters.values())
        return self.hardware.step(self.optimizer, parameters, limit)

    def weights(self) -> dict[str, Tensor]:
        return dict(self.model.weights.whole_state())

    def moments(self) -> dict[int, Any]:
        return copy.deepcopy(moments_of(self.model, self.optimizer)["state"])


@pytest.fixture(params=[(1, "none"), (2, "none"), (2, "cpu"), (3, "none")], ids=str)
def team(request: pytest.FixtureRequest) -> Team:
    return Team(*request.param)


def test_a_step_is_that_of_plain_torch(team: Team) -> None:
    plain = Team(0)
    for _ in range(3):
        assert team.step() == pytest.approx(plain.step(), rel=1e-5)
    torch.testing.assert_close(team.weights(), plain.weights())
    ours, theirs = team.moments(), plain.moments()
    torch.testing.assert_close(ours, theirs)
    assert [p["step"] for p in ours.values()] == [3] * 4


def test_options_are_those_of_the_optimiser_that_is_known(team: Team) -> None:
    before = team.weights()
    team.optimizer.param_groups[0]["lr"] = 0.0
    team.step()
    torch.testing.assert_close(team.weights(), before)


def test_where_the_norm_is_not_finite_nothing_moves(team: Team) -> None:
    team.step()
    weights, moments = team.weights(), team.moments()
    assert team.step(scale=float("inf")) == float("inf")
    torch.testing.assert_close(team.weights(), weights)
    torch.testing.assert_close(team.moments(), moments)
    plain = Team(0)
    plain.step()
    assert team.step() == pytest.approx(plain.step(), rel=1e-5), "nothing is left of it"
    torch.testing.assert_close(team.weights(), plain.weights())


def test_what_is_forgotten_has_no_part_in_the_next_step(team: Team) -> None:
    plain = Team(0)
    for each in (team, plain):
        each.step()
    team.backward(scale=3.0)
    team.hardware.forget(team.optimizer)
    assert team.step() == pytest.approx(plain.step(), rel=1e-5)
    torch.testing.assert_close(team.weights(), plain.weights())


def test_weight_sets_are_exchanged_and_seen(team: Team) -> None:
    with team.model.weights(POLICY), torch.no_grad():
        before = team.model.network(X).clone()
    team.step()
    with torch.no_grad():
        with team.model.weights(POLICY):
            after = team.model.network(X).clone()
            with team.model.weights(REFERENCE):
                torch.testing.assert_close(team.model.network(X), before)
            torch.testing.assert_close(team.model.network(X), after)
        assert not torch.allclose(before, after)
        with team.model.weights(REFERENCE):
            torch.testing.assert_close(team.model.network(X), before)


def test_a_pass_by_other_weights_before_the_backward_changes_no_step(team: Team) -> None:
    plain = Team(0)
    for each in (team, plain):
        each.step()
        out = each.model.network(X).square().sum()
        with torch.no_grad(), each.model.weights(REFERENCE):
            each.model.network(X)
        each.hardware.backward(out)
        each.hardware.step(each.optimizer, list(each.model.weights.parameters.values()), 1.0)
    torch.testing.assert_close(team.weights(), plain.weights())


def test_a_snapshot_is_the_way_back(team: Team) -> None:
    snapshots = [Snapshot(), Snapshot()]
    for taken in snapshots:  # before any moments are, and after
        weights, moments = team.weights(), team.moments()
        taken.take(0, team.model, team.optimizer)
        first = team.step()
        after = team.weights()
        taken.put_back(team.model, team.optimizer)
        torch.testing.assert_close(team.weights(), weights)
        torch.testing.assert_close(team.moments(), moments)
        assert team.step() == first
        assert all(torch.equal(value, after[key]) for key, value in team.weights().items())


def hand_over(source: Team, target: Team) -> None:
    """What a checkpoint does."""
    state = moments_of(source.model, source.optimizer)
    target.model.weights.load_whole(source.weights())
    if (division := target.model.weights.division) is not None:
        changed = mapped(division.part_moment, state["state"], target.model, target.optimizer)
        state["state"] = changed
    target.optimizer.load_state_dict(copy.deepcopy(state))


def test_others_go_on_from_it_and_it_from_others(team: Team) -> None:
    plain, other = Team(0), Team(0)
    for _ in range(2):
        team.step()
        plain.step()
    hand_over(team, other)
    hand_over(plain, team)
    for each in (team, plain, other):
        each.step()
    torch.testing.assert_close(team.weights(), plain.weights())
    torch.testing.assert_close(other.weights(), plain.weights())


def test_what_is_saved_are_the_values_that_are_given(team: Team) -> None:
    team.step()
    state = team.weights()
    prefix = f"{REFERENCE}/"
    values = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    with team.model.weights.division.standing_in(values):
        shown = {k: v.detach().clone() for k, v in team.model.network.state_dict().items()}
    torch.testing.assert_close(shown, values)
    torch.testing.assert_close(team.weights(), state)


def test_moments_that_are_not_of_the_parameters_form_are_refused(team: Team) -> None:
    with pytest.raises(HardwareError, match=r"state of first.weight is \[3\], not of"):
        team.model.weights.division.part_moment("first.weight", torch.zeros(3))


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    hardware, model = DeepSpeed(device="cpu", config=str(tmp_path / "gone.yaml")), model_of()
    with pytest.raises(HardwareError, match=r"hardware\.config: .*gone\.yaml can't be read"):
        hardware.adopt(torch.optim.SGD(model.network.parameters(), lr=1.0), model)
