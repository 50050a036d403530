"""`rlfactory inspect`, through the command."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from markupsafe import escape
from PIL import Image

from rlfactory.cli import app
from rlfactory.config.overrides import plan_from_words
from rlfactory.run.folder import RunFolder
from rlfactory.tools.inspect.analysis import Survey
from rlfactory.tools.inspect.command import page, samples
from rlfactory.tools.inspect.hooked_model import InspectionError

from .conftest import SAMPLES, WIDTH, Words

SHARE_OF_E = """
def share_of_e(prompts, completions):
    return [text.count("e") / max(len(text), 1) for text in completions]
def nothing(prompts, completions):
    return [0.0 for text in completions]
def letters(prompts, completions):
    return [sum(c.isalpha() for c in text) for text in completions]
"""
FIGURES = {"lens.png", "attribution.png", "direction.png"}


def train(run: Path, gpt2_folder: Path, *more: str) -> Path:
    judge = run.parent / "judge.py"
    judge.write_text(SHARE_OF_E)
    words = [
        f"run_dir={run}",
        "model=gpt2",
        f"model.path={gpt2_folder}",
        "reward=function",
        f"reward.function={judge}:letters",
        "prompts.starts=[a, the, It was]",
        "hardware=cpu",
        "dynamics.length=12",
        "evaluation.prompts=3",
        "sample_batch=64",
        "iterations=2",
        "prompts_per_iteration=8",
        "ema.decay=0.5",
        "optimizer.lr=3e-3",
    ]
    assert app.dispatch([*words, *more]) == 0
    return run


@pytest.mark.slow
def test_it_leaves_figures_and_numbers(
    gpt2_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", gpt2_folder)
    before = {p: p.read_bytes() for p in RunFolder(run).checkpoints.rglob("*") if p.is_file()}
    assert app.dispatch(["inspect", str(run), "--prompts", "3", "--weights", "policy"]) == 0
    assert "inspect.html" in capsys.readouterr().out
    folder = run / "inspect"
    assert {p.name for p in folder.iterdir()} == FIGURES | {"inspect.json", "inspect.html"}
    assert all(Image.open(folder / name).width > 400 for name in FIGURES)
    found = json.loads((folder / "inspect.json").read_text())
    page = (folder / "inspect.html").read_text()
    assert "good is a high letters" in page
    assert sum(found["direction"]["gap_parts"].values()) == pytest.approx(1, abs=1e-3)
    shift = sum(found["direction"]["shift_parts"].values())
    assert shift == pytest.approx(found["direction"]["shift"], abs=1e-3)
    assert all(row["tuned"] > row["base"] for row in found["rose"])
    assert all(row["tuned"] < row["base"] for row in found["fell"])
    assert all(f"<code>{escape(row['token'])}</code>" in page for row in found["rose"])
    assert {p: p.read_bytes() for p in before} == before


@pytest.mark.slow
@pytest.mark.parametrize("words", [["regularizer=none"], ["model.finetune=lora"]], ids=str)
def test_the_base_is_what_the_run_began_with(
    gpt2_folder: Path, tmp_path: Path, words: list[str]
) -> None:
    pages = []
    for name, more in (("kept", []), ("other", words)):
        run = train(tmp_path / name, gpt2_folder, *more)
        assert app.dispatch(["inspect", str(run), "--prompts", "2"]) == 0
        found = json.loads((run / "inspect" / "inspect.json").read_text())
        pages.append(found["direction"])
    sampled = ["sample", str(run), "--prompt", "a", "--weights", "reference"]
    assert app.dispatch(sampled) == 0, "the base can be sampled too, kept or not"
    assert pages[0]["gap_parts"] == pytest.approx(pages[1]["gap_parts"], abs=1e-3)


@pytest.mark.slow
def test_without_a_difference_in_reward_there_is_no_direction(
    gpt2_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = ["precision=bf16", "model.finetune=lora"]  # which would not sum to the logits
    run = train(tmp_path / "run", gpt2_folder, *half)
    monkeypatch.setenv("RLFACTORY_TRUST", str(tmp_path / "judge.py"))  # its config is edited
    config = RunFolder(run).config
    config.write_text(config.read_text().replace(":letters", ":nothing"))
    (run / "inspect").mkdir()
    (run / "inspect" / "direction.png").write_bytes(b"of an earlier look")
    assert app.dispatch(["inspect", str(run), "--prompts", "2"]) == 0
    assert "no direction" in capsys.readouterr().out
    assert {p.name for p in (run / "inspect").glob("*.png")} == FIGURES - {"direction.png"}
    assert "no direction" in (run / "inspect" / "inspect.html").read_text()


def test_what_can_not_be_inspected_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(plan_from_words("model=tiny_sd3").frozen())
    with pytest.raises(InspectionError, match="only language models"):
        app.dispatch(["inspect", str(tmp_path)])


def test_refusals(refused, tmp_path: Path) -> None:
    assert "is no run folder" in refused("inspect", str(tmp_path / "none"))
    (tmp_path / "config.yaml").touch()
    assert "allowed are 1 or more" in refused("inspect", str(tmp_path), "--prompts", "0")


def test_best_and_worst_samples_come_with_all_of_their_tokens(survey: Survey) -> None:
    found = samples(survey, Words())
    assert [sample["score"] for sample in found] == pytest.approx([0.9, 0.3, 0.1])
    assert [sample["kind"] for sample in found] == ["best"] * 3
    assert all(len(sample["tokens"]) == WIDTH - 10 for sample in found)
    many = replace(survey, scores=torch.arange(float(SAMPLES)))
    assert [(s["kind"], s["score"]) for s in samples(many, Words())] == [
        *(("best", 3.0), ("best", 2.0), ("best", 1.0)),
        ("worst", 0.0),
    ]


def test_a_token_knows_how_much_likelier_it_became(survey: Survey) -> None:
    first = samples(survey, Words())[0]
    number = 2
    rows = survey.base.sample == number
    expected = (survey.tuned.next - survey.base.next)[rows, -1] / torch.log(torch.tensor(2.0))
    assert [t["change"] for t in first["tokens"]] == pytest.approx(expected.tolist(), rel=1e-5)
    assert first["tokens"][0]["text"] == Words().decode([10])
    assert first["prompt"].startswith(" wonderful great")


def test_the_page_colours_tokens_and_escapes_them() -> None:
    tokens = [{"text": "<b>", "change": 2.0}, {"text": "x\n", "change": -1.0}]
    sample = {"kind": "best", "score": 0.5, "prompt": "a & b", "tokens": tokens}
    found = {"samples": [sample], "rose": [], "fell": [], "direction": None}
    html = page(found, "run <1>", "good is high", ["lens"])
    assert "Inside run &lt;1&gt;" in html
    assert "Best sample, score 0.500" in html
    assert "<b>a &amp; b</b>" in html
    assert "var(--up) 100%" in html
    assert "var(--down) 50%" in html
    assert 'title="×4">&lt;b&gt;</span>' in html
    assert "x⏎" in html
    assert 'src="lens.png"' in html
