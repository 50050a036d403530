"""The tables of full-size models' defaults."""

import importlib
import sys
from pathlib import Path

DOCS = str(Path(__file__).parents[2] / "scripts" / "docs")
sys.path.insert(0, DOCS)
defaults = importlib.import_module("defaults")
sys.path.remove(DOCS)


def test_a_recipe_of_its_own_is_a_row() -> None:
    head, _, row = defaults.by_algorithm("flux_kontext").splitlines()
    cells = dict(zip(*(line.strip("| ").split(" | ") for line in (head, row)), strict=True))
    assert cells["`algo`"] == "`grpo`"
    assert cells["schedule, dynamics"].startswith("uniform, flow_sde")
    assert float(cells["peak, GiB"]) > 10


def test_every_full_size_model_of_images_with_a_recipe_has_a_table() -> None:
    names = {p.stem for p in (Path(DOCS).parents[1] / "conf" / "recipe").glob("*.yaml")}
    pairs = {(m, a) for m in defaults.options("model") for a in defaults.algorithms()}
    assert {model for model, algo in pairs if f"{model}_{algo}" in names} == {*defaults.MODELS}
