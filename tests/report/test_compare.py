import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from rlfactory.config.problems import PlanError
from rlfactory.report.command import compare
from rlfactory.report.compare import (
    Pair,
    notes,
    print_comparison,
    read_pair,
    sections,
    write_comparison,
)
from rlfactory.report.text_table import Terminal, TextTable
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores

Make = Callable[..., Path]


def tables(pair: Pair) -> dict[str, TextTable]:
    return {section.title: section.table for section in sections(pair)}


def pair(tmp_path: Path, make_run: Make, **second: object) -> tuple[Path, Path]:
    a = make_run(tmp_path / "a", media="texts")
    return a, make_run(tmp_path / "b", **{"media": "texts", "after": 0.5, **second})


def test_configuration_scores_cost_and_responses_stand_side_by_side(
    tmp_path: Path, make_run: Make
) -> None:
    config = {"optimizer": {"lr": 0.1}, "logger": {"mode": "online"}}
    found = tables(read_pair(*pair(tmp_path, make_run, seed=2, config=config)))
    assert found["Configuration"].lines == [["seed", "0", "2"], ["optimizer.lr", "0.001", "0.1"]]
    (line,) = found["Scores on evaluation prompts"].lines
    assert line == [
        *("shapes", "0.200", "0.800", "0.200", "0.500"),
        *("-0.300", "-0.300 … -0.300", "3"),
    ]
    assert ["NFE", "4,000", "4,000"] in found["Cost"].lines
    assert found["Responses"].lines[0] == ["a red circle", "a red circle, 4", "a red circle, 4"]


def test_prompts_are_called_held_out_only_where_both_runs_say_so(
    tmp_path: Path, make_run: Make
) -> None:
    a, b = pair(tmp_path, make_run)
    for folder, label in ((a, "evaluation prompts"), (b, "held-out prompts")):
        for path in (folder / "evaluations").iterdir():
            path.write_text(json.dumps({**json.loads(path.read_text()), "separate": True}))
        assert f"Scores on {label}" in tables(read_pair(a, b))


def test_scores_on_prompt_sets_that_both_have_stand_below(tmp_path: Path, make_run: Make) -> None:
    a, b = pair(tmp_path, make_run)
    for folder, name, after in ((a, "signs", 0.5), (b, "signs", 0.75), (b, "other", 1.0)):
        for iteration, value in ((0, 0.25), (4, after)):
            scores = Scores(["x", "y"], {"ocr": np.array([value, value])})
            scores.save(RunFolder(folder).prompt_set(name).evaluation(iteration))
    found = tables(read_pair(a, b))["Scores on evaluation prompts"]
    assert [line[0] for line in found.lines] == ["shapes", "signs/ocr"]
    assert found.lines[1][1:6] == ["0.250", "0.500", "0.250", "0.750", "+0.250"]
    assert found.lines[1][6:] == ["+0.250 … +0.250", "2"]


def test_other_prompts_make_no_pairs_and_that_is_said(tmp_path: Path, make_run: Make) -> None:
    a, b = pair(tmp_path, make_run)
    for path in (b / "evaluations").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "prompts": ["x", "y", "z"]}))
    both = read_pair(a, b)
    scores = tables(both)["Scores on evaluation prompts"]
    assert scores.lines[0][-3:] == ["-0.300", "–", "–"]
    assert any("no pairs" in note for note in notes(both))


def test_what_is_the_same_and_what_is_not_done_is_said(tmp_path: Path, make_run: Make) -> None:
    both = read_pair(*pair(tmp_path, make_run, status="interrupted"))
    assert "Configuration" not in tables(both)
    assert [*notes(both)][0] == "The configurations are the same."
    assert [*notes(both)][-1] == "b is not done (interrupted)."


def test_folders_of_one_name_are_told_apart(tmp_path: Path, make_run: Make) -> None:
    paths = [make_run(tmp_path / sweep / "nft-s0") for sweep in ("x", "y")]
    assert [side.name for side in read_pair(*paths)] == ["x/nft-s0", "y/nft-s0"]


def test_letters_head_the_columns_and_say_what_differs(
    tmp_path: Path, make_run: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = pair(tmp_path, make_run, config={"optimizer": {"lr": 0.1}})
    both = read_pair(a, b)
    assert [side.differs for side in both] == ["optimizer.lr=0.001", "optimizer.lr=0.1"]
    scores = tables(both)["Scores on evaluation prompts"]
    assert scores.heads[1:5] == ["A before", "A after", "B before", "B after"]
    print_comparison(both)
    assert "A: a (optimizer.lr=0.001) and B: b (optimizer.lr=0.1)" in capsys.readouterr().out
    seeds = [make_run(tmp_path / f"s{seed}", seed=seed) for seed in (3, 4)]
    assert [side.differs for side in read_pair(*seeds)] == ["seed=3", "seed=4"]


def test_a_narrow_terminal_cuts_no_interval(
    tmp_path: Path, make_run: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = make_run(tmp_path / ("a_long_name_of_a_run" * 3))
    both = read_pair(long, make_run(tmp_path / "b", after=0.5))
    written = StringIO()
    terminal = Terminal()
    terminal.console = Console(file=written, width=30, force_terminal=True, color_system=None)
    terminal.table(tables(both)["Scores on evaluation prompts"])
    assert "-0.300 … -0.300" in written.getvalue()


def test_it_is_printed_and_written_where_that_is_asked(
    tmp_path: Path, make_run: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(tmp_path / n, media="images", after=v) for n, v in (("a", 0.5), ("<b>", 0.9))]
    RunFolder(runs[1]).set_status("interrupted")
    out = tmp_path / "out"
    assert compare([*map(str, runs), "--out", str(out)]) == 0
    assert "+0.400" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["compare.md", "compare.png"]
    text = (out / "compare.md").read_text()
    assert "](compare.png)" in text
    assert "\n- \\<b> is not done" in text


def test_images_of_different_prompts_are_not_put_side_by_side(
    tmp_path: Path, make_run: Make
) -> None:
    runs = [make_run(tmp_path / name, media="images") for name in ("a", "b")]
    for path in (runs[1] / "evaluations").iterdir():
        content = json.loads(path.read_text())
        path.write_text(json.dumps({**content, "prompts": ["x", "y", "z"]}))
    written = write_comparison(read_pair(*runs), tmp_path / "out")
    assert [path.name for path in written] == ["compare.md"]


def test_what_is_no_run_is_told(tmp_path: Path, make_run: Make) -> None:
    a = make_run(tmp_path / "a")
    with pytest.raises(PlanError) as caught:
        read_pair(tmp_path, tmp_path / "nowhere")
    assert len(caught.value.problems) == 2
    (a / "config.yaml").unlink()
    with pytest.raises(PlanError, match="is damaged"):
        read_pair(a, a)


def test_a_damaged_evaluation_is_told(tmp_path: Path, make_run: Make) -> None:
    a = make_run(tmp_path / "a")
    (a / "evaluations" / "000004.json").write_text("{")
    with pytest.raises(PlanError, match="evaluations can't be read"):
        read_pair(a, a)


def test_pictures_and_texts_cannot_be_compared(tmp_path: Path, make_run: Make) -> None:
    runs = [make_run(tmp_path / media, media=media) for media in ("images", "texts")]
    with pytest.raises(PlanError, match="makes images"):
        read_pair(runs[0], runs[1])


def test_samples_that_cannot_be_read_are_left_out(tmp_path: Path, make_run: Make) -> None:
    path = make_run(tmp_path / "a", media="texts")
    (path / "samples" / "eval_000004.json").write_text("[1, ")
    assert "Responses" not in tables(read_pair(path, path))


def test_pictures_are_those_that_both_kept_with_their_own_scores(
    tmp_path: Path, make_run: Make
) -> None:
    runs = [make_run(tmp_path / name, media="images") for name in ("a", "b")]
    (runs[1] / "samples" / "strip" / "000004_0.png").unlink()
    pair = read_pair(*runs)
    first, second = (side.last_samples("shapes") for side in pair)
    assert [prompt for prompt, sample in second.items() if sample.image] == ["two squares"]
    assert first["two squares"].score == 0.5
    write_comparison(pair, tmp_path / "out")
    with Image.open(tmp_path / "out" / "compare.png") as picture:
        one = picture.height
    image = runs[1] / "samples" / "strip" / "000004_0.png"
    image.write_bytes((runs[0] / "samples" / "strip" / "000004_0.png").read_bytes())
    write_comparison(pair, tmp_path / "out")
    with Image.open(tmp_path / "out" / "compare.png") as picture:
        assert picture.height > 1.5 * one
