"""Components of another folder: their plan has the same lines, by what stands beside them."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from rlfactory.config.memory.model_parts import parts_of
from rlfactory.config.memory.peak_memory import traits_of
from rlfactory.config.memory.phases import image_use, latent_area
from rlfactory.config.nfe import passes_per_sample
from rlfactory.config.overrides import plan_from_words
from rlfactory.model.pipelines.local_models import zoo_path

MODEL = """
import torch_is_not_imported
from rlfactory.model.flow_model import FlowModel

class Mine(FlowModel):
    pipeline = "MinePipeline"
    clip_tokens = 3
    activations = "mine.json"
"""
ALGORITHM = """
import torch_is_not_imported
from rlfactory.algo.base import Algorithm
from rlfactory.algo.grpo import GRPO

class Sparse(GRPO):
    compared_weight_sets = ("old",)
    decided_by = {"old_log_probs": ("again", {True: "recomputed", False: "sampled"})}

    @staticmethod
    def items(options, run, steps):
        import math

        return math.ceil(len(steps) / options["every"])

    def __init__(self, dynamics=None, advantage=None, *, every: int = 2, again: bool = False):
        pass
"""
ROW = {"name": "mine", "class": "MineTransformer", "size": 100.0, "targets": [8, 16], "lora": 50}
WAYS = ("lora float", "full float")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline of an architecture of its own, its adapter, and an algorithm."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine_model.py").write_text(MODEL)
    (tmp_path / "mine_algo.py").write_text(ALGORITHM)
    ways = {way: [[1000, 10], [30_000, 70]] for way in WAYS}
    (tmp_path / "mine.json").write_text(json.dumps([ROW | ways]))
    path = tmp_path / "pipeline"
    (path / "transformer").mkdir(parents=True)
    index = {"transformer": ["mine", "MineTransformer"], "vae": ["diffusers", "AutoencoderKL"]}
    (path / "model_index.json").write_text(json.dumps({"_class_name": "MinePipeline", **index}))
    network = {"_class_name": "MineTransformer", "num_layers": 4}
    (path / "transformer" / "config.json").write_text(json.dumps(network))
    save_file({"x": np.zeros((50, 50))}, path / "transformer" / "model.safetensors")
    shutil.copytree(zoo_path("tiny_sd3") / "vae", path / "vae")
    return path


def planned(folder: Path, *words: str):
    model = ["++model._target_=mine_model.Mine", f"model.path={folder}", "model.finetune=full"]
    model += ["++model.size=64", "++model.lora_rank=8", "++model.text_tokens=32"]
    return plan_from_words("model=tiny_sd3", *model, "trust=[mine_model,mine_algo]", *words)


def test_a_family_has_the_plan_of_one_that_ships(folder: Path) -> None:
    shipped = plan_from_words("model=tiny_sd3").derived
    found = planned(folder).derived
    assert {row for row in shipped if "note" not in row} <= found.keys()
    assert found["passes"] == shipped["passes"]
    assert found["peak memory"].startswith("about 1.")
    many = planned(folder, "micro_batch=4096", "prompts_per_iteration=512", "hardware.memory_gb=1")
    assert "GiB at most: learning" in many.derived["peak memory"]
    assert "micro_batch=" in many.derived["note 1"]
    parts = parts_of(str(folder))
    assert parts["transformer"].size == 100
    use = image_use(many.config, traits_of(many.config))
    latents = latent_area(parts["vae"], many.config, 64)
    assert use.learning == pytest.approx(4096 * (30_000 * latents + 70 * (3 + 32)), rel=0.1)


def test_an_algorithm_counts_its_own_items(folder: Path) -> None:
    words = ["algo=grpo", "++algo._target_=mine_algo.Sparse", "window=all", "window.skip_last=0"]
    drop = ["~algo.clip_range", "~algo.step_fraction", "~algo.old_log_probs"]
    chosen = planned(folder, *words, *drop, "schedule.steps=5", "+algo.every=2").config
    assert passes_per_sample(chosen, traits_of(chosen)) == (5, 3, 3)
    again = {**chosen, "algo": {**chosen["algo"], "again": True}}
    assert passes_per_sample(again, traits_of(again))[1] > 3
