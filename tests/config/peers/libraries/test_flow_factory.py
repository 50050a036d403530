"""Flow-Factory's files become the plan of its preset."""

from typing import Any

import pytest
import yaml

from rlfactory.config.frozen import differences
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.peers.files import translate
from rlfactory.config.problems import PlanError

AWM = """
num_processes: 8
main_process_port: 29500
mixed_precision: bf16
launcher: accelerate
data: {dataset_dir: dataset/pickscore, preprocessing_batch_size: 8}
model: {finetune_type: lora, lora_rank: 32, lora_alpha: 64, target_modules: default,
  model_name_or_path: stabilityai/stable-diffusion-3.5-medium, model_type: sd3-5}
log: {run_name: null, project: Mine, logging_backend: wandb, save_dir: saves/, save_freq: 20}
train: {trainer_type: awm, advantage_aggregation: sum, awm_weighting: ghuber, ghuber_power: 0.25,
  num_train_timesteps: 6, time_sampling_strategy: discrete_wo_init, timestep_range: 0.9,
  clip_range: 1, adv_clip_range: 1.0, kl_type: v-based, kl_beta: 1.0e-4, ema_decay: 0.3,
  ema_decay_schedule: linear, ema_kl_beta: 1, ema_update_interval: 1, warmup_steps: 1000,
  resolution: 512, num_inference_steps: 14, guidance_scale: 1.0, per_device_batch_size: 8,
  group_size: 16, global_std: true, unique_sample_num_per_epoch: 48, gradient_step_per_epoch: 1,
  learning_rate: 3.0e-4, adam_weight_decay: 1.0e-4, max_grad_norm: 1.0, seed: 42, my_option: 3}
scheduler: {dynamics_type: ODE}
eval: {num_inference_steps: 40, guidance_scale: 2.0, eval_freq: 0}
rewards: [{name: p, reward_model: PickScore, batch_size: 16}]
"""
UNCOMPARED = ("hardware", "logger", "micro_batch", "checkpoint")
"""Keys of which a preset says nothing."""


def changed(**train: Any) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(AWM)
    content["train"] |= train
    return content


def test_awm_is_the_preset_of_awm() -> None:
    made = plan_composed(compose(translate("Flow-Factory", changed()).command()))
    preset = plan_composed(compose(["experiment=peer/flow_factory_awm", "recipe=none"]))
    found = differences(preset.config, made.config)
    assert [d for d in found if d[0].partition(".")[0] not in UNCOMPARED] == []
    assert made.config["hardware"]["processes"] == 8
    assert made.config["logger"]["project"] == "Mine"


def test_a_file_without_data_model_or_rewards_leaves_them_to_the_defaults() -> None:
    content = {"model": {"model_type": "sd3-5"}, "train": {"trainer_type": "grpo"}}
    words = translate("Flow-Factory", content).command()
    assert not [w for w in words if w.startswith(("model.path", "prompts", "reward"))]
    assert plan_composed(compose(words)).choices["prompts"] == "preferences"


def test_what_has_no_counterpart_is_listed() -> None:
    made = translate("Flow-Factory", changed())
    assert made.dropped["train.my_option"] == (3, "unknown here")
    assert made.dropped["eval.guidance_scale"][0] == 2.0
    assert {"launcher", "data.preprocessing_batch_size", "rewards.batch_size"} <= {*made.dropped}
    assert "micro_batch=8" in made.command()


def test_grpo_on_flux_has_its_window_and_its_guidance() -> None:
    content = changed(trainer_type="grpo", guidance_scale=3.5, kl_beta=1e-3, kl_type="x-based")
    content["model"] |= {
        "model_type": "flux1",
        "model_name_or_path": "black-forest-labs/FLUX.1-dev",
    }
    content["scheduler"] = {
        "dynamics_type": "Flow-SDE", "noise_level": 0.7, "num_sde_steps": 1, "sde_steps": [1, 2, 3]
    }  # fmt: skip
    words = translate("Flow-Factory", content).command()
    assert {"window.size=1", "window.low=1", "window.high=4", "regularizer=kl_x"} <= {*words}
    assert {"model.embedded_guidance=3.5", "dynamics.noise_level=0.7"} <= {*words}
    plan_composed(compose(words))


def test_steps_that_are_no_range_are_noted() -> None:
    content = changed(trainer_type="grpo")
    content["scheduler"] = {"dynamics_type": "CPS", "noise_level": 0.8, "sde_steps": [1, 3]}
    assert any("sde_steps" in note for note in translate("Flow-Factory", content).notes)


@pytest.mark.parametrize(("key", "value"), [("trainer_type", "sft"), ("model_type", "wan2_v2v")])
def test_what_is_not_trained_here_is_refused(key: str, value: str) -> None:
    content = changed()
    content["train" if key == "trainer_type" else "model"][key] = value
    with pytest.raises(PlanError, match=f"is {value}; known are"):
        translate("Flow-Factory", content)


DECAYS = {"old_model_decay": "0-0.25-0.005-0.999", "sampling_model_decay": "75-0.0-0.0075-0.999"}


@pytest.mark.parametrize(
    ("train", "words"),
    [
        ({"trainer_type": "crd", "crd_beta": 2.0, "kl_beta": 0.1, "kl_cfg": 4.5,
          "weight_temp": -1.0,
          "num_train_timesteps": 20, "time_sampling_strategy": "discrete", "timestep_range": 0.99,
          "num_inference_steps": 10} | DECAYS,
         "algo=crd algo.beta=2.0 algo.least=0.001 algo.shared_noise=false times.count=9"
         " old.schedule=linear old.initial=0.25 old.decay=0.999 old.warmup=150"
         " ema.schedule=piecewise_linear ema.flat=75 ema.ramp=0.0075 ema.decay=0.999"
         " evaluation.weights=policy advantage.clip=null"),
        ({"trainer_type": "crd", "old_model_decay": 1, "sampling_model_decay": 2},
         "old.schedule=nft_1 ema.schedule=nft_2"),
        ({"trainer_type": "dgpo", "dpo_beta": 10, "clip_range": 0.05, "ema_ref_max_decay": 0.3,
          "ema_ref_ramp_rate": 0.001, "use_ema_ref": True, "switch_ema_ref": 200},
         "algo=dgpo algo.beta=10 algo.clip_range=0.05 algo.reference=old old.decay=0.3"
         " old.ramp=0.001"),
        ({"trainer_type": "dpo", "beta": 100.0, "weighting_scheme": "logit_normal",
          "num_train_timesteps": 1, "timestep_range": 0.99, "kl_beta": 0, "ema_kl_beta": None,
          "gradient_accumulation_steps": 1, "gradient_step_per_epoch": 5},
         "algo=diffusion_dpo algo.beta=100.0 times=logit_normal times.stratified=false"
         " times.count=1 times.low=0.01 times.shared=batch times.shift=1.0 times.toward=clean"
         " updates_per_iteration=1"),
        ({"awm_weighting": "t**2", "ema_decay_schedule": "warmup_cosine", "initial_decay": 0.2,
          "total_steps": 2000}, "algo.weighting=t2 old.initial=0.2 ema.total=2000"),
        # its guide's keys of January 2026
        ({"trainer_type": "grpo-guard", "dynamics_type": "Flow-SDE"},
         "algo=grpo_guard dynamics=flow_sde"),
        ({"trainer_type": "grpo", "dynamics_type": "Dance-SDE", "noise_level": 0.3},
         "algo=grpo dynamics=dance_sde dynamics.eta=0.3"),
        ({"trainer_type": "nft", "time_sampling_strategy": "discrete_with_init",
          "timestep_range": None, "timestep_fraction": 0.3, "num_train_timesteps": None,
          "off_policy": True, "ema_decay_schedule": "piecewise_linear", "ema_decay": 0.5},
         "algo=nft times=discrete_with_init times.space=index times.fraction=0.3 times.count=4"
         " old.schedule=piecewise_linear old.decay=0.5"),
        ({"time_sampling_strategy": "discrete_wo_init", "timestep_range": None,
          "timestep_fraction": 0.3, "num_train_timesteps": None}, "times.count=3"),
        ({"time_sampling_strategy": "uniform", "timestep_range": None, "timestep_fraction": 0.3,
          "time_shift": 3.0, "off_policy": True},
         "times=uniform times.low=0.2 times.shift=3.0 times.toward=noisy algo.behaviour=old"),
        # a range of noise, also of two ends; and the policy samples, where nothing else is said
        ({"trainer_type": "nft", "time_sampling_strategy": "uniform", "num_train_timesteps": 0,
          "timestep_range": [0.1, 0.8], "time_shift": 3.0},
         "times.low=0.2 times.high=0.9 times.toward=clean times.count=9"
         " old.schedule=constant old.decay=0.0"),
        # 48 x 16 samples on 8 processes in batches of 8
        ({"gradient_accumulation_steps": 4}, "updates_per_iteration=3"),
        ({"unique_sample_num_per_epoch": 41}, "prompts_per_iteration=48 hardware.processes=8"),
    ],
)  # fmt: skip
def test_other_trainers(train: dict[str, Any], words: str) -> None:
    command = translate("Flow-Factory", changed(**train), 8).command()
    assert {*words.split()} <= {*command}
    plan_composed(compose(command))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"model_type": "wan2_t2v", "model_name_or_path": "Wan-AI/Wan2.2-T2V-A14B-Diffusers",
          "target_components": "transformer"},
         "model=wan22 model.trained=high model.guidance_low=3.0"),
        ({"model_type": "wan2_i2v", "model_name_or_path": "Wan-AI/Wan2.2-I2V-A14B-Diffusers",
          "target_components": ["transformer", "transformer_2"]}, "model=wan_i2v"),
        ({"model_type": "wan2_t2v", "model_name_or_path": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers"},
         "model=wan"),
        ({"model_type": "qwen-image-edit-plus", "model_name_or_path": "Qwen/Qwen-Image-Edit-2509"},
         "model=qwen_image_edit"),
    ],
)  # fmt: skip
def test_models_of_two_networks_and_of_pictures(model: dict[str, Any], words: str) -> None:
    content = changed(guidance_scale_2=3.0)
    content["model"] |= model
    made = translate("Flow-Factory", content)
    assert {*words.split()} <= {*made.command()}
    assert "model.trained=both" not in made.command()


def test_rewards_that_are_none_here_are_listed() -> None:
    content = changed()
    content["rewards"] = [{"name": "a", "reward_model": "rational_rewards_t2i"}]
    made = translate("Flow-Factory", content)
    assert made.dropped["rewards.rational_rewards_t2i"][0] == 1.0
    assert "reward=FILE.py:NAME" in made.command()


TRAIN = """
{trainer_type: grpo, resolution: 512, per_device_batch_size: 1, group_size: 16,
 global_std: false, unique_sample_num_per_epoch: 48, gradient_step_per_epoch: 2,
 clip_range: 1.0e-4, adv_clip_range: 5.0, max_grad_norm: 1.0, dynamics_type: Flow-SDE,
 num_inference_steps: 10, noise_level: 1.0, num_train_steps: 1, train_steps: [1, 2, 3],
 guidance_scale: 4, seed: 42, learning_rate: 3.0e-4, adam_weight_decay: 1.0e-4,
 adam_betas: [0.9, 0.999], adam_epsilon: 1.0e-8, ema_decay: 0.9, ema_update_interval: 4}
"""
"""What its examples on newer models have in common; the keys are those of their time."""
PENALTY = {"kl_type": "x-based", "kl_beta": 0.04}
NEWER = {
    "flow_factory_grpo_qwen_image": (
        "qwen-image", "Qwen/Qwen-Image-2512", PENALTY, {"resolution": 1024},
    ),
    "flow_factory_grpo_flux2": (
        "flux2", "black-forest-labs/FLUX.2-dev", PENALTY | {"num_inference_steps": 8},
        {"resolution": 1024},
    ),
    "flow_factory_grpo_wan": (
        "wan2_t2v", "Wan-AI/Wan2.1-T2V-14B-Diffusers",
        {"noise_level": 0.7, "guidance_scale": 5.0, "learning_rate": 1e-4, "resolution": 256,
         "num_frames": 5}, {"resolution": 480},
    ),
    "flow_factory_nft_qwen_image": (
        "qwen-image", "Qwen/Qwen-Image",
        {"trainer_type": "nft", "nft_beta": 1, "num_train_timesteps": 4, "time_type": "Uniform",
         "time_shift": 3.0, "dynamics_type": "ODE", "noise_level": None}, {"resolution": 1024},
    ),
}  # fmt: skip
OURS = ("latent_storage", "sample_batch", "model.negative_prompt", "schedule.kind", "schedule._t")
"""Keys of which its files say nothing, and of the noise levels, which are the model's own."""


@pytest.mark.parametrize("name", NEWER)
def test_examples_on_newer_models_are_their_presets(name: str) -> None:
    kind, path, train, evaluation = NEWER[name]
    content = {
        "mixed_precision": "bf16",
        "data": {"dataset_dir": "dataset/pickscore"},
        "model": {"finetune_type": "lora", "lora_rank": 64, "lora_alpha": 128,
                  "model_type": kind, "model_name_or_path": path},
        "train": yaml.safe_load(TRAIN) | train,
        "eval": {"num_inference_steps": 28, "eval_freq": 20} | evaluation,
        "rewards": [{"name": "p", "reward_model": "PickScore"}],
    }  # fmt: skip
    made = plan_composed(compose(translate("Flow-Factory", content).command()))
    preset = plan_composed(compose([f"experiment=peer/{name}", "recipe=none"]))
    found = differences(preset.config, made.config)
    silent = (*UNCOMPARED, "evaluation.every", *OURS)
    assert [d for d in found if not d[0].startswith(silent)] == []


DPPO = """
mixed_precision: bf16
data: {datasets: [{name: geneval2, dataset_dir: dataset/GenEval2, train: {weight: 1}},
  {name: pickscore, dataset_dir: dataset/pickscore, eval: {}}]}
model: {finetune_type: lora, lora_rank: 64, lora_alpha: 128, target_modules: default,
  model_name_or_path: black-forest-labs/FLUX.2-klein-base-9B, model_type: flux2-klein}
train: {trainer_type: dppo, adv_clip_range: 5.0, kl_type: x-based, kl_mask_type: x-based,
  kl_beta: 1.0e-3, kl_guidance_scale: 4.0, kl_mask_threshold: 1.0e-6, resolution: 512,
  num_inference_steps: 14, guidance_scale: 1.0, per_device_batch_size: 4, group_size: 24,
  unique_sample_num_per_epoch: 64, gradient_step_per_epoch: 2, num_inner_epochs: 1,
  ema_decay: 0.9, ema_update_interval: 4, seed: 42}
scheduler: {dynamics_type: Flow-SDE, noise_level: 0.7, num_sde_steps: 3,
  sde_steps: [0, 1, 2, 3, 4, 5]}
eval: {resolution: 512, guidance_scale: 4.0, num_inference_steps: 40}
optimizers: [{name: default, learning_rate: 3.0e-4, weight_decay: 1.0e-4, betas: [0.9, 0.999],
  eps: 1.0e-8, max_grad_norm: 1.0}]
"""
SERVER = {"url": "http://localhost:8000/v1", "model": "Qwen/Qwen3-VL-8B-Instruct"}


@pytest.mark.parametrize(
    ("name", "aggregation", "models", "place"),
    [
        ("flow_factory_dppo_flux2_klein", "sum", ["geneval2_soft_tifa"], "reward"),
        (
            "flow_factory_dppo_flux2_klein_multi",
            "gdpo",
            ["PickScore", "clip", "geneval2_soft_tifa", "hpsv2"],
            "reward.parts.geneval2",
        ),
    ],
)
def test_flow_dppo_on_klein_is_its_preset(
    name: str, aggregation: str, models: list[str], place: str
) -> None:
    content = yaml.safe_load(DPPO)
    # the file of several rewards says global_std too, which has no effect there
    content["train"] |= {"advantage_aggregation": aggregation, "global_std": aggregation == "sum"}
    content["rewards"] = [{"name": m, "reward_model": m, "weight": 1} for m in models]
    made = translate("Flow-Factory", content)
    assert made.dropped["train.kl_guidance_scale"][0] == 4.0
    server = [f"{'' if place == 'reward' else '+'}{place}.{k}={v}" for k, v in SERVER.items()]
    translated = plan_composed(compose([*made.command(), *server]))
    preset = plan_composed(compose([f"experiment=peer/{name}", "recipe=none"]))
    found = differences(preset.config, translated.config)
    silent = (*UNCOMPARED, "evaluation.every", "evaluation.size", *OURS)
    assert [d for d in found if not d[0].startswith(silent)] == []
