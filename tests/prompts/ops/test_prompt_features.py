import pytest

from rlfactory.prompts.ops.prompt_features import OBJECTS, metadata_problem

KNOWN = ("cat", "dog")


def wanted(*clauses, **more):
    return {"tag": "position", "include": list(clauses), **more}


def clause(name="cat", count=1, **more):
    return {"class": name, "count": count, **more}


def test_the_classes_are_coco_s():
    assert len(OBJECTS) == len(set(OBJECTS)) == 80
    assert (OBJECTS[0], OBJECTS[39], OBJECTS[64], OBJECTS[79]) == (
        "person",
        "bottle",
        "computer mouse",
        "toothbrush",
    )


@pytest.mark.parametrize(
    "metadata",
    [
        wanted(clause()),
        wanted(clause(), clause("dog", 2, position=["left of", 0])),
        wanted(clause(color="red"), exclude=[clause("dog", 3)], prompt="a cat"),
    ],
)
def test_what_can_be_judged(metadata):
    assert metadata_problem(metadata, KNOWN) is None


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"include": [clause()]}, "lacks tag"),
        ({"tag": "counting"}, "lacks include"),
        (wanted(), "include="),
        ({"tag": "x", "include": "cat"}, "include='cat'"),
        (wanted({"class": "cat"}), "no `class` and `count`"),
        (wanted(["cat"]), "no `class` and `count`"),
        (wanted(clause("unicorn")), "knows no 'unicorn'; it knows cat, dog"),
        (wanted(clause(count=0)), "count=0"),
        (wanted(clause(count=1.5)), "count=1.5"),
        (wanted(clause(color="mauve")), "color='mauve' of 'cat' is not one of red"),
        (wanted(clause(color=None)), "color=None"),
        (wanted(clause(position=["left of", 0])), "position="),
        (wanted(clause(), clause(position=["beside", 0])), "position="),
        (wanted(clause(), clause(position="left of")), "position="),
        (wanted(clause(), exclude=[clause("unicorn")]), "unicorn"),
    ],
)
def test_what_can_not_be_judged(metadata, message):
    assert message in metadata_problem(metadata, KNOWN)
