from dataclasses import replace

from rlfactory.report.run_content import RunContent
from rlfactory.report.sample_pairs import main_score
from rlfactory.run.folder import RunFolder
from rlfactory.run.scores import Scores


def test_a_page_knows_what_was_run_and_on_what(images: RunFolder) -> None:
    found = RunContent(images)
    assert (found.name, found.choices, found.main) == ("my run", "tiny_sd3, nft, shapes", "main")
    assert found.facts["Status"] == "done, iteration 4 of 4"
    assert found.facts["Device"] == "2 × NVIDIA H200"
    assert found.facts["Git commit"].startswith("0123456789ab+")
    assert found.facts["Seed"] == "7"
    assert "torch 2.13" in found.facts["Versions"]
    assert found.facts["Wall time"].startswith("0:09")
    assert found.ticks == [0, 4]
    assert found.sections[0].table.lines[0][-1] == "5"
    assert ("curves", "curves.png") in found.links
    assert "Command" not in found.facts


def test_prompts_are_called_held_out_only_where_all_evaluations_say_so(images: RunFolder) -> None:
    for iteration, label in ((0, "evaluation prompts"), (4, "held-out prompts")):
        path = images.evaluation(iteration)
        replace(Scores.load(path), separate=True).save(path)
        found = RunContent(images)
        assert found.sections[0].title == f"Scores on {label}"
        assert label in found.rows


def test_a_pair_is_shown_once_with_all_that_it_was_chosen_for(images: RunFolder) -> None:
    found = RunContent(images)
    pairs = [pair for some in found.kinds.values() for pair in some]
    assert sorted(p.prompt for p in pairs) == sorted(
        ["a <b>red</b> circle", "two squares", "一个红色的圆形", "a cat 🐱", "fifth"]
    )
    improved, *_ = found.kinds["Most improved"]
    assert improved.change > 0
    assert "Most improved" in improved.tags
    (worsened,) = found.kinds["Most worsened"]
    assert worsened.prompt == "two squares"
    assert worsened.tags == ["Most worsened", "Worst after training"]


def test_advice_comes_from_the_summary_unless_it_is_given(images: RunFolder) -> None:
    images.summary.write_text("# x\n\n## Advice\n\n- go slow\n- stop\n\n## Cost\n\n- 3 s\n")
    assert RunContent(images).advice == ["go slow", "stop"]
    assert RunContent(images, "interrupted", []).advice == []
    assert RunContent(images, "interrupted").facts["Status"] == "interrupted, iteration 4 of 4"


def test_a_run_that_has_hardly_begun_has_a_page(tmp_path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    found = RunContent(folder)
    assert (found.main, found.sections, found.kinds, found.curves) == ("", [], {}, [])
    assert main_score(folder) == ""


def test_what_is_damaged_is_left_out(images: RunFolder) -> None:
    images.config.write_text("{")
    images.evaluation(4).write_text("{")
    (images.samples / "eval_000000.json").write_text("{")
    found = RunContent(images)
    assert found.pairs[""][1] is None
    assert found.sections[0].note == "Evaluated once."
    assert found.kinds == {}
    assert found.main == "main"


def test_each_prompt_set_has_its_changes_and_its_curves(images: RunFolder) -> None:
    for iteration in (0, 4):
        scores = Scores.load(images.evaluation(iteration))
        replace(scores, separate=True).save(images.prompt_set("signs").evaluation(iteration))
    scores.save(images.prompt_set("once").evaluation(0))
    found = RunContent(images)
    titles = [section.title for section in found.sections if not section.folded]
    assert titles == ["Scores on evaluation prompts", "Scores on once", "Scores on signs"]
    by_title = {section.title: section for section in found.sections}
    assert by_title["Scores on once"].note == "Evaluated once."
    assert by_title["Scores on signs"].table.lines == by_title[titles[0]].table.lines
