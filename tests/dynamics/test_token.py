"""Drawing tokens: the right frequencies, and the likelihood of what was drawn from."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rlfactory.dynamics.token import Token, cumsum, inverse_cdf, tiled_cumsum

LOGITS = torch.tensor([2.0, -1.0, 0.5, 1.5, -3.0])


def step(noise: float | None = None, next: int | None = None, **options: Any) -> Any:
    return Token(**options).step(
        LOGITS[None],
        noise=None if noise is None else torch.tensor([noise]),
        next=None if next is None else torch.tensor([next]),
    )


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"temperature": 0.7}, [0, 1, 2, 3, 4]),
        ({"top_k": 2}, [0, 3]),
        ({"top_p": 0.6}, [0, 3]),  # 0.53 alone is not enough
        ({"top_p": 0.5}, [0]),
        ({"top_k": 3, "top_p": 0.95}, [0, 2, 3]),
    ],
)
def test_frequencies_are_the_truncated_tempered_softmax(
    options: dict[str, Any], kept: list[int]
) -> None:
    count = 20_000
    noise = (torch.arange(count) + 0.5) / count
    drawn = Token(**options).step(LOGITS.expand(count, -1), noise=noise)
    expected = torch.zeros(5)
    expected[kept] = (LOGITS / options.get("temperature", 1.0))[kept].softmax(0)
    frequency = torch.bincount(drawn.next, minlength=5) / count
    torch.testing.assert_close(frequency, expected, atol=2e-4, rtol=0)
    whole = (LOGITS / options.get("temperature", 1.0)).softmax(0)
    torch.testing.assert_close(drawn.log_prob.exp(), whole[drawn.next])


def test_drawing_and_replaying_agree_exactly() -> None:
    token = Token(temperature=0.8, top_k=3)
    noise = torch.rand(64, generator=torch.Generator().manual_seed(0))
    drawn = token.step(LOGITS.expand(64, -1), noise=noise)
    again = token.step(LOGITS.expand(64, -1), next=drawn.next)
    assert torch.equal(drawn.log_prob, again.log_prob)


@pytest.mark.parametrize(("of", "scale"), [("full", 1 / 0.5), ("untempered", 1.0)])
def test_which_distribution_the_likelihood_is_of(of: Any, scale: float) -> None:
    found = step(next=3, temperature=0.5, top_k=2, log_prob_of=of).log_prob
    expected = (LOGITS * scale).log_softmax(0)[3]
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)


def test_the_whole_distribution_stays_finite_and_is_tempered() -> None:
    whole = step(next=0, temperature=0.5, top_k=1).log_probs
    torch.testing.assert_close(whole[0], (LOGITS * 2).log_softmax(0))


def test_a_token_that_left_the_truncation_keeps_a_finite_likelihood() -> None:
    logits = LOGITS[None].clone().requires_grad_()
    found = Token(top_k=2, top_p=0.5).step(logits, next=torch.tensor([1])).log_prob
    assert found.item() == pytest.approx(LOGITS.log_softmax(0)[1].item())
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 1] > 0


def test_what_a_shell_cannot_type_in_a_stop_text() -> None:
    typed = [r"\nUser:", r"\n\n", r"a\tb", r"\\n", r"\boxed", "\n"]
    assert Token(stop=typed).stop == ["\nUser:", "\n\n", "a\tb", r"\n", r"\boxed", "\n"]


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-24])
def test_the_edges_of_the_distribution_are_possible_tokens(uniform: float) -> None:
    log_probs = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    assert inverse_cdf(log_probs, torch.tensor([uniform])).item() == 1
    wide = torch.full((1, 50_000), -torch.inf)
    wide[:, 7:40_000] = 0.0
    chosen = inverse_cdf(wide.log_softmax(-1), torch.tensor([uniform])).item()
    assert 7 <= chosen < 40_000


def test_neither_noise_nor_next_is_an_error() -> None:
    with pytest.raises(ValueError, match="noise"):
        step()


def test_half_precision_logits_are_read_in_float32() -> None:
    found: Tensor = Token().step(LOGITS[None].half(), next=torch.tensor([0])).log_prob
    assert found.dtype == torch.float32


@pytest.mark.parametrize("shape", [(1,), (4,), (3, 5), (2, 3, 17), (2, 64), (2, 65)])
def test_tiles_add_up_to_the_same_sums(shape: tuple[int, ...]) -> None:
    values = torch.rand(*shape, generator=torch.Generator().manual_seed(0))
    found = tiled_cumsum(values, tile=4)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, values.double().cumsum(-1).float())
    assert bool((found.diff(dim=-1) >= 0).all())


def test_a_cpu_has_torchs_own() -> None:
    values = torch.rand(2, 1000)
    assert torch.equal(cumsum(values), values.cumsum(-1))
