import pytest
import torch

from rlfactory.model.pipelines.shipped import zoo_path
from rlfactory.prompts.ops.scenes import COLORS, RELATIONS, SHAPES, Clause, Scene, requirements
from rlfactory.reward.backbones.scene_scorer import FIELDS, FILE, SceneScorer, fields, load_scorer

CLAUSE = len(SHAPES) + len(COLORS) + 4


def test_fields_are_one_hot_by_clause_with_the_relation_last() -> None:
    scene = Scene("position", (Clause("star", "blue"), Clause("circle", "red")), "above")
    row = fields(requirements(scene))
    # the metadata has the second clause first, and the star above it
    circle = {SHAPES.index("circle"), len(SHAPES) + [*COLORS].index("red"), CLAUSE - 4}
    star = {SHAPES.index("star"), len(SHAPES) + [*COLORS].index("blue"), CLAUSE - 4}
    ones = circle | {CLAUSE + i for i in star} | {2 * CLAUSE + RELATIONS.index("above")}
    assert row.shape == (FIELDS,)
    assert {*row.nonzero()[:, 0].tolist()} == ones
    assert row.max() == 1


def test_a_count_has_its_own_field_and_no_colour_is_zeros() -> None:
    row = fields(requirements(Scene("counting", (Clause("cross", None, 3),))))
    assert row.nonzero()[:, 0].tolist() == [SHAPES.index("cross"), CLAUSE - 4 + 2]


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ([{"class": "circle", "count": 1}] * 3, "3 clauses, and at most 2"),
        ([{"class": "hexagon", "count": 1}], "'hexagon' is none of circle"),
        ([{"class": "circle", "count": 5}], "5 is none of 1, 2, 3, 4"),
    ],
)
def test_what_it_has_no_field_for_is_refused(include: list[object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fields({"include": include})


def test_the_shipped_weights_are_small_and_load_frozen() -> None:
    folder = zoo_path("shapes_scorer")
    assert (folder / FILE).stat().st_size < 300_000
    model = load_scorer(folder, torch.device("cpu"))
    assert not any(p.requires_grad for p in model.parameters())
    assert {p.dtype for p in model.parameters()} == {torch.float32}


def test_a_prompt_changes_the_score_and_pictures_of_any_size_have_one() -> None:
    torch.manual_seed(0)
    model = SceneScorer()
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    asked = torch.stack(
        [fields(requirements(Scene("single_object", (Clause(s),)))) for s in ("circle", "star")]
    )
    same = model(images[:1].expand(2, -1, -1, -1), asked)
    assert same[0] != same[1]
    assert model(torch.nn.functional.pad(images, (0, 32)), asked).shape == (2,)
