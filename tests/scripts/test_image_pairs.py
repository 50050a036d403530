import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from load_script import load_script
from PIL import Image

from rlfactory.prompts.shapes import ShapesPrompts

SCRIPT = Path(__file__).parents[2] / "scripts" / "examples" / "image_pairs.py"


@pytest.fixture
def script() -> ModuleType:
    return load_script(SCRIPT)


def test_the_best_of_a_group_is_chosen_and_one_without_a_best_left_out(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ShapesPrompts().draw(2, seed=0, iteration=0)
    images = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.ones((1, 8, 8, 3), np.uint8)
    monkeypatch.setattr(script, "groups", lambda *_: ((prompt, images) for prompt in prompts))
    scores = iter([[0.5, 0.2, 0.9, 0.2], [0.5] * 4])
    monkeypatch.setattr(script.Shapes, "score", lambda *_: {"shapes": torch.tensor(next(scores))})
    (tmp_path / "images").mkdir()
    (row,) = script.rows(prompts, 0, tmp_path)
    assert row["prompt"] == prompts[0].text
    assert row["include"] == prompts[0].metadata["include"]
    shown = {kind: Image.open(tmp_path / row[kind]) for kind in ("chosen", "rejected")}
    assert {kind: np.asarray(image).max() for kind, image in shown.items()} == {
        "chosen": 2,
        "rejected": 1,
    }


@pytest.mark.slow
def test_a_file_of_pairs_is_written(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "AT_ONCE", 3)
    monkeypatch.setattr("sys.argv", ["image_pairs.py", str(tmp_path / "pairs"), "--count", "4"])
    script.main()
    lines = (tmp_path / "pairs" / "pairs.jsonl").read_text().splitlines()
    assert 0 < len(lines) <= 4
    for row in map(json.loads, lines):
        for kind in ("chosen", "rejected"):
            assert Image.open(tmp_path / "pairs" / row[kind]).size == (64, 64)
