import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rlfactory.report.statistics import bootstrap_interval, paired_change
from rlfactory.report.summary import (
    changes,
    mean_sections,
    score_sections,
    where_to_look,
    write_summary,
)
from rlfactory.report.text_table import Terminal, markdown_sections
from rlfactory.run.environment import Environment, record_environment
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores, read_sets, set_pairs

METRICS: list[dict[str, float | None]] = [
    {"iteration": 0, "eval/strict/mean": 0.5},
    {
        "iteration": 0,
        "time/sample": 3.0,
        "time/score": 1.0,
        "time/learn": 4.0,
        "memory/peak_gb": 2.5,
    },
    {
        "iteration": 1,
        "time/sample": 1.0,
        "time/score": 1.0,
        "time/learn": None,
        "memory/peak_gb": 1.0,
    },
]


def pair() -> tuple[Scores, Scores]:
    rng = np.random.default_rng(0)
    prompts = [f"prompt {i}" for i in range(120)]
    kinds = ["colors", "counting", "position"] * 40
    strict = (rng.random(120) < 0.5).astype(float)
    better = np.where(rng.random(120) < 0.4, 1.0, strict)
    better[0] = np.nan
    noise = rng.normal(size=(2, 120))
    return (
        Scores(prompts, {"strict": strict, "noise": noise[0]}, kinds, diversity=0.30),
        Scores(prompts, {"strict": better, "noise": noise[1]}, kinds, diversity=0.28),
    )


def test_changes_are_paired_over_all_and_over_each_category() -> None:
    before, after = pair()
    table = changes(before, after)
    assert list(table) == ["strict", "noise"]
    assert list(table["strict"]) == ["all", "colors", "counting", "position"]
    old, new = before.values["strict"], after.values["strict"]
    assert table["strict"]["all"] == paired_change(old, new)
    assert table["strict"]["counting"] == paired_change(old[1::3], new[1::3])
    assert table["strict"]["all"].count == 119
    assert table["strict"]["all"].low > 0


def test_intervals_of_changes_are_over_prompts_and_not_over_their_samples() -> None:
    before, after = (
        Scores(s.prompts * 3, {"strict": np.tile(s.values["strict"], 3)}, noises=3) for s in pair()
    )
    single = changes(*pair())["strict"]["all"]
    assert changes(before, after)["strict"]["all"] == single


def test_other_prompts_make_no_pairs() -> None:
    before, after = pair()
    other = Scores(after.prompts[::-1], after.values, after.categories)
    with pytest.raises(ValueError, match="same prompts"):
        changes(before, other)


def markdown(before: Scores, after: Scores) -> str:
    return "\n".join(markdown_sections(score_sections({"": (before, after)})))


def test_the_note_calls_prompts_held_out_only_where_none_is_trained_on() -> None:
    before, after = pair()
    assert "the same evaluation prompts" in markdown(before, after)
    first, last = (replace(scores, separate=True) for scores in (before, after))
    assert "the same held-out prompts" in markdown(first, last)


def test_the_note_says_which_way_is_better() -> None:
    before, after = pair()
    assert "is better" not in markdown(before, after)
    before = replace(before, better={"strict": "higher", "noise": "lower"})
    assert "Higher is better in strict; lower is better in noise." in markdown(before, after)


def test_without_categories_there_is_one_row_a_score() -> None:
    before, after = (Scores(["a", "b"], {"x": np.array([0.0, 1.0])}) for _ in range(2))
    assert list(changes(before, after)["x"]) == ["all"]
    (section,) = score_sections({"": (before, after)})
    assert len(section.table.lines) == 1


def test_what_is_clear_stands_out() -> None:
    before, after = pair()
    whole, kinds = score_sections({"": (before, after)})
    assert (whole.folded, kinds.folded) == (False, True)
    assert whole.table.lines[0][3] == f"{changes(before, after)['strict']['all'].difference:+.3f}"
    assert whole.table.strong == {(0, 3)}
    assert whole.table.lines[2][:4] == ["diversity", "0.300", "0.280", "-0.020"]
    assert kinds.table.lines[1][0] == "strict, counting"


def test_the_page_has_results_cost_and_pointers(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "my_run")
    for path in (folder.grid(0), folder.grid(60), folder.strip, folder.curves):
        path.write_text("")
    for name in ("step_000050", "step_000060", "best.json", "summary.md"):
        (folder.checkpoints / name).mkdir()
    before, after = pair()
    write_summary(folder, {"": (before, after)}, METRICS)
    text = folder.summary.read_text()
    change = changes(before, after)["strict"]["all"]
    assert (
        f"| strict | {change.before:.3f} | {change.after:.3f} | **+{change.difference:.3f}** |"
        in text
    )
    main, details = text.split("<details><summary>By category of prompts</summary>")
    assert "| strict, counting |" not in main
    assert "| strict, counting |" in details
    assert "| diversity | 0.300 | 0.280 | -0.020 |  |  |" in text
    assert "8 s (sample 40 %, score 20 %, learn 40 %)" not in text
    assert "10 s (sample 40 %, score 20 %, learn 40 %)" in text
    assert "peak memory: 2.50 GB" in text
    links = re.findall(r"\]\((.*?)\)", text)
    names = ("samples/eval_000000.png", "samples/eval_000060.png", "samples/strip.png")
    assert {*names, "curves.png", "checkpoints/step_000060"} == {*links}
    assert all((folder.path / link).exists() for link in links)
    assert f'rlfactory sample {folder.path} --prompt "..."' in text
    assert text.startswith("# my\\_run\n\n2 iterations of training.\n\n## Scores on")


def test_a_run_that_was_interrupted_says_so(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_summary(folder, {"": (pair()[0], None)}, [])
    text = folder.summary.read_text()
    assert "Evaluated once." in text
    assert "nothing was measured" in text
    assert "| strict |" in text
    assert "Advice" not in text


def test_a_name_of_a_run_is_only_text(tmp_path: Path) -> None:
    (run := tmp_path / "a`<b>").mkdir()
    write_summary(RunFolder(run), {}, METRICS)
    text = RunFolder(run).summary.read_text()
    assert text.startswith("# a\\`\\<b>\n")
    assert f"- more samples: ``rlfactory sample '{run}'" in text


def test_advice_stands_in_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    write_summary(folder, {"": (pair()[0], None)}, [], advice=["go slow"])
    assert "## Advice\n\n- go slow\n\n## Cost" in folder.summary.read_text()


def test_only_what_exists_is_pointed_to(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (command,) = where_to_look(folder)
    assert command.startswith("more samples: rlfactory sample ")
    folder.objects.write_text("{}")
    assert where_to_look(folder) == ["more samples: run.samples([...])"]
    folder.grid(0).write_text("")
    folder.curves.write_text("")
    assert [line.split(":")[0] for line in where_to_look(folder)][:2] == ["samples", "curves"]


def test_it_says_how_the_run_was_made(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.command.write_text("rlfactory algo=nft 'x=`y`'\n")
    for device in ("NVIDIA A100", "NVIDIA H200"):
        environment = Environment(device, 2, {"torch": "2.13"}, "abc+")
        record_environment(folder.environment, environment)
    metrics: list[dict[str, float | None]] = [{"iteration": 1, "time": 3700.0}]
    write_summary(folder, {"": (pair()[0], None)}, metrics)
    text = folder.summary.read_text()
    assert "- device: 2 × NVIDIA A100, then 2 × NVIDIA H200" in text
    assert "- command: ``rlfactory algo=nft 'x=`y`'``\n" in text
    assert "- git commit: abc+ (+: with changes)" in text
    assert "- versions: torch 2.13" in text
    assert "- wall time: 1:01:40 in all" in text
    assert "0 iterations of training" in text


def test_a_single_pair_has_no_interval() -> None:
    before, after = (Scores(["a"], {"x": np.array([value])}) for value in (0.0, 1.0))
    assert "| x | 0.000 | 1.000 | +1.000 | – | 1 |" in markdown(before, after)


def test_the_rounding_errors_of_numbers_are_not_shown() -> None:
    before, after = (Scores(["a"], {"x": np.zeros(1)}, kl=kl) for kl in (-1.1e-7, 0.02))
    assert "| KL a token | 0.000 | 0.020 | +0.020 |  |  |" in markdown(before, after)
    pair = (
        Scores(["a"], {"x": np.zeros(1)}, diversity=0.2143565),
        Scores(["a"], {"x": np.zeros(1)}, diversity=0.2143565 - 3e-8),
    )
    (section,) = score_sections({"": pair})
    assert section.table.lines[1][1:4] == ["0.214", "0.214", "+0.000"]


def save_set(folder: RunFolder, name: str, *evaluations: Scores) -> None:
    for iteration, scores in enumerate(evaluations):
        scores.save(folder.prompt_set(name).evaluation(iteration))


def test_each_prompt_set_has_its_changes(capsys: pytest.CaptureFixture[str]) -> None:
    first, last = (Scores(["a", "b"], {"ocr": np.array([v, v])}) for v in (0.25, 0.75))
    Terminal().sections(score_sections({"": pair(), "signs": (first, last)}))
    lines = capsys.readouterr().out
    below = lines[lines.index("Scores on signs") :].splitlines()
    assert below[2].split() == ["ocr", "0.250", "0.750", "+0.500", "+0.500", "…", "+0.500", "2"]


def test_the_summary_has_a_section_for_each_prompt_set(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    before, after = pair()
    save_set(folder, "signs", before, after)
    sets = set_pairs(read_sets(folder))
    write_summary(folder, {"": (before, after), **sets}, METRICS)
    own, _, section = folder.summary.read_text().partition("## Scores on signs")
    change = changes(before, after)["strict"]["all"]
    assert f"| strict | {change.before:.3f} | {change.after:.3f} |" in section
    assert "| strict, counting |" in section
    assert own.startswith("# run")
    write_summary(folder, {name: (before, None) for name in ("", "signs")}, METRICS)
    _, _, section = folder.summary.read_text().partition("## Scores on signs")
    assert f"| strict | {before.means()['strict']:.3f} |" in section
    assert "Evaluated once." in section


def test_samples_of_prompt_sets_are_pointed_to(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    own = folder.prompt_set("signs")
    own.samples.mkdir(parents=True)
    own.grid(0).write_text("")
    own.grid(4).write_text("")
    assert f"samples on signs: {own.grid(4)}" in where_to_look(folder)


def test_means_have_intervals_over_prompts_and_a_row_for_each_category() -> None:
    scores, _ = pair()
    twice = Scores(
        scores.prompts * 2, {"strict": np.tile(scores.values["strict"], 2)}, ["x"] * 240, noises=2
    )
    own, kinds, signs, _ = mean_sections({"": scores, "signs": twice})
    low, high = bootstrap_interval(scores.values["strict"])
    cells = [f"{scores.means()['strict']:.3f}", f"{low:.3f} … {high:.3f}", "120"]
    assert own.table.lines[0] == ["strict", *cells]
    names = [f"strict, {kind}" for kind in ("colors", "counting", "position")]
    assert [line[0] for line in kinds.table.lines[:3]] == names
    counting = scores.values["strict"][1::3]
    assert kinds.table.lines[1][1] == f"{counting.mean():.3f}"
    assert kinds.table.lines[1][-1] == "40"
    assert (signs.title, signs.table.lines) == ("Scores on signs", [["strict", *cells]])
