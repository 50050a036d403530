from pathlib import Path

import pytest
from load_script import load_script

SCRIPT = Path(__file__).parents[2] / "scripts" / "zoo" / "reviews.py"
reviews = load_script(SCRIPT)

TEXT = "It was fine. I liked Mr. Fox! Would I go again? Perhaps."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one<br /><br />two<BR>three", "one two three"),
        (" a\n\n b\t c ", "a b c"),
        ("<i>Alien</i> again", "Alien again"),
        ("3 < 4 and 5 > 2", "3 < 4 and 5 > 2"),
    ],
)
def test_clean(text, expected):
    assert reviews.clean(text) == expected


def test_joined_puts_punctuation_back_to_its_word():
    assert reviews.joined("fun , wasabi ( 2001 ) is good .") == "fun, wasabi (2001) is good."


@pytest.mark.parametrize("characters", range(1, len(TEXT) + 2))
def test_opening_is_a_beginning_that_fits(characters):
    cut = reviews.opening(TEXT, characters)
    assert TEXT.startswith(cut)
    assert 0 < len(cut) <= characters
    if characters >= len("It was fine."):
        assert cut[-1] in ".!?"


@pytest.mark.parametrize(
    ("characters", "expected"),
    [(28, "It was fine. I liked Mr."), (29, "It was fine. I liked Mr. Fox!"), (99, TEXT)],
)
def test_opening_ends_with_the_last_sentence_that_fits(characters, expected):
    assert reviews.opening(TEXT, characters) == expected


def test_opening_does_not_take_a_decimal_point_for_an_end():
    assert reviews.opening("It costs 3.50 now.", 11) == "It costs"


def test_a_tenth_is_held_out_by_text_alone():
    texts = [f"review {i}" for i in range(5_000)]
    parts = reviews.split(
        [reviews.Review(text, i % 2 == 0, "imdb") for i, text in enumerate(texts)]
    )
    kept, held = ({review.text for review in part} for part in parts)
    assert kept | held == set(texts)
    assert not kept & held
    assert 0.085 < len(held) / len(texts) < 0.115
    assert reviews.is_held_out("Review 7") == reviews.is_held_out("review 7")
