import sys
from pathlib import Path

import numpy as np
import pytest

from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.prompts.arithmetic import Arithmetic, problem


@pytest.fixture(scope="module")
def recipe():
    folder = str(Path(__file__).parents[2] / "scripts" / "zoo")
    sys.path.insert(0, folder)
    try:
        import arithmetic
    finally:
        sys.path.remove(folder)
    return arithmetic


def test_mistakes_are_of_the_other_operation_or_guesses(recipe):
    rng = np.random.default_rng(0)
    for prompt, other in ((problem(47, "+", 38), "9"), (problem(3, "-", 10), "13")):
        drawn = [recipe.answer_by(prompt, 0.2, rng) for _ in range(2000)]
        assert drawn.count(prompt.metadata["answer"]) / 2000 == pytest.approx(0.2, abs=0.04)
        assert drawn.count(other) / 2000 == pytest.approx(0.4, abs=0.04)


def test_a_row_is_an_end_a_problem_an_answer_and_ends(recipe):
    (row,) = recipe.rows([problem(47, "+", 38)], 1.0, 1, 0).tolist()
    text = "".join(recipe.CHARACTERS[token - 1] if token else "." for token in row)
    assert text == ".47+38=85..."


def test_the_loss_is_of_answers_and_their_end(recipe):
    model = recipe.build_model(0)
    batch = recipe.rows([problem(47, "+", 38), problem(1, "-", 2)], 1.0, 1, 0)
    logits = model(batch[:, :-1]).logits.log_softmax(-1)
    spots = [(0, 7), (0, 8), (0, 9), (1, 5), (1, 6), (1, 7)]
    expected = -sum(logits[i, j - 1, batch[i, j]].item() for i, j in spots) / len(spots)
    assert recipe.answer_loss(model, batch).item() == pytest.approx(expected, rel=1e-5)


def test_the_shipped_tokenizer_is_the_recipes(recipe):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(zoo_path("arithmetic"))
    prompts = Arithmetic().held_out(20)
    rows = recipe.rows(prompts, 1.0, 1, 0).tolist()
    for prompt, row in zip(prompts, rows, strict=True):
        ids = tokenizer(prompt.text + prompt.metadata["answer"]).input_ids
        assert row[: len(ids) + 2] == [0, *ids, 0]
