"""Stop texts across, inside and at the edges of tokens, of three kinds of tokenizers."""

import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Metaspace
from transformers import PreTrainedTokenizerFast

from rlfactory.model.lm.generate import StopTexts

ALPHABET = sorted(ByteLevel.alphabet())


def of_bytes(*merged: str) -> PreTrainedTokenizerFast:
    """Every byte, and some texts, as GPT-2 writes tokens (a space is Ġ, a line break Ċ)."""
    tokens = [*ALPHABET, *merged]
    backend = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, additional_special_tokens=["<|im_end|>"]
    )


def of_spaces(*tokens: str) -> PreTrainedTokenizerFast:
    """A tokenizer that writes a space as ▁ and drops the first one, with bytes to fall back on."""
    names = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", *tokens]
    backend = Tokenizer(
        BPE(
            vocab={token: i for i, token in enumerate(names)},
            merges=[],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    backend.pre_tokenizer = Metaspace()
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        + [decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def ends(tokenizer: PreTrainedTokenizerFast, stop: list[str], tokens: list[str]) -> list[bool]:
    """After each token whether a response has ended, one way and the other."""
    ids = tokenizer.convert_tokens_to_ids(tokens)
    texts = StopTexts(tokenizer, stop)
    found = [texts.is_completed(ids[: n + 1]) for n in range(len(ids))]
    rows = torch.tensor([ids])
    together = [
        texts.completed(rows[:, : n + 1][:, -texts.window :]).item() for n in range(len(ids))
    ]
    assert together == found
    first = found.index(True) + 1 if any(found) else len(ids)
    assert texts.first_end(ids) == first
    return found


@pytest.mark.parametrize(
    ("stop", "tokens", "expected"),
    [
        (["END"], ["E", "N", "D", "x"], [0, 0, 1, 0]),
        (["END"], ["xEN", "Dy"], [0, 1]),  # across tokens, and on inside the last
        (["END"], ["aENDb"], [1]),
        (["END"], ["E", "N", "E", "N", "D"], [0, 0, 0, 0, 1]),
        ([".", "Ġstop".replace("Ġ", " ")], ["..", "a", "Ġstop"], [1, 0, 1]),
        (["\n\n"], ["Ċ", "Ċ", "Ċ"], [0, 1, 1]),  # a later one counts where the first did not
        (["\n\n"], ["ĊĊ"], [1]),
        (["a "], ["a", "Ġ"], [0, 1]),
        (["<|im_end|>"], ["a", "<|im_end|>"], [0, 1]),
        (["x<|im_end|>"], ["a", "<|im_end|>", "x", "<|im_end|>"], [0, 0, 0, 1]),
        (["é"], ["Ã", "©"], [0, 1]),  # the two bytes of one letter
        (["é"], ["Ã", "©Ã", "©"], [0, 1, 1]),
        (["😀!"], ["ð", "Ł", "ĺ", "Ģ", "!"], [0, 0, 0, 0, 1]),
        (["D"], ["©", "D"], [0, 1]),  # after a byte that is no letter
        (["END"], ["E", "N", "x", "D"], [0, 0, 0, 0]),
    ],
)
def test_a_text_ends_where_it_is_complete(
    stop: list[str], tokens: list[str], expected: list[int]
) -> None:
    merged = ("xEN", "Dy", "aENDb", "..", "Ġstop", "ĊĊ", "©Ã")
    assert ends(of_bytes(*merged), stop, tokens) == [*map(bool, expected)]


@pytest.mark.parametrize(
    ("stop", "tokens", "expected"),
    [
        (["the end"], ["▁the", "▁end"], [0, 1]),
        ([" end"], ["▁end"], [0]),  # the first space is not part of the text
        ([" end"], ["▁the", "▁end"], [0, 1]),
        (["the "], ["▁the", "▁"], [0, 1]),
        (["\n"], ["▁the", "<0x0A>"], [0, 1]),
        (["é"], ["<0xC3>", "<0xA9>"], [0, 1]),
        (["ends"], ["▁ends"], [1]),
    ],
)
def test_spaces_and_bytes_of_a_sentencepiece_tokenizer(
    stop: list[str], tokens: list[str], expected: list[int]
) -> None:
    assert ends(of_spaces("▁the", "▁end", "▁ends"), stop, tokens) == [*map(bool, expected)]


def test_a_long_response_is_read_at_its_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = of_bytes()
    texts, most = StopTexts(tokenizer, ["abc"]), []
    own = StopTexts._decode

    def counted(self: StopTexts, ids: list[int]) -> str:
        most.append(len(ids))
        return own(self, ids)

    monkeypatch.setattr(StopTexts, "_decode", counted)
    ids = tokenizer.convert_tokens_to_ids([*"x" * 500, *"abc"])
    assert texts.first_end(ids) == 503
    assert max(most) == 4
    assert len(most) < 12
