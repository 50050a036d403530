"""UniRL's files become commands, and the plans of their presets."""

from pathlib import Path
from typing import Any

import pytest

from rlfactory.config.frozen import differences
from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.peers.files import of_hydra, translate
from rlfactory.config.peers.importer import Translation
from rlfactory.config.problems import PlanError
from rlfactory.utils.dotted_keys import value_at, with_values

IMAGES = """
num_devices: 8
batch_size: 64
num_rollouts: 10000
model_config:
  _target_: unirl.models.flux2_klein.config.Flux2KleinPipelineConfig
  pretrained_model_ckpt_path: ${oc.env:KLEIN,black-forest-labs/FLUX.2-klein-base-9B}
  autocast_precision: bf16
  max_sequence_length: 512
bundle:
  _target_: unirl.models.flux2_klein.bundle.Flux2KleinBundle.from_config
  config: ${model_config}
pipeline:
  _target_: unirl.models.flux2_klein.pipeline.Flux2KleinPipeline
  shift: 1.0
  strategy: {_target_: unirl.sde.kernels.DanceSDEStrategy }
backend:
  fsdp_cfg: {fsdp_mode: full}
  optimizer_cfg: {learning_rate: 5.0e-5, adam_beta1: 0.9, adam_beta2: 0.999, adam_epsilon: 1.0e-8,
    weight_decay: 0.0}
  scheduler_cfg: {type: constant, warmup_steps: 0, total_steps: 10000}
  lora_cfg: {rank: 16, alpha: 32, dropout: 0.0, bias: none, target_modules: [attn.to_q]}
reward:
  backend:
    _target_: unirl.reward.local.pickscore.PickScoreRewardScorer
    config: {batch_size: 8}
algorithm:
  _target_: unirl.algorithms.flowgrpo.FlowGRPO
  clip_range: 5.0e-3
  old_logp_source: replay
  params: ${sampling}
stack: {micro_batch_size: 1, max_grad_norm: 1.0, num_updates_per_batch: 2}
data_source:
  args:
    run: {data_path: datasets/pickscore/train.txt, eval_data_path: datasets/pickscore/test.txt}
    algorithm: {prompts_per_rollout: "${batch_size}"}
sampling:
  num_inference_steps: 10
  guidance_scale: 1.0
  height: 512
  width: 512
  eta: 0.7
  samples_per_prompt: 16
  seed: 42
  init_same_noise: true
  trajectory_precision: fp16
  scheduler:
    _target_: unirl.utils.scheduler_utils.AllSDEScheduler
    num_timesteps: ${..num_inference_steps}
    num_sde_steps: 3
    timestep_fraction: [0, 0.5]
logging:
  report_to_wandb: ${oc.decode:${oc.env:REPORT,true}}
  project_name: mine
my_option: 3
"""
COMMAND = """
algo=grpo model=flux2_klein recipe=none regularizer=none epochs=1 precision=bf16 hardware=fsdp2
prompts_per_iteration=64 group_size=16 updates_per_iteration=2 iterations=10000 micro_batch=1
seed=42 prompts=pick_a_pic reward=pickscore schedule=uniform advantage=group branches=16
latent_storage=float16 dynamics=dance_sde window=random_subset logger=wandb max_grad_norm=1.0
learning_rate.final_scale=1.0 evaluation.weights=policy
model.path=black-forest-labs/FLUX.2-klein-base-9B model.text_tokens=512 model.finetune=lora
model.lora_rank=16 model.lora_alpha=32.0 model.lora_targets=[attn.to_q] hardware.processes=8
optimizer.lr=5e-05 optimizer.betas=[0.9,0.999] optimizer.eps=1e-08 optimizer.weight_decay=0.0
learning_rate.warmup=0 advantage.unbiased=false advantage.eps=1e-8 advantage.clip=null
schedule.steps=10 model.size=512 model.guidance=1.0 dynamics.decode=sample dynamics.eta=0.7
window.size=3 window.low=0 window.high=5 algo.clip_range=0.005 algo.old_log_probs=recomputed
logger.project=mine
"""
TEXTS = """
num_devices: 32
batch_size: 64
num_rollouts: 800
normalize_adv_by_std: false
bundle:
  _target_: unirl.models.qwen3.bundle.Qwen3Bundle.from_config
  config: {pretrained_model_ckpt_path: Qwen/Qwen3-4B-Base, autocast_precision: bf16}
backend: {optimizer_cfg: {learning_rate: 1.0e-6}}
reward:
  truncated_reward: keep
  backend: {_target_: unirl.reward.local.mathverify.MathVerifyRewardScorer }
algorithm:
  _target_: unirl.algorithms.drpo.DRPO
  drpo_epsilon: 12.5
  loss_agg_mode: seq-mean-token-sum-norm
  horizon: 8192
stack: {num_updates_per_batch: 4}
data_source:
  args: {run: {data_path: "${oc.env:DATA}", eval_data_path: "${oc.env:EVAL,${oc.env:DATA}}"}}
sampling: {samples_per_prompt: 8, temperature: 1.0, top_p: 1.0, top_k: 0, max_new_tokens: 8192}
"""


def translated(text: str = IMAGES, **changes: Any) -> Translation:
    """The translation of a file with other values at dotted keys, `__` for a dot; None: without."""
    content = of_hydra(text)
    return translate(
        "UniRL", with_values(content, {k.replace("__", "."): v for k, v in changes.items()})
    )


def test_a_file_is_a_command() -> None:
    made = translated()
    assert {*made.command()} == {*COMMAND.split()}
    assert made.dropped == {"my_option": (3, "unknown here")}


@pytest.mark.parametrize(
    ("name", "changes", "silent"),
    [
        ("unirl_grpo_flux2_klein", {}, ()),
        (
            "flow_dppo",
            {
                "bundle__target": "SD3Bundle", "algorithm__target": "FlowDPPO",
                "algorithm__old_logp_source": "rollout", "algorithm__kl_mask_threshold": 1e-5,
                "bundle__config__pretrained_model_ckpt_path":
                    "stabilityai/stable-diffusion-3.5-medium",
                "bundle__config__max_sequence_length": None, "pipeline__shift": 3.0,
                "pipeline__strategy__target": "FlowSDEStrategy", "batch_size": 48,
                "adv_use_global_std": True, "sampling__init_same_noise": False,
                "sampling__trajectory_precision": "bf16",
                "backend__optimizer_cfg__learning_rate": 3e-4, "backend__lora_cfg__rank": 32,
                "backend__lora_cfg__alpha": 64,
            },
            ("evaluation.steps",),
        ),
    ],
)  # fmt: skip
def test_a_preset_is_the_plan_of_its_file(
    name: str, changes: dict[str, Any], silent: tuple[str, ...]
) -> None:
    made = plan_composed(compose(translated(**changes).command()))
    preset = plan_composed(compose([f"experiment=peer/{name}", "recipe=none"]))
    # a preset says nothing of these, or stops by hand
    free = ("hardware", "logger", "micro_batch", "sample_batch", "iterations", "model.lora_targets")
    found = differences(preset.config, made.config)
    assert [d for d in found if not d[0].startswith((*free, *silent))] == []


WINDOW = {"strategy": "progressive", "window_size": 4, "overlap_size": 1, "roll_back": True}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sampling__scheduler": {"timestep_fraction": [0.0, 0.2]},
          "sampling__num_inference_steps": 20},
         "window=random_subset window.size=4 window.low=0 window.high=4"),
        ({"sampling__scheduler": {"config": WINDOW}},
         "window=progressive window.step=3 window.high=10 window.at_end=roll_back"),
        # the last whole stride, not the last step
        ({"sampling__scheduler": {"config": WINDOW}, "sampling__num_inference_steps": 14},
         "window.low=0 window.high=13"),
        ({"sampling__scheduler": {"config": WINDOW | {"strategy": "random"}}},
         "window=random_contiguous window.size=4 window.low=0 window.high=10"),
        ({"sampling__sde_indices": [0, 2]}, "window=fixed window.steps=[0,2]"),
        ({"adv_use_global_std": True}, "advantage=global advantage.unbiased=true"),
        ({"bundle__target": "QwenImageBundle"}, "model=qwen_image schedule.shift=dynamic"),
        ({"bundle__target": "ZImageBundle", "pipeline__shift": 6.0,
          "sampling__guidance_scale": 4.0},
         "model=z_image schedule.shift=6.0 model.guidance=5"),
        ({"bundle__target": "WAN22Bundle", "pipeline__shift": 5.0, "sampling__num_frames": 5},
         "model=wan22 model.frames=5 model.guidance_low=null schedule.shift=5.0"),
        ({"sampling__width": 256}, "model.size=[512,256]"),
        # those of its pipelines, where the file has none
        ({"pipeline__strategy": {}}, "dynamics=dance_sde dynamics.decode=sample dynamics.eta=0.7"),
        ({"pipeline__strategy": {}, "bundle__target": "SD3Bundle"}, "dynamics=cps"),
        ({"pipeline__strategy": {}, "bundle__target": "ZImageBundle"}, "dynamics=flow_sde"),
        ({"backend__lora_cfg": {}}, "model.finetune=full"),
        ({"algorithm": {"target": "FlowDPPO", "add_kl_coefficient": False}},
         "algo=flow_dppo algo.kl_threshold=1e-05 algo.divergence=mean_shift"),
        ({"algorithm": {"target": "DiffusionNFT"}, "sampling__scheduler": {"num_sde_steps": 0},
          "backend__ema_lora_cfg": {"rank": 32, "ema_decay_type": "warmup", "ema_flat_steps": 0,
                                    "ema_uprate": 0.001, "ema_uphold": 0.5}},
         "algo=nft dynamics=ode times=discrete times.count=9 times.fraction=0.99"
         " old.schedule=piecewise_linear old.flat=0 old.ramp=0.001 old.decay=0.5"),
        ({"reward__backend": {"target": "RemoteRewardBackend", "config": {
            "reward_weights": {"hpsv2": 0.2, "unified_reward": 0.8, "mine": 1.0},
            "base_url": "http://localhost:80"}}},
         "reward=combine reward.of=[hps,unifiedreward] reward.weights.unifiedreward=0.8"
         " reward.parts.unifiedreward.url=http://localhost:80"),
    ],
)  # fmt: skip
def test_small_cases(changes: dict[str, Any], words: str) -> None:
    command = translated(**changes).command()
    assert {*words.split()} <= {*command}
    plan_composed(compose(command))


@pytest.mark.parametrize(
    ("kind", "path", "option"),
    [("21", "Wan-AI/Wan2.1-T2V-1.3B-Diffusers", "wan"), ("22", "Wan2.2-I2V-A14B", "wan_i2v")],
)
def test_wan_is_known_by_its_path(kind: str, path: str, option: str) -> None:
    changes = {"target": f"WAN{kind}Bundle", "config__pretrained_model_ckpt_path": path}
    made = translated(**{f"bundle__{key}": value for key, value in changes.items()})
    assert f"model={option}" in made.command()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "algo=drpo algo.std=none algo.clip_range=12.5 algo.aggregation=constant group_size=8"
             " reward=math dynamics.length=8192 model.finetune=full updates_per_iteration=4"),
        ({"algorithm": {"target": "GRPO", "clip_range": 0.2, "clip_range_high": 0.28}},
         "algo=grpo_token algo.clip_range=0.2 algo.clip_high=0.28 algo.aggregation=token"),
        ({"algorithm__penalty_mu_weighted": False}, "algo.surrogate=spo"),
        ({"adv_normalization_scope": "global"}, "algo.baseline=none algo.reward_scale=batch"),
        ({"reward__truncated_reward": "zero"}, "algo.missing_end=replace algo.missing_end_value=0"),
    ],
)  # fmt: skip
def test_texts(
    changes: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "train.jsonl"
    data.write_text('{"prompt": "1 + 1?", "metadata": {"answer": "2"}}\n')
    monkeypatch.setenv("DATA", str(data))
    command = translated(TEXTS, **changes).command()
    assert {f"prompts.path={data}", *words.split()} <= {*command}
    assert not [
        word for word in command if word.startswith(("schedule", "advantage", "prompts.eval"))
    ]
    plan_composed(compose(command))


def test_variables_have_their_defaults_or_else_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KLEIN", "/somewhere/else")
    monkeypatch.delenv("DATA", raising=False)
    assert "model.path=black-forest-labs/FLUX.2-klein-base-9B" in translated().command()
    made = translated(TEXTS)
    assert "prompts.path=DATA.jsonl" in made.command()
    assert "DATA is a variable that is not set: prompts.path is its file" in made.notes
    assert value_at(of_hydra(IMAGES), "algorithm.params.eta") == 0.7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bundle__target": "BagelBundle"}, "is bagelbundle; known are sd3bundle, "),
        ({"algorithm__target": "Other"}, "is other; known are flowgrpo, "),
        (
            {"data_source__args__run__data_path": "datasets/image_edit/train.jsonl"},
            "edits none here",
        ),
    ],
)
def test_what_is_not_here_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        translated(**changes)
