"""Data of a small summarisation task, and its exact score.

python scripts/examples/summaries.py TO    # write the files

A review praises or pans three aspects of a film, and its summary names them in order as good or
bad. Demonstrations have errors, as people's do; of two completions the chosen one is nearer to the
truth. TO gets `demonstrations.jsonl` (prompt, completion), `pairs.jsonl` (prompt, chosen,
rejected) and `prompts.jsonl` (prompt), each with the truth.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

ASPECTS = ("acting", "plot", "music", "script", "ending", "cast", "dialogue", "story")
WORDS = {
    "good": ("superb", "lovely", "brilliant", "great", "excellent", "wonderful", "perfect"),
    "bad": ("dull", "awful", "terrible", "boring", "weak", "poor", "silly"),
}
OTHER = {"good": "bad", "bad": "good"}
LABELS = ("demonstrations", "pairs", "prompts")
Facts = list[tuple[str, str]]


def summary(facts: Sequence[tuple[str, str]]) -> str:
    """` good acting, bad plot, good music.`, of aspects with their verdicts."""
    return " " + ", ".join(f"{verdict} {aspect}" for aspect, verdict in facts) + "."


def review(random: Random) -> tuple[str, Facts]:
    """A prompt, and the facts that its summary should state."""
    aspects = random.sample(ASPECTS, 3)
    facts = [(aspect, random.choice(("good", "bad"))) for aspect in aspects]
    said = [f"The {aspect} was {random.choice(WORDS[verdict])}." for aspect, verdict in facts]
    return f"Review: {' '.join(said)} Summary:", facts


def with_errors(facts: Facts, share: float, random: Random) -> Facts:
    """The facts, each verdict turned into the other with a probability."""
    return [(a, OTHER[v] if random.random() < share else v) for a, v in facts]


def rows(kind: str, count: int, errors: float, seed: int) -> Iterator[dict[str, str]]:
    """The rows of a file; files of other kinds or seeds have other reviews."""
    random = Random(f"{kind} {seed}")
    while count:
        prompt, facts = review(random)
        first, second = (with_errors(facts, errors, random) for _ in range(2))
        if kind == "pairs":
            better, worse = sorted((first, second), key=lambda f: -_right(f, facts))
            if _right(better, facts) == _right(worse, facts):
                continue
            pair = {"chosen": summary(better), "rejected": summary(worse)}
            yield {"prompt": prompt, **pair, "truth": summary(facts)}
        elif kind == "demonstrations":
            yield {"prompt": prompt, "completion": summary(first), "truth": summary(facts)}
        else:
            yield {"prompt": prompt, "truth": summary(facts)}
        count -= 1


def _right(facts: Facts, truth: Facts) -> int:
    return sum(a == b for a, b in zip(facts, truth, strict=True))


def correct(completions: Sequence[str], truth: Sequence[str]) -> list[float]:
    """The share of a summary's three statements that are right and at their places; 0 for a text
    with more or fewer of them.
    """
    return [_share(text, right) for text, right in zip(completions, truth, strict=True)]


def _share(text: str, truth: str) -> float:
    found, right = (line.strip().rstrip(".").split(", ") for line in (text, truth))
    same = sum(a == b for a, b in zip(found, right, strict=False))
    return same / len(right) if len(found) == len(right) else 0.0


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("to", type=Path)
    parser.add_argument("--count", type=int, default=2000, help="rows of each file")
    parser.add_argument("--errors", type=float, default=0.3, help="of the people, 0 to 1")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    for kind in LABELS:
        lines = [json.dumps(row) for row in rows(kind, args.count, args.errors, args.seed)]
        (args.to / f"{kind}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
