"""Instructions to edit pictures of shapes."""

import numpy as np
import pytest
import torch

from rlfactory.prompts.edits import EDITS, Edit, EditsPrompts, sample_edit
from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.prompts.ops.scenes import arrange, background, render
from rlfactory.reward.base import Samples
from rlfactory.reward.shapes import Shapes
from rlfactory.utils.images import from_pil


def test_they_are_a_pure_function_and_new_in_each_iteration() -> None:
    source = EditsPrompts()
    first = source.draw(8, seed=1, iteration=2)
    assert [p.text for p in first] == [p.text for p in EditsPrompts().draw(8, seed=1, iteration=2)]
    assert [p.metadata["tag"] for p in first] == [*EDITS, *EDITS]
    assert not {p.text for p in first} & {p.text for p in source.draw(8, seed=1, iteration=3)}


def test_no_held_out_instruction_is_trained_on() -> None:
    source = EditsPrompts()
    trained = {str(p.text) for i in range(20) for p in source.draw(8, seed=0, iteration=i)}
    held_out = source.held_out(40)
    assert all(is_held_out(str(p.text)) for p in held_out)
    assert not trained & {str(p.text) for p in held_out}
    assert [p.text for p in source.held_out(8)] == [p.text for p in held_out[:8]]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_picture_has_the_best_score_and_the_picture_itself_has_not(edit: Edit) -> None:
    (prompt,) = EditsPrompts(edits=[edit]).draw(1, seed=3, iteration=0)
    rng, own = np.random.default_rng([3, 0, 0]), np.random.default_rng(5)
    scenes = (sample_edit(edit, rng) for _ in range(1000))
    _, instruction, after = next(found for found in scenes if not is_held_out(found[1]))
    assert instruction == str(prompt.text)
    result = render(arrange(after, own), background(own))
    edited = torch.from_numpy(result.copy()).permute(2, 0, 1)
    images = torch.stack([edited, from_pil(prompt.text.open())])
    samples = Samples([prompt.text] * 2, [prompt.metadata] * 2, torch.zeros(2).long(), images)
    scores = Shapes().score(samples)
    assert scores["shapes_strict"].tolist() == [1.0, 0.0]


def test_no_edit_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="is empty; give some of recolor"):
        EditsPrompts(edits=[])
