"""What a search draws from, and that a draw depends on names alone."""

import math

import pytest

from rlfactory.problems import PlanError
from rlfactory.sweep.space import Space, share_of, space, typed_space


def test_a_share_of_each_kind() -> None:
    assert space("k", {"log": ["1e-6", "1e-2"]}).at(0.5) == pytest.approx(1e-4)
    assert space("k", {"uniform": [-1, 3]}).at(0.25) == 0.0
    whole = space("k", {"int": [2, 4]})
    assert [whole.at(x) for x in (0.0, 0.4, 0.999)] == [2, 3, 4]
    assert [space("k", {"choice": ["a", "b"]}).at(x) for x in (0, 0.6)] == ["a", "b"]


def test_values_are_what_is_typed() -> None:
    for i in range(50):
        value = Space("log", (1e-6, 1e-2)).at(share_of("row", i))
        assert 1e-6 <= value <= 1e-2
        assert float(str(value)) == value
        assert len(f"{value:e}".rstrip("0")) <= 12


def test_spaces_can_be_typed() -> None:
    assert typed_space("k", "log(1e-6, 1e-3)") == Space("log", (1e-6, 1e-3))
    assert typed_space("k", "int(1,8)") == Space("int", (1, 8))
    assert typed_space("k", "choice(a,b)") == Space("choice", ("a", "b"))


def test_shares_are_keyed_and_spread() -> None:
    shares = [share_of("row", i, "lr") for i in range(2000)]
    assert shares[3] == share_of("row", 3, "lr") != share_of("row", 3, "other")
    assert math.isclose(sum(shares) / len(shares), 0.5, abs_tol=0.03)
    assert all(0 <= share < 1 for share in shares)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1e-3", "allowed are log"),
        ("norm(0,1)", "allowed are log"),
        ("log(1,)", "two numbers, the lower first"),
        ("log(0,1)", "both above 0"),
        ("uniform(2,1)", "the lower first"),
        ("int(1.5,2)", "two numbers"),
        ("uniform(1,2,3)", "two numbers"),
        ("uniform(0,inf)", "two numbers"),
    ],
)
def test_what_is_no_space(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=r"search\.k") as refused:
        typed_space("k", text)
    assert said in str(refused.value)


def test_a_file_has_a_mapping_of_one() -> None:
    for node in (3, {}, {"log": [1, 2], "int": [1, 2]}, {"choice": []}):
        with pytest.raises(PlanError, match="allowed are log"):
            space("k", node)
