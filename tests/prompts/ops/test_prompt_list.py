"""Lists of prompts, and rows that are read one by one."""

import pytest

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.prompt_list import LazyPrompts, PromptList, split_prompts


def prompts(*texts: str) -> list[Prompt]:
    return [Prompt(text, {}) for text in texts]


def lazy(*texts: str) -> LazyPrompts:
    return LazyPrompts(texts, range(len(texts)), lambda i: Prompt(texts[i], {}))


@pytest.mark.parametrize("made", [prompts, lazy])
def test_the_same_prompts_are_on_one_side(made) -> None:
    texts = [f"{name} {i}" for i in range(40) for name in ("A cat", " a  CAT ", "a\u0308", "ä")]
    training, held_out = split_prompts(made(*texts), 0.2)
    assert held_out is not None
    source = PromptList(training, held_out)
    assert source.separate
    assert len(source.prompts) + len(source.eval_prompts) == 160
    assert len(source.eval_prompts) == 32, "two texts each of a fifth of the 80 different prompts"
    assert source.texts() == [prompt.text for prompt in source.known()]


def test_prompts_on_both_sides_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    assert not PromptList(prompts("a", "b"), prompts("A ", "c")).separate
    assert "1 of the 2 different evaluation prompts are training prompts too" in caplog.text


@pytest.mark.parametrize("made", [prompts, lazy])
def test_prompts_are_left_out(made) -> None:
    source = PromptList(made("a", "b"), made("b", "c"))
    source.leave_out({"b"})
    assert list(source.texts()) == ["a"]
    assert [prompt.text for prompt in source.held_out(9)] == ["c"]
    alone = PromptList(made("a", "b"))
    alone.leave_out({"b"})
    assert alone.held_out(9) == prompts("a")
    with pytest.raises(PromptError, match="no prompt is left"):
        alone.leave_out({"a"})
