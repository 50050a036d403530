import math
from pathlib import Path

from PIL import Image

from rlfactory.report.sample_pairs import Sample, SamplePair, choose, sample_pairs
from rlfactory.run.folder import RunFolder
from rlfactory.run.samples import image_file, sample_table

NAN = float("nan")


def pair(before: float, after: float) -> SamplePair:
    return SamplePair(f"{before} {after}", Sample(before), Sample(after))


def table(
    folder: Path, iteration: int, scores: list[float], texts: list[str] | None = None
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    prompts = [f"p{i}" for i in range(len(scores))]
    path = folder / f"eval_{iteration:06d}.json"
    sample_table("t", prompts, texts, {"main": scores, "other": scores}).save(path)


def test_the_first_and_the_last_evaluation_make_pairs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    table(folder.samples, 0, [0.1, 0.2], ["a", "b"])
    assert sample_pairs(folder, "main") == []
    table(folder.samples, 5, [9.0, 9.0], ["x", "y"])
    table(folder.samples, 1000000, [0.5, NAN], ["c", "d"])
    first, second = sample_pairs(folder, "main")
    assert first == SamplePair("p0", Sample(0.1, "a"), Sample(0.5, "c"))
    assert math.isnan(second.after.score)


def test_images_are_found_by_iteration_and_row(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for iteration in (0, 3):
        table(folder.samples, iteration, [0.5, 0.5])
    file = image_file(folder.samples, 3, 1)
    file.parent.mkdir()
    Image.new("RGB", (2, 2)).save(file)
    pairs = sample_pairs(folder, "main")
    assert [p.after.image for p in pairs] == [None, file]
    assert [p.before.image for p in pairs] == [None, None]


def test_a_damaged_table_makes_no_pairs(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    table(folder.samples, 0, [0.5])
    (folder.samples / "eval_000004.json").write_text("{")
    assert sample_pairs(folder, "main") == []


def test_what_changed_most_and_what_is_best_are_chosen() -> None:
    up, down, best, unscored = pair(0.1, 0.6), pair(0.5, 0.2), pair(0.9, 0.9), pair(NAN, 1.0)
    chosen = choose([up, down, best, unscored], count=1)
    assert {title: [pair.prompt for pair in some] for title, some in chosen.items()} == {
        "Most improved": [up.prompt],
        "Most worsened": [down.prompt],
        "Best after training": [best.prompt],
        "All others": [unscored.prompt],
    }
    assert chosen["Most worsened"][0].tags == ["Most worsened", "Worst after training"]
    assert choose([]) == {}
    several = [pair(0.0, float(i)) for i in range(16)]
    assert [len(some) for some in choose(several).values()] == [4, 4, 8]
    assert [len(some) for some in choose(several[:8]).values()] == [2, 2, 4]
    assert "Most worsened" not in choose([up])
