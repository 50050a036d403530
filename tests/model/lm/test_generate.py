"""The decoding loop, on a model that is a lookup table."""

import pytest
import torch
from torch import Tensor
from transformers import GPT2Config

from rlfactory.algo.advantage.gae import terminal_rewards
from rlfactory.dynamics.token import Token
from rlfactory.model.lm.generate import decode
from rlfactory.rollout import Tokens

CONFIG = GPT2Config(n_layer=2, n_head=2, n_embd=8, vocab_size=5, bos_token_id=0, eos_token_id=0)


def states(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2, count, 4), torch.randn(3, 2, count, 4)


END, PAD, LENGTH = 3, 9, 4
SCRIPTS = {
    "end first": [END, 1, 1, 1],
    "end in the middle": [0, 1, END, 1],
    "end at the last place": [0, 1, 2, END],
    "no end": [0, 1, 2, 0],
}
MASKS = {
    "end first": [1, 0, 0, 0],
    "end in the middle": [1, 1, 1, 0],
    "end at the last place": [1, 1, 1, 1],
    "no end": [1, 1, 1, 1],
}


class Scripted:
    """Rows that say what they are told to, nearly surely; values count the tokens seen."""

    def __init__(self, scripts: list[list[int]]) -> None:
        self.scripts = torch.tensor(scripts)
        self.rows = torch.arange(len(scripts))
        self.calls: list[tuple[Tensor, Tensor, Tensor]] = []

    def __call__(self, ids: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.append((ids, mask, positions))
        logits = torch.full((len(ids), 4), -20.0)
        logits[torch.arange(len(ids)), self.scripts[self.rows, len(self.calls) - 1]] = 20.0
        return logits, mask.sum(1).float()

    def keep(self, rows: Tensor) -> None:
        self.rows = self.rows[rows]


def say(names: list[str], stop: list[int] | None = None, **options: int) -> tuple[Tokens, Scripted]:
    read = Scripted([SCRIPTS[name] for name in names])
    prompt = torch.tensor([[PAD, PAD, 0, 1], [0, 1, 2, 0], [PAD, 0, 1, 2], [0, 0, 0, 0]])
    tokens = decode(
        read,
        read.keep,
        prompt[: len(names)],
        prompt[: len(names)] != PAD,
        Token(length=LENGTH, **options),  # type: ignore[arg-type]
        torch.full((len(names), LENGTH), 0.5),
        stop=torch.tensor([END] if stop is None else stop, dtype=torch.int64),
        pad=PAD,
    )
    return tokens, read


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_table_of_masks(name: str) -> None:
    tokens, _ = say([name, "no end"])
    mask = torch.tensor(MASKS[name], dtype=torch.bool)
    assert torch.equal(tokens.mask[0], mask)
    expected = torch.where(mask, torch.tensor(SCRIPTS[name]), PAD)
    assert torch.equal(tokens.response[0], expected)
    assert bool(tokens.ended[0]) == (END in SCRIPTS[name])
    assert torch.equal(tokens.log_prob[0] == 0, ~mask | (tokens.log_prob[0] == 0))
    assert bool((tokens.value[0][mask] > 0).all())
    assert bool((tokens.value[0][~mask] == 0).all())
    # the terminal reward stands on the last real token: the end itself where there is one
    reward = terminal_rewards(torch.tensor([2.0, 0.0]), tokens.mask)[0]
    assert reward.nonzero().flatten().tolist() == [sum(MASKS[name]) - 1]


def test_an_end_that_is_no_stop_goes_on() -> None:
    tokens, _ = say(["end first"], stop=[])
    assert tokens.mask.all()
    assert not tokens.ended.any()


def test_the_loop_ends_with_its_last_row() -> None:
    assert len(say(["end first", "end in the middle"])[1].calls) == 3
    assert len(say(["end first", "no end"])[1].calls) == LENGTH


def test_finished_rows_leave_the_batch() -> None:
    names = [*SCRIPTS]
    tokens, read = say(names)
    # one of four ends at once, another after three tokens
    assert [len(ids) for ids, _, _ in read.calls] == [4, 3, 3, 2]
    assert read.rows.tolist() == [2, 3]
    for row, name in enumerate(names):
        alone, _ = say([name] * 4)
        prompt = row  # each row has a prompt of its own
        for part in ("response", "mask", "ended", "log_prob", "value"):
            assert torch.equal(getattr(tokens, part)[row], getattr(alone, part)[prompt]), part


def test_nothing_stops_before_its_time() -> None:
    tokens, _ = say(["end in the middle"], stop_after=3)
    assert tokens.mask.all()
    tokens, _ = say(["end in the middle"], stop_after=2)
    assert tokens.mask.sum() == 3


def test_what_is_read_has_positions_without_the_padding() -> None:
    _, read = say(["no end", "no end", "no end"])
    ids, mask, positions = read.calls[0]
    assert ids.shape == mask.shape == positions.shape == (3, 4)
    assert positions.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3], [0, 0, 1, 2]]
    for step, (ids, mask, positions) in enumerate(read.calls[1:], start=1):
        assert ids.shape == (3, 1)
        assert mask.shape == (3, 4 + step)
        assert positions[:, 0].tolist() == [1 + step, 3 + step, 2 + step]
