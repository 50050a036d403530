"""Token ids of completions that the data give."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def encode_completions(
    tokenizer: Any, texts: Sequence[str], length: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Completions with an end of text, cut after `length` tokens, on the CPU.

    They are encoded without their prompts, as sampling continues a prompt's own tokens.

    Returns:
        Token ids `[B, length]`, padded on the right; the mask of the real ones; and `[B]`, whether
        the end is among them.
    """
    encoded = tokenizer([*texts], add_special_tokens=False).input_ids
    rows = [[*ids, tokenizer.eos_token_id][:length] for ids in encoded]
    padded = [row + [tokenizer.pad_token_id] * (length - len(row)) for row in rows]
    lengths = torch.tensor([len(row) for row in rows])
    ended = torch.tensor([len(ids) < length for ids in encoded])
    return torch.tensor(padded), torch.arange(length) < lengths[:, None], ended
