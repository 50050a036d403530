"""Instructions: what is held out is whole, and prompts are the same in each process."""

import pytest

from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.instructions import HELD_OUT, InstructionsPrompts
from rlfactory.prompts.ops.constraints import KINDS, TEXTS, stated


def kinds(prompts: list[Prompt]) -> set[str]:
    return {c["kind"] for p in prompts for c in p.metadata["constraints"]}


def phrasings(prompts: list[Prompt]) -> set[int]:
    return {
        number
        for p in prompts
        for c in p.metadata["constraints"]
        for number in range(len(TEXTS[c["kind"]]))
        if stated(c["kind"], c["value"], number) in p.text
    }


def test_training_lacks_kinds_and_a_phrasing() -> None:
    prompts = InstructionsPrompts(count=500)
    assert len({p.text for p in prompts.prompts}) == 500
    assert kinds(prompts.prompts) == {*KINDS} - {*HELD_OUT}
    assert phrasings(prompts.prompts) == {0, 1}


def test_evaluations_have_what_training_lacks() -> None:
    seen, unseen, phrased = (InstructionsPrompts(part=p) for p in ("seen", "kinds", "phrasings"))
    assert kinds(unseen.eval_prompts) == {*HELD_OUT}
    assert kinds(seen.eval_prompts) == kinds(phrased.eval_prompts) == kinds(seen.prompts)
    assert phrasings(seen.eval_prompts) == {0, 1}
    assert phrasings(phrased.eval_prompts) == {2}
    assert seen.separate
    assert unseen.separate
    subjects = {s for s in TEXTS["subjects"] if any(s in p.text for p in seen.prompts)}
    assert not any(s in p.text for s in subjects for p in seen.eval_prompts)


def test_the_same_arguments_give_the_same_prompts() -> None:
    first, second = InstructionsPrompts(count=50), InstructionsPrompts(count=50)
    assert [p.text for p in first.prompts] == [p.text for p in second.prompts]
    assert first.prompts[0].metadata == second.prompts[0].metadata


def test_constraints_of_a_prompt() -> None:
    numbers = [
        len(p.metadata["constraints"]) for p in InstructionsPrompts(most=3, count=300).prompts
    ]
    assert {*numbers} == {1, 2, 3}


@pytest.mark.parametrize(
    "options", [{"held_out_kinds": [*KINDS]}, {"held_out_kinds": [], "part": "kinds"}]
)
def test_no_kind_is_left(options: dict[str, object]) -> None:
    with pytest.raises(PromptError, match="held_out_kinds"):
        InstructionsPrompts(**options)
