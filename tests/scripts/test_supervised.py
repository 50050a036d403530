"""The leaderboard's control: its tasks, its data, its loss, and a short run of it."""

import importlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from rlfactory.prompts.ops.held_out import is_held_out
from rlfactory.report.leaderboard import ENTRIES_FILE, draw_leaderboard, read_entries
from rlfactory.report.report import Entry
from rlfactory.sweep.sweep_file import file_of, read_sheet

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    folders = [str(SCRIPTS / "bench"), str(SCRIPTS / "zoo")]
    sys.path[:0] = folders
    yield importlib.import_module("supervised")
    for folder in folders:
        sys.path.remove(folder)


def data(script: ModuleType, count: int) -> object:
    pipe = script.base()
    x0 = torch.randn(count, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    words = script.tokenize(pipe, ["a red circle"] * count)
    return script.Captioned(x0, words, script.tokenize(pipe, [""]))


def test_tasks_are_evaluated_as_the_rows_of_the_leaderboard(script: ModuleType) -> None:
    sheet = read_sheet(file_of("leaderboard"))
    tasks = script.judged_tasks()
    assert {name: task.score for name, task in tasks.items()} == {
        "shapes": "shapes_strict",
        "JPEG": "jpeg_kb",
        "composition": "shapes_strict",
    }
    of_method = ("algo=", "algo.", "optimizer.", "group_size=", "prompts_per_iteration=")
    for line in sheet.rows:
        own = [word for word in line.overrides or [] if not word.startswith(of_method)]
        task = tasks[line.task]
        assert [*task.words, f"reward={task.reward}"] == [*sheet.sizes["tiny"], *own[1:], own[0]]
        assert task.target == sheet.tasks[line.task].target


def test_no_scene_has_a_held_out_caption(script: ModuleType) -> None:
    drawn = script.draw_scenes(60, 7)
    images, captions = script.trainable_scenes(60, 7)
    kept = [i for i, caption in enumerate(drawn[1]) if not is_held_out(caption)]
    assert 0 < len(kept) < 60
    assert captions == [drawn[1][i] for i in kept]
    assert torch.equal(images, drawn[0][kept])


def test_flow_loss_is_the_squared_error_of_the_velocity(script: ModuleType) -> None:
    pipe = script.base()
    batch = next(script.noisy_batches(data(script, 4), range(1), 0, 3.0, size=4))[1]
    seen = {}

    def transformer(x: torch.Tensor, **given: object) -> tuple[torch.Tensor]:
        seen.update(given, x=x)
        return (x,)

    embedded = SimpleNamespace(
        transformer=transformer,
        text_encoder=pipe.text_encoder,
        text_encoder_2=pipe.text_encoder_2,
        text_encoder_3=pipe.text_encoder_3,
    )
    loss = script.flow_loss(embedded, batch)
    t = batch.time.view(-1, 1, 1, 1)
    x = (1 - t) * batch.x0 + t * batch.eps
    assert torch.allclose(loss, (x - (batch.eps - batch.x0)).pow(2).mean())
    assert torch.allclose(seen["x"], x)
    assert torch.allclose(seen["timestep"], 1000 * batch.time)


def test_only_the_transformer_learns_until_the_budget_is_spent(
    script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    before = script.base()
    after = script.trained(data(script, 8), 1e-4, 0, script.Budget(sys.maxsize, 1e-3))
    assert "1 steps" in capsys.readouterr().out
    assert not torch.equal(after.transformer.proj_out.weight, before.transformer.proj_out.weight)
    for name in ("text_encoder", "text_encoder_3", "vae"):
        old, new = (getattr(pipe, name).state_dict() for pipe in (before, after))
        assert all(torch.equal(old[key], new[key]) for key in old)


def test_gain_is_the_share_of_the_way_to_the_target(script: ModuleType, tmp_path: Path) -> None:
    tasks = {"JPEG": script.JudgedTask((), "compressibility", "jpeg_kb", 0.69)}
    entries = script.entries_of(tasks, 3, {"JPEG": 1.69}, {"JPEG": 1.44})
    assert entries == [Entry("supervised", "JPEG", 3, 1.69, 1.44, pytest.approx(0.25), [], [])]
    draw_leaderboard(entries, tmp_path / "figure.png")  # it has no curve of training
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.slow
@pytest.mark.whole
def test_a_short_run_writes_entries_and_its_search(script: ModuleType, tmp_path: Path) -> None:
    few = ("evaluation.prompts=8", "evaluation.noises=1")
    tasks = {
        name: replace(task, words=(*task.words, *few))
        for name, task in script.judged_tasks().items()
    }
    script.run(tmp_path, tasks, [0, 1], [3e-1, 1e-5], 200, script.Budget(2))
    found = read_entries(tmp_path / ENTRIES_FILE)
    assert [(e.task, e.seed) for e in found] == [(t, s) for s in (0, 1) for t in tasks]
    assert found[0].before == found[3].before
    losses = json.loads((tmp_path / "search.json").read_text(encoding="utf-8"))
    assert losses["1e-05"] < losses["0.3"]
    assert [*losses] == ["before", "0.3", "1e-05"]
    assert losses["1e-05"] == pytest.approx(losses["before"], rel=0.02)
