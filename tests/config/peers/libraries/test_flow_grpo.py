"""Configurations of flow_grpo and ddpo-pytorch become the plans of their presets."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.frozen import differences
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.peers.files import of_keys, translate_file
from rlfactory.config.problems import PlanError

SAMPLE = {
    "num_steps": 10, "eval_num_steps": 40, "guidance_scale": 4.5, "global_std": True,
    "noise_level": 0.7, "train_batch_size": 9, "num_image_per_prompt": 24,
    "num_batches_per_epoch": 4,
}  # fmt: skip
TRAIN = {
    "learning_rate": 3e-4, "adam_weight_decay": 1e-4, "clip_range": 1e-4, "adv_clip_max": 5,
    "max_grad_norm": 1.0, "lora_path": None, "batch_size": 9, "gradient_accumulation_steps": 2,
    "timestep_fraction": 0.99, "beta": 0.04, "ema": True,
}  # fmt: skip
GENEVAL: dict[str, Any] = {
    "seed": 42, "num_epochs": 2500, "mixed_precision": "fp16", "resolution": 512, "run_name": "",
    "pretrained": {"model": "stabilityai/stable-diffusion-3.5-medium"}, "surprise": 3,
    "dataset": "/theirs/dataset/geneval", "prompt_fn": "geneval", "reward_fn": {"geneval": 1.0},
    "sample": SAMPLE, "train": TRAIN,
}  # fmt: skip
WINDOW = {"sde_window_size": 3, "sde_window_range": [0, 5], "sde_type": "cps"}
FAST = {
    **GENEVAL,
    "sample": {**SAMPLE, "guidance_scale": 1, "noise_level": 0.8, **WINDOW},
    "train": {**TRAIN, "clip_range": 1e-5, "beta": 0},
}
DDPO = {
    "seed": 42, "num_epochs": 100, "mixed_precision": "fp16",
    "pretrained": {"model": "CompVis/stable-diffusion-v1-4"},
    "sample": {
        "num_steps": 50, "eta": 1.0, "guidance_scale": 5.0, "batch_size": 8,
        "num_batches_per_epoch": 4,
    },
    "train": {"batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 3e-4},
    "prompt_fn": "imagenet_animals", "reward_fn": "jpeg_compressibility",
    "per_prompt_stat_tracking": {"buffer_size": 16, "min_count": 16},
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "gpus", "preset"),
    [(GENEVAL, 32, "flow_grpo"), (FAST, 32, "flow_grpo_fast"), (DDPO, 8, "ddpo")],
)
def test_they_are_their_presets(content: dict[str, Any], gpus: int, preset: str) -> None:
    translation = of_keys(content, gpus)
    made = plan_composed(compose(translation.command()))
    wanted = plan_composed(compose([f"experiment=peer/{preset}", "recipe=none"]))
    found = {key: (theirs, ours) for key, theirs, ours in differences(wanted.config, made.config)}
    # evaluation there has the steps of training; here the model's file has its own
    found.pop("evaluation.steps", None)
    assert found.pop("model", None) is None
    assert {k: v for k, v in found.items() if not k.startswith("model.")} == {}
    assert ("surprise" in translation.dropped) is (preset != "ddpo")


def test_the_window_that_base_has_is_of_scripts_which_read_it() -> None:
    base = {"sde_window_size": 2, "sde_window_range": [0, 10]}
    words = of_keys({**GENEVAL, "sample": {**SAMPLE, **base}}, 32).words
    assert words["window"] == "window=all"
    assert words["window.skip_last"] == "window.skip_last=1"
    fast = of_keys({**FAST, "sample": {**SAMPLE, **base, "sde_type": "sde"}}, 32).words
    assert (fast["window.size"], fast["window.high"]) == ("window.size=2", "window.high=10")
    assert "latent_storage" not in fast
    older = {**base, "train_num_steps": 2, "train_batch_size": 1, "mini_num_image_per_prompt": 9}
    first = of_keys({**FAST, "sample": {**SAMPLE, **older}}, 32).words
    assert (first["window.size"], first["window.high"]) == ("window.size=2", "window.high=7")
    assert first["prompts_per_iteration"] == "prompts_per_iteration=48"


def test_grpo_guard_is_an_algorithm_of_its_own() -> None:
    guard = {**GENEVAL, "rationorm": True, "train": {**TRAIN, "beta": 0.0, "clip_range": 2e-6}}
    words = of_keys(guard, 16).words
    assert (words["algo"], words["algo.bias"]) == ("algo=grpo_guard", "algo.bias=batch")
    assert plan_composed(compose([*words.values()])).config["algo"]["clip_range"] == 2e-6


def test_advantages_without_groups_are_of_the_batch() -> None:
    assert of_keys({**GENEVAL, "per_prompt_stat_tracking": False}, 32).words["advantage"] == (
        "advantage=batch"
    )
    alone = {**GENEVAL, "sample": {**SAMPLE, "num_image_per_prompt": 1}}
    assert of_keys(alone, 32).words["advantage"] == "advantage=batch"


def test_the_adapters_of_its_scripts_are_trained() -> None:
    qwen = of_keys({**GENEVAL, "pretrained": {"model": "Qwen/Qwen-Image"}}, 32).words
    assert "txt_mlp.net.2" in qwen["model.lora_targets"]
    kontext = {"pretrained": {"model": "black-forest-labs/FLUX.1-Kontext-dev"}}
    assert "proj_mlp" in of_keys({**GENEVAL, **kontext}, 28).words["model.lora_targets"]


@pytest.mark.parametrize(("function", "end"), [("general_ocr", ".txt"), ("x", "_metadata.jsonl")])
def test_prompts_of_another_folder_are_its_files(function: str, end: str) -> None:
    content = {**GENEVAL, "dataset": "/theirs/dataset/cats", "prompt_fn": function}
    words = of_keys(content, 32).words
    assert words["prompts.path"] == f"prompts.path=/theirs/dataset/cats/train{end}"
    assert words["prompts.eval_path"] == f"prompts.eval_path=/theirs/dataset/cats/test{end}"


def test_a_file_that_names_no_dataset_leaves_the_prompts_to_be_chosen() -> None:
    made = of_keys({**GENEVAL, "dataset": ""}, 32)
    assert not any(word.startswith("prompts=") for word in made.command())
    assert "no dataset is named: choose prompts" in made.notes


def test_a_file_is_told_by_its_keys(tmp_path: Path) -> None:
    (tmp_path / "fast.json").write_text(json.dumps(FAST))
    made = translate_file(str(tmp_path / "fast.json"), 32)
    assert made.peer == "flow_grpo"
    assert "for 32 GPUs; others by --gpus N" in made.notes


def test_its_other_trainers_are_not_taken_for_grpo() -> None:
    with pytest.raises(PlanError, match=r"train\.algorithm: is dpo; known are grpo"):
        of_keys({**GENEVAL, "train": {**TRAIN, "algorithm": "dpo"}}, 32)


TEACHER = {"kl_ref_lora_path": "jieliu/SD3.5M-FlowGRPO-Text"}
OPD = {"reward_mode": "kl_only", "kl_reward_level": "step_wise", "kl_scale": -1, "kl_norm": "none"}


def test_flow_opd_learns_from_its_teacher() -> None:
    train = {**TRAIN, **OPD, **TEACHER, "mar_lora": ""}
    made = of_keys({**GENEVAL, "per_prompt_stat_tracking": True, "train": train}, 32)
    assert {*made.dropped} == {"surprise"}
    config = plan_composed(compose(made.command())).config
    assert config["algo"]["_target_"] == "rlfactory.algo.opd.OPD"
    assert config["algo"]["teachers"] == ["jieliu/SD3.5M-FlowGRPO-Text"]
    assert (config["window"]["skip_last"], config["latent_storage"]) == (1, "float16")
    assert config["regularizer"]["coefficient"]["value"] == 0.04
    rewarded = of_keys({**GENEVAL, "train": {**train, "reward_mode": "task_only"}}, 32)
    assert (rewarded.words["algo"], {*rewarded.dropped}) == ("algo=grpo", {"surprise"})


@pytest.mark.parametrize(
    ("keys", "train", "message"),
    [
        ({"alternate_datasets": [{"name": "ocr"}]}, OPD, "takes turns among data sets"),
        ({"train_d": True, "d_times": 10}, {}, "trains its reward, a discriminator"),
        (
            {},
            {**OPD, "reward_mode": "mixed"},
            "is mixed; known are task_only, kl_only",
        ),
        ({}, {**OPD, "kl_norm": "global", **TEACHER}, "is global; known are none"),
        ({}, OPD, "train.reward_mode: is kl_only, which learns from a teacher"),
        ({}, {**OPD, "kl_ref_lora_path": ""}, "name its adapters by train.kl_ref_lora_path"),
    ],
)
def test_what_forks_do_otherwise_is_refused(
    keys: dict[str, Any], train: dict[str, Any], message: str
) -> None:
    with pytest.raises(PlanError, match=message):
        of_keys({**GENEVAL, **keys, "train": {**TRAIN, **train}}, 32)


def test_half_of_one_batch_is_one_update() -> None:
    one = {**SAMPLE, "num_batches_per_epoch": 1}
    accumulated = {**TRAIN, "gradient_accumulation_steps": 0}
    words = of_keys({**GENEVAL, "sample": one, "train": accumulated}, 32).words
    assert words["updates_per_iteration"] == "updates_per_iteration=1"


def test_what_is_done_about_a_rest_of_a_group_is_said() -> None:
    found = of_keys(GENEVAL, 1)
    assert "prompts_per_iteration=1" in found.command()
    (note,) = (note for note in found.notes if "whole groups" in note)
    assert note.startswith(
        "36 samples an iteration are no whole groups of 24: the command draws 24"
    )


def test_other_models_are_refused() -> None:
    with pytest.raises(PlanError, match="is of a kind that is not trained here"):
        of_keys({**GENEVAL, "pretrained": {"model": "hf_cache/HunyuanVideo"}}, 32)


def test_wan_is_translated_with_its_sampler_and_its_size() -> None:
    content = {key: value for key, value in GENEVAL.items() if key != "resolution"}
    content |= {"pretrained": {"model": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"}}
    content |= {"height": 240, "width": 416, "frames": 33}
    content |= {"reward_fn": {"video_ocr": 1.0}, "dataset": "dataset/ocr"}
    words = of_keys(content, 32).words
    assert words["model"] == "model=wan"
    assert words["dynamics"] == "dynamics=linear_sde"
    assert words["reward"] == "reward=ocr"
    assert words["schedule"] == "schedule=unipc"
    assert words["model.size"] == "model.size=[240,416]"
    assert (words["model.frames"], words["scoring.frames"]) == (
        "model.frames=33",
        "scoring.frames=9",
    )
    assert "dynamics.noise_level" not in words
    composed = compose([*words.values()])
    assert plan_composed(composed).config["model"]["size"] == [240, 416]
