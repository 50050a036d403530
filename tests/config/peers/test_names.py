"""Names of other libraries: every suggestion for them works when it is typed."""

import re
import shlex
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from rlfactory.cli.suggestions import working_command
from rlfactory.config.overrides import compose
from rlfactory.config.peers.names import Name, find, rows_of, tables
from rlfactory.config.plan import Plan, make_plan
from rlfactory.config.problems import fix_command, override_key
from rlfactory.config.words import normalise_words
from rlfactory.utils.dotted_keys import leaves

TYPED = [
    "lr=1e-4",
    "learning_rate=1e-4",
    "num_generations=8",
    "max_steps=1000",
    "max_new_tokens=64",
    "num_epochs=3",
    "prompt_file=x.txt",
    "gradient_checkpointing=true",
    "resolution=512",
    "steps=10",
    "eval_steps=60",
    "threads=4",
    "sampler=cps",
    "model_path=CompVis/stable-diffusion-v1-4",
    "batch_size=4",
    "rank=8",
    "lora_rank=8",
    "beta=0.04",
    "noise_level=0.7",
    "kl=0.1",
    "kl_coef=0.1",
    "guidance=4.5",
    "guidance_scale=4.5",
    "size=512",
    "gpus=2",
    "num_steps=10",
    "num_inference_steps=10",
    "save_steps=100",
    "output_dir=out",
    "bf16=true",
    "wandb=true",
    "clip_range=0.2",
    "weight_decay=0.01",
    "temperature=0.7",
    "gradient_accumulation_steps=4",
    "resume=true",
    "ema_decay=0.99",
    "dtype=bf16",
    "device=cpu",
    "data=x.txt",
    "dataset=x.txt",
    "model.resolution=64",
    "model.height=64",
    "algo.lr=1e-4",
    "trainer_type=grpo",
    "unique_sample_num_per_epoch=48",
    "gradient_step_per_epoch=2",
    "per_device_batch_size=2",
    "dynamics.max_tokens=64",
    "model.lora_r=8",
    "model.rank=8",
    "scheduler=diffusers",
]
"""What users of other libraries type; the first 51 are a new user's protocol."""
VALUES = {
    "optimizer.betas": "[0.9,0.99]",
    "optimizer": "adamw_torch",
    "model=OPTION": "stabilityai/stable-diffusion-3.5-medium",
    "model.lora_targets": "[to_q,to_k]",
    "prompts=file": "x.txt",
    "prompts": "imagenet_animals",
    "reward": "jpeg_compressibility",
    "run_dir": "out",
    "logger": "tensorboard",
    "logger.project": "mine",
    "precision": "bf16",
    "dynamics": "cps",
    "schedule": "diffusers",
    "algo": "grpo",
    "advantage.aggregate": "gdpo",
    "regularizer": "kl_v",
    "model.finetune": "lora",
    "hardware.device": "cpu",
    "model.size": "64",
    "model.negative_prompt": "blurry",
    "model.frames": "5",
    "model.value_path": "zoo:tiny_gpt2",
    "model.system_prompt": "short",
    "model.chat_options": "{enable_thinking:false}",
    "model.chat_template": "plain",
    "begin_from": "run",
    "dynamics.stop": "END",
    "engine.url": "http://localhost:8000",
    "engine.memory": "0.5",
    "engine.eager": "true",
    "algo.dual_clip": "3",
    "algo.mask_truncated": "true",
    "algo.label_smoothing": "0.1",
    "algo.advantage_mode": "all",
    "algo.power": "0.5",
    "dynamics.stop_at_end": "false",
    "ema.schedule": "constant",
    "evaluation.size": "64",
    "model.begin_with_end": "true",
    "prompts.starts": "This film",
    "regularizer.coefficient.horizon": "1000",
    "prompts.eval_path": "x.txt",
    "prompts.split": "train",
    "prompts.eval_split": "train",
    "prompts.column": "prompt",
    "prompts.held_out_share": "0.5",
    "reward.answer_column": "answer",
    "reward.url": "http://localhost:8000",
    "memory.attention": "native",
    "memory.vae_tiling": "true",
    "hardware=fsdp2": "true",
    "hardware=cpu": "true",
}
"""A plausible value by what a name becomes; a number otherwise."""
NAMED = {
    "adam_beta1": "0.9",
    "adam_beta2": "0.9",
    "kl_estimator": "k2",  # the loss takes no k1, whose gradient is zero
    "custom_reward_function.path": "r.py",
    "custom_reward_function.name": "score",
    "reward_weights": "[1,2]",
}
"""A plausible value by name, where that by what it becomes, or the first choice, is none."""
PAIRS = "model=tiny_gpt2 algo=dpo reward=none prompts=file prompts.path=rows.jsonl"
FILE = "prompts=file prompts.path=rows.jsonl reward=compressibility"
DATASET = "prompts=datasets prompts.path=rows.jsonl reward=compressibility"
BESIDE = {
    "stop": "model=tiny_gpt2",
    "prefix": "model=tiny_gpt2",
    "window_size": "model=tiny_gpt2",
    "attn_backend": "model=tiny_flux",
    "system": "model=tiny_gpt2 model.text_role=user model.chat_template=plain",
    "overlong_buffer_len": "model=tiny_gpt2",
    "label_smoothing": PAIRS,
    "rpo_alpha": PAIRS,
    "assistant_only_loss": PAIRS.replace("dpo", "sft"),
    "critic.model.path": "model=tiny_gpt2 algo=ppo",
    "val_files": FILE,
    "split_dataset_ratio": FILE,
    "dataset_train_split": DATASET,
    "dataset_test_split": DATASET,
    "prompt_key": DATASET,
    "label_key": "model=tiny_gpt2 reward=exact prompts=file prompts.path=rows.jsonl",
    "reward_weights": "reward_funcs=[compressibility,shapes]",
    "custom_reward_function.path": "model=tiny_gpt2 custom_reward_function.name=score",
    "custom_reward_function.name": "model=tiny_gpt2 custom_reward_function.path=r.py",
}
"""What is typed beside a name that depends on it: of its kind of model, data or algorithm."""
ROW = '{"prompt": "a", "chosen": "b", "rejected": "c", "completion": "d", "answer": "e"}\n'
SCORE = "def score(prompts, completions, **columns):\n    return [1.0 for _ in completions]\n"
RUN = "{iterations: 1, model: {_target_: rlfactory.model.sd3.SD3, finetune: full}}"
EXTRAS = {"optimizer=adamw_8bit", "engine=vllm"}
"""Words that need packages which need not be installed."""


def value_of(row: Name) -> str:
    """A plausible value for a row."""
    if row.name in NAMED:
        return NAMED[row.name]
    if row.choices:
        return next(iter(row.choices))
    meant = [word.partition("={")[0] for word in row.words.split()]
    found = next((VALUES[word] for word in reversed(meant) if word in VALUES), None)
    if found is None and re.search(r"checkpointing|compile|tf32|whiten", row.words):
        return "true"
    # a fraction where one is allowed, else a small whole number
    is_fraction = re.search(
        r"coef|clip|\.lr|decay|noise|eta|top_p|fraction|_scale|\.eps|lam|gamma", row.words
    )
    return found or ("0.5" if is_fraction else "2")


def suggested(word: str, beside: str = "") -> tuple[list[str], str]:
    """The words that are suggested instead of one that is refused, and the message."""
    typed = [*beside.split(), word]
    problems = compose(normalise_words(typed)).problems
    problem = next(problem for problem in problems if problem.key == override_key(word))
    if len(problems) > 1:
        assert beside
        command = working_command(problems, ["check", *typed])
    else:
        command = fix_command(problem, ["check", *typed])
    assert command, problem
    assert command.startswith("rlfactory check"), problem
    return shlex.split(command)[2:], problem.message


def assert_planned(words: list[str]) -> None:
    assert _planned(tuple(words))


@cache  # many names become the same words
def _planned(words: tuple[str, ...]) -> Plan:
    composed = compose(words)
    return make_plan(composed.values, composed.choices, composed.problems)


@pytest.fixture(autouse=True)
def _prompts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("a red circle\na blue square\n")
    (tmp_path / "rows.jsonl").write_text(ROW * 8)
    (tmp_path / "r.py").write_text(SCORE)
    (tmp_path / "run" / "checkpoints" / "step_000001").mkdir(parents=True)
    (tmp_path / "run" / "config.yaml").write_text(RUN)
    monkeypatch.chdir(tmp_path)


def rows() -> Iterator[Name]:
    """A row for each thing that names become: those of several names are tried once."""
    found: dict[str, Name] = {}
    tried = {word.partition("=")[0] for word in TYPED}
    for table in tables().values():
        for row in sorted(table, key=lambda row: row.name not in tried):
            found.setdefault(f"{row.words} {row.bases} {sorted(row.choices)} {row.by}", row)
    yield from (row for row in found.values() if row.name not in tried)


@pytest.mark.parametrize("word", TYPED)
def test_what_others_type_is_answered_with_a_command_that_works(word: str) -> None:
    words, _ = suggested(word)
    assert_planned(words)
    assert word not in words


@pytest.mark.slow
@pytest.mark.parametrize("row", [*rows()], ids=lambda row: row.name)
def test_every_row_is_a_command_that_works(row: Name) -> None:
    words, message = suggested(f"{row.name}={value_of(row)}", BESIDE.get(row.name, ""))
    if EXTRAS & {*words}:
        assert not compose(normalise_words(words)).problems
    else:
        assert_planned(words)
    assert row.name in message


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("lr=1e-4", ["optimizer.lr=1e-4"]),
        ("num_generations=8", ["group_size=8"]),
        ("max_steps=1000", ["iterations=500"]),
        ("max_new_tokens=64", ["model=tiny_gpt2", "dynamics.length=64"]),
        ("noise_level=0.7", ["algo=grpo", "dynamics.noise_level=0.7"]),
        ("bf16=true", ["precision=bf16"]),
        ("bf16=false", ["precision=fp32"]),
        ("num_train_epochs=3", ["iterations=40"]),
        ("warmup_ratio=0.1", ["learning_rate.warmup=4"]),
        ("total_episodes=960", ["iterations=10"]),
        ("adam_beta2=0.95", ["optimizer.betas=[0.9,0.95]"]),
        ("gradient_accumulation_steps=4", []),
        ("train.learning_rate=1e-4", ["optimizer.lr=1e-4"]),
        ("dataset=x.txt", ["prompts=file", "prompts.path=x.txt", "reward=compressibility"]),
        ("reward_fn=jpeg_compressibility", ["reward=compressibility"]),
        ("size=512", ["model=sd35", "model.size=512"]),
        (
            "train_steps=[1,3]",
            ["algo=grpo", "window=random_subset", "window.low=1", "window.high=4"],
        ),
        ("timestep_fraction=0.3", ["times=discrete", "times.fraction=0.3"]),
    ],
)
def test_names_become_the_key_that_is_meant(word: str, instead: list[str]) -> None:
    assert suggested(word)[0] == instead


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("prefix=This film", ["prompts.starts=[This film]"]),  # not the reward's
        ("kl_threshold=0.06", ["stop.kl=0.06"]),  # not that of flow_dppo
        ("patience=48", ["stop.patience=24"]),
        ("kl_target=6", ["regularizer=kl_token_adaptive", "regularizer.coefficient.target=6"]),
    ],
)
def test_names_of_texts_become_the_key_that_is_meant(word: str, instead: list[str]) -> None:
    assert suggested(word, "model=tiny_gpt2")[0] == ["model=tiny_gpt2", *instead]


def test_choices_that_were_typed_are_kept() -> None:
    found = compose(["model=gpt2", "algo=ppo", "max_new_tokens=64"])
    assert found.problems[0].instead == ("dynamics.length=64",)
    other = compose(["model=sd35", "max_new_tokens=64"]).problems[0]
    assert other.instead is None


def test_a_name_below_another_group_is_not_rewritten() -> None:
    problem = compose(["reward.device=cuda"]).problems[0]
    assert "hardware.device" in problem.message
    assert problem.fix == "rlfactory explain device"


def test_rows_are_found_by_name_and_library() -> None:
    assert find("sample.num_steps", {}) is find("num_steps", {})
    assert find("nonsense", {}) is None
    assert {row.name for row in rows_of("trlx")} >= {"cliprange", "init_kl_coef"}
    names = [row.name for table in tables().values() for row in table]
    assert len(set(names)) > 300


def test_no_pattern_covers_a_key_of_this_library() -> None:
    patterns = [row.name for rows in tables().values() for row in rows if "*" in row.name]
    ours = {key.rpartition(".")[2] for key, _ in leaves(compose(["model=tiny_gpt2"]).values)}
    ours |= {key.rpartition(".")[2] for key, _ in leaves(compose(["algo=grpo"]).values)}
    hidden = {(key, p) for key in ours for p in patterns if fnmatchcase(key, p)}
    assert not {(key, p) for key, p in hidden if find(key, {}) is None or find(key, {}).name == p}


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("bf16", "precision=bf16 or precision=fp32"),
        ("dtype", "precision=fp32 or precision=bf16 or precision=fp16"),
        ("kl_type", "regularizer=kl_v or regularizer=kl_x"),
        ("wandb", "logger=wandb or logger=jsonl"),
    ],
)
def test_a_meaning_says_each_key_once(name: str, meaning: str) -> None:
    row = find(name, {})
    assert row is not None
    assert row.meaning() == meaning
