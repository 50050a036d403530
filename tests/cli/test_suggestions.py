"""What is suggested after a refusal works when it is typed."""

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory.cli.suggestions import completions, working_command
from rlfactory.config.problems import Problem

Refused = Callable[..., str]

FUNCTIONS = """
def score(prompts, completions, **columns): ...
def answers(prompts, completions, answer): ...
def red(images, prompts, metadata): ...
"""
FILES = {
    "mine.txt": "a red cube\na blue ball\n",
    "rows.jsonl": '{"prompt": "a cat", "answer": "4"}\n',
    "rows.csv": "text,label\na cat,1\n",
    "functions.py": FUNCTIONS,
    "conf/experiment/typo.yaml": "# @package _global_\ndefaults:\n  - override /algo: grpoo\n",
}
TEXTS, IMAGES = "model=tiny_gpt2 reward=function", "reward=image_function"
WRONG = """
iterations=1e3
iterations=2.5
group_size=1 algo=grpo
updates_per_iteration=7
evaluation.weights=emaa
checkpoint.snapshot=atuo
scoring.background=threads
ema.schedule=powr
old.schedule=warmup_cosine old.warmup=20 old.total=10
branches=5
optimizer.lr=0
optimizer.betas=[0.9]
optimizer.weight_decay=-1
optimizer.amsgrad=true
optimzer.lr=3e-4
sed=3
+sed=3
+seed=3
algo.bta=1
algo=grpo,
algo=grpoo
algo=ppo
algo=ppo model=tiny_sd
algo=rloo model=tiny_flux
algo=grpo_token group_size=6
algo=nft model=tiny_gpt2
algo=ddpo_sf updates_per_iteration=2
algo=ddpo_sf epochs=2 updates_per_iteration=1
algo=grpo dynamics=ode
algo=grpo dynamics=ddim
algo=grpo_guard dynamics=cps
algo=grpo window.size=2
algo=grpo window.low=2
algo=grpo window=random_subset window.size=11
algo=grpo window=random_contiguous window.high=11
algo=grpo window=fixed window.steps=[]
algo=grpo window=fixed schedule.steps=2
algo=grpo window=all window.skip_last=10
algo=awm times.count=20 times=discrete
algo=awm dynamics.noise_level=0.3
algo=awm branches=2
algo=nft regularizer=kl_gaussian
algo=grpo regularizer=kl_token
model=tiny_gpt2 regularizer=kl_v
schedule=leading
schedule=uniform model=tiny_sd
dynamics=token
dynamics=flow_sde model=tiny_sd
model=tiny_sd33
model.path=/no/where
model.path=zoo:none
model=tiny_sd model.path=/no/where
model=tiny_flux model.path=/no/where
model=tiny_gpt2 model.path=/no/where
model=tiny_sd model.path=zoo:tiny_gpt2
model.size=60
model.size=1000
evaluation.size=68
model.guidance=0.5
model.finetune=lorra
model.finetune=lora model.lora_targets=[nothing]
model=tiny_gpt2 model.finetune=lora model.lora_targets=[c_atn]
reward=shpes
reward=sentiment
reward=length
reward=hps model=tiny_gpt2
reward=shapes model=tiny_gpt2
reward=ocr
reward=geneval
reward=combine
reward=combine reward.of=[shapes,shapes]
reward=combine reward.of=[shapes,length]
reward=combine reward.of=[shapes] reward.weights.shapes=0
reward=combine reward.of=[shapes] reward.weights.shaps=2
reward=combine reward.of=[shapes] reward.aggregate=gdpo
reward.of=[shapes]
eval_rewards.of=[sentiment]
eval_rewards.of=[compresibility]
logger.of=[wandb]
logger=several
prompts=movies
prompts=mine.txt
prompts=rows.jsonl
prompts=owner/name
prompts.path=mine.txt
prompts.path=rows.jsonl model=tiny_gpt2
prompts=file prompts.path=mine.txt
prompts=file prompts.path=rows.csv reward=compressibility
prompts=file prompts.path=mien.txt reward=compressibility
prompts=file prompts.path=owner/name reward=compressibility
prompts=file prompts.path=mine.txt reward=ocr
prompts=file prompts.path=mine.txt reward=geneval
prompts=datasets prompts.path=rows.csv reward=compressibility
FUNCTION reward.function=functions.py
FUNCTION reward.function=functions.py:scor
FUNCTION reward.function=functions.score
FUNCTION reward.function=function.py:score
FUNCTION reward.function=functions:nothing
PICTURES reward.function=functions.py
PICTURES reward.function=functions.py:rde
experiment=smok
experiment=peer/flow_grpo model=flux
experiment=typo -cd conf
precision=bf61
precision.weights=bfloat16
memory.attention=flsh
hardware=ddp hardware.processes=3
run_dir=
run_dir=a{b
recipe=nothing
hydra/launcher=joblb
hydra/sweeper=optuna
""".replace("FUNCTION", TEXTS).replace("PICTURES", IMAGES)
TOLD = """
iterations=0
iterations=-3
iterations=abc
iterations=
iterations=null
seed=-1
group_size=0
group_size=true
epochs=0
micro_batch=0
prompts_per_iteration=-8
max_failed=2
max_grad_norm=0
evaluation.prompts=0
evaluation.every=-1
checkpoint.keep=0
checkpoint.minutes=-1
guard.non_finite=halt
stop.mode=every
ema.decay=1
learning_rate.final_scale=2
latent_storage=int8
branch_at=steps algo=grpo
tail=0
optimizer.lr=abc
optimizer.lr=null
algo.beta=
algo=grpo model=tiny_gpt2 seed=-1
"""
"""Values of which nobody can say what was meant: what is allowed is said, and nothing suggested."""
COMMANDS = [line for line in WRONG.splitlines() if line]


@pytest.fixture
def files(tmp_path: Path) -> None:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)


def suggestions(shown: str) -> list[list[str]]:
    lines = [line.partition("try: ")[2] for line in shown.splitlines() if "    try: " in line]
    assert all(line.startswith("rlfactory ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def test_there_are_enough() -> None:
    assert sum("model=" not in line for line in COMMANDS) > 70
    assert len({*COMMANDS}) == len(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.usefixtures("files")
def test_what_is_suggested_works(
    line: str, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = refused("check", *shlex.split(line))
    found = suggestions(shown)
    assert found, shown
    assert not any(mark in shown for mark in ("...", "FILE", "Exception", "expecting"))
    for words in found:
        assert dispatch_checked(words) == 0, words
    capsys.readouterr()


def dispatch_checked(words: list[str]) -> int:
    """The exit code of a command that plans."""
    from rlfactory.cli import app

    is_plan = words[0] not in ("check", "list")
    return app.dispatch(["check", *words] if is_plan else words)


@pytest.mark.parametrize("line", [line for line in TOLD.splitlines() if line])
def test_what_is_allowed_is_said(line: str, refused: Refused) -> None:
    (shown,) = refused("check", *shlex.split(line)).splitlines()
    assert "; allowed is " in shown


@pytest.mark.usefixtures("files")
def test_what_leads_nowhere_is_not_suggested(refused: Refused) -> None:
    assert "try:" not in refused("check", "optimizer.betas=[1,")
    assert "try:" not in refused("check", "algo=[grpo")
    missing = "prompts=file prompts.path=mine.txt prompts.eval_path=no.txt reward=compressibility"
    assert "try:" not in refused("check", *missing.split())
    assert "try:" not in refused("check", "prompts=nowhere.txt")
    assert "try:" not in refused("check", "recipe=sd14_vgrp")
    # what was typed, another sampler, would have to go
    assert "try:" not in refused("check", "algo=awm", "dynamics=ode", "dynamics.noise_level=0.3")


def test_one_command_for_all_problems(refused: Refused) -> None:
    shown = refused("check", "iterations=1e3", "sed=1", "algo=nft", "algo.bta=1")
    assert shown.count("error:") == 3
    assert suggestions(shown) == [["check", "iterations=1000", "seed=1", "algo=nft", "algo.beta=1"]]


def test_what_is_missed_for_a_misnamed_word_comes_with_it(refused: Refused) -> None:
    """`algo.column=null` was suggested beside the data, whose columns are other ones."""
    shown = refused("model=tiny_gpt2", "algo=sft", "dataset_name=some/data")
    assert (
        "try: rlfactory model=tiny_gpt2 algo=sft prompts=datasets prompts.path=some/data\n" in shown
    )


def test_each_problem_has_its_own_where_one_can_not_be_fixed(refused: Refused) -> None:
    shown = refused("check", "iterations=1e3", "reward=image_function", "reward.function=no.py:f")
    assert shown.splitlines()[1] == "    instead: iterations=1000"
    assert shown.count("instead:") == 1
    assert "try:" not in shown, "no command mends both"


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        (["resume", "run"], Problem("run", "is none", "run_dir=null")),
        (["check", "algo=x"], Problem("algo", "is none", "rlfactory list algo")),
        (["algo=x"], Problem("algo", "is none")),
    ],
)
def test_what_can_not_be_planned_is_left_as_it_is(typed: list[str], problem: Problem) -> None:
    assert working_command([problem], typed) is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rlfactory algo=grpo_", ["algo=grpo_guard", "algo=grpo_token"]),
        ("rlfactory check experiment=peer/n", ["experiment=peer/nft"]),
        ("rlfactory algo=nft experiment=peer/tempf", ["experiment=peer/tempflow"]),
        ("rlfactory algo=zzz", []),
        ("rlfactory algo.clip_range=", []),
        ("rlfactory -m algo=nft see", ["seed="]),
        ("rlfactory evaluate RUN seed=1 evaluation.s", ["evaluation.seed=", "evaluation.steps="]),
        ("rlfactory optim", ["optimizer=", "optimizer."]),
        ("rlfactory algo=grpo,nft optimizer.l", ["optimizer.lr="]),
    ],
)
def test_options_and_keys(line: str, expected: list[str]) -> None:
    assert set(expected) <= set(completions(line))
    assert bool(expected) == bool(completions(line))


@pytest.mark.parametrize(
    ("line", "query", "expected"),
    [
        (
            "rlfactory check experiment=peer/mix",
            "bash",
            "experiment=peer/mix experiment=peer/mix_flash",
        ),
        ("rlfactory experiment=peer/mix", "fish", "experiment=peer/mix\nexperiment=peer/mix_flash"),
        ("rlfactory explain seed experiment=peer/nft algo.be", "bash", "algo.beta="),
        ("rlfactory group_s", "bash", "group_size="),
    ],
)
def test_the_shell_is_answered(
    line: str, query: str, expected: str, here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    shown = here("-sc", f"query={query}")
    assert (shown.returncode, shown.stdout.strip()) == (0, expected), shown.stderr


def test_the_shell_gets_a_script(here) -> None:
    shown = here("-sc", "install=bash")
    assert shown.returncode == 0, shown.stderr
    assert "hydra_bash_completion" in shown.stdout
