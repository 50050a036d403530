"""Configurations of flow_grpo and ddpo-pytorch become the plans of their presets."""

from pathlib import Path

import pytest

from rlfactory.config.diff import differences
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.peers.files import of_function
from rlfactory.config.problems import PlanError

BASE = """
import ml_collections

def get_config():
    config = ml_collections.ConfigDict()
    config.seed = 42
    config.num_epochs = 2500
    config.mixed_precision = "fp16"
    config.resolution = 512
    config.run_name = ""
    config.pretrained = pretrained = ml_collections.ConfigDict()
    pretrained.model = "stabilityai/stable-diffusion-3.5-medium"
    config.sample = sample = ml_collections.ConfigDict()
    sample.num_steps = 10
    sample.eval_num_steps = 40
    sample.guidance_scale = 4.5
    sample.global_std = True
    sample.noise_level = 0.7
    config.train = train = ml_collections.ConfigDict()
    train.learning_rate = 3e-4
    train.adam_weight_decay = 1e-4
    train.clip_range = 1e-4
    train.adv_clip_max = 5
    train.max_grad_norm = 1.0
    train.lora_path = None
    return config
"""
GRPO = """
import imp, os
base = imp.load_source("base", os.path.join(os.path.dirname(__file__), "base.py"))

def geneval():
    gpu_number = 32
    config = base.get_config()
    config.dataset = os.path.join(os.getcwd(), "dataset/geneval")
    config.sample.train_batch_size = 9
    config.sample.num_image_per_prompt = 24
    config.sample.num_batches_per_epoch = int(48 / (gpu_number * 9 / 24))
    config.train.batch_size = config.sample.train_batch_size
    config.train.gradient_accumulation_steps = config.sample.num_batches_per_epoch // 2
    config.train.timestep_fraction = 0.99
    config.train.beta = 0.04
    config.train.ema = True
    config.reward_fn = {"geneval": 1.0}
    config.prompt_fn = "geneval"
    config.surprise = 3
    return config

def fast():
    config = geneval()
    config.sample.guidance_scale = 1
    config.train.clip_range = 1e-5
    config.train.beta = 0
    config.sample.noise_level = 0.8
    config.sample.sde_window_size = 3
    config.sample.sde_window_range = (0, config.sample.num_steps // 2)
    config.sample.sde_type = "cps"
    gpu_number = 32
    return config

def not_one():
    return 3
"""
DDPO = """
import ml_collections

def get_config():
    config = ml_collections.ConfigDict()
    config.seed = 42
    config.num_epochs = 100
    config.mixed_precision = "fp16"
    config.pretrained = ml_collections.ConfigDict()
    config.pretrained.model = "CompVis/stable-diffusion-v1-4"
    config.sample = ml_collections.ConfigDict()
    config.sample.num_steps = 50
    config.sample.eta = 1.0
    config.sample.guidance_scale = 5.0
    config.sample.batch_size = 8
    config.sample.num_batches_per_epoch = 4
    config.train = ml_collections.ConfigDict()
    config.train.batch_size = 4
    config.train.gradient_accumulation_steps = 2
    config.train.learning_rate = 3e-4
    config.prompt_fn = "imagenet_animals"
    config.reward_fn = "jpeg_compressibility"
    config.per_prompt_stat_tracking = {"buffer_size": 16, "min_count": 16}
    return config
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {"base.py": BASE, "grpo.py": GRPO, "dgx.py": DDPO}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "name", "gpus", "preset"),
    [
        ("grpo.py", "geneval", 1, "flow_grpo"),
        ("grpo.py", "fast", 1, "flow_grpo_fast"),
        ("dgx.py", "get_config", 8, "ddpo"),
    ],
)
def test_they_are_their_presets(folder: Path, file: str, name: str, gpus: int, preset: str) -> None:
    translation = of_function(folder / file, name, gpus)
    made = plan_composed(compose(translation.command()))
    wanted = plan_composed(compose([f"experiment=peer/{preset}", "recipe=none"]))
    found = {key: (theirs, ours) for key, theirs, ours in differences(wanted.config, made.config)}
    # evaluation there has the steps of training; here the model's file has its own
    found.pop("evaluation.steps", None)
    assert found.pop("model", None) is None
    assert {k: v for k, v in found.items() if not k.startswith("model.")} == {}
    assert ("surprise" in translation.dropped) is (file == "grpo.py")


def test_what_is_no_configuration_is_refused(folder: Path) -> None:
    with pytest.raises(PlanError, match="has no function genevall; functions are") as refused:
        of_function(folder / "grpo.py", "genevall", 1)
    assert refused.value.problems[0].fix.endswith("grpo.py:geneval")
    with pytest.raises(PlanError, match="no configuration of flow_grpo"):
        of_function(folder / "grpo.py", "not_one", 1)
    (folder / "broken.py").write_text("def f(:")
    with pytest.raises(PlanError, match="can't be read"):
        of_function(folder / "broken.py", "f", 1)
    (folder / "base.py").unlink()
    with pytest.raises(PlanError, match=r"not understood: config = base.get_config"):
        of_function(folder / "grpo.py", "geneval", 1)


def test_its_other_trainers_are_not_taken_for_grpo(folder: Path) -> None:
    (folder / "base.py").write_text(
        BASE.replace("    return", "    train.algorithm = 'dpo'\n    return")
    )
    with pytest.raises(PlanError, match=r"train\.algorithm: is dpo; known are grpo"):
        of_function(folder / "grpo.py", "geneval", 1)


def test_half_of_one_batch_is_one_update(folder: Path) -> None:
    text = GRPO.replace("int(48 / (gpu_number * 9 / 24))", "1")
    (folder / "grpo.py").write_text(text)
    words = of_function(folder / "grpo.py", "geneval", 1).words
    assert words["updates_per_iteration"] == "updates_per_iteration=1"


def test_other_models_are_refused(folder: Path) -> None:
    text = BASE.replace("stabilityai/stable-diffusion-3.5-medium", "hf_cache/HunyuanVideo")
    (folder / "base.py").write_text(text)
    with pytest.raises(PlanError, match="is of a kind that is not trained here"):
        of_function(folder / "grpo.py", "geneval", 1)


def test_wan_is_translated_with_its_sampler_and_its_size(folder: Path) -> None:
    text = BASE.replace(
        "stabilityai/stable-diffusion-3.5-medium", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"
    )
    text = text.replace("config.resolution = 512", "config.height = 240; config.width = 416")
    text = text.replace("    return config", "    config.frames = 33\n    return config")
    (folder / "base.py").write_text(text)
    words = of_function(folder / "grpo.py", "geneval", 8).words
    assert words["model"] == "model=wan"
    assert words["dynamics"] == "dynamics=linear_sde"
    assert words["schedule"] == "schedule=unipc"
    assert words["model.size"] == "model.size=[240,416]"
    assert (words["model.frames"], words["scoring.frames"]) == (
        "model.frames=33",
        "scoring.frames=9",
    )
    assert "dynamics.noise_level" not in words
    composed = compose([*words.values()])
    assert plan_composed(composed).config["model"]["size"] == [240, 416]
