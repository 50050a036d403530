"""Which library a file is for."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlfactory.config.overrides import compose, plan_composed
from rlfactory.config.peers.files import library_of, translate_file
from rlfactory.config.peers.importer import Translation
from rlfactory.config.problems import PlanError


def test_files_show_what_they_are_for(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"num_generations": 8, "learning_rate": 2e-5}))
    (tmp_path / "a.yaml").write_text("num_generations: 8\nlearning_rate: 2e-5\n")
    for name in ("a.json", "a.yaml"):
        made = translate_file(str(tmp_path / name))
        assert made.peer == "TRL"
        assert "optimizer.lr=2e-05" in made.command()


def test_a_command_is_known_by_its_program_and_a_file_by_its_keys() -> None:
    assert library_of({"model": "x"}, "swift sft") == "ms-swift"
    assert library_of({"rollout_batch_size": 8}, "") == "OpenRLHF"
    assert library_of({"model": "x"}, "-m verl.trainer.fsdp_sft_trainer") == "verl SFT"
    assert library_of({"model": "x"}, "python my_sft_trainer.py") is None
    assert library_of({"model": "x"}, "") is None


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.yaml", None, "there is no file"),
        ("a.yaml", "a: 1", "has the keys of no known library"),
        ("a.yaml", "[", "can't be read"),
        ("a.yaml", "3", "the keys of no known library"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match=said):
        translate_file(str(tmp_path / name))


def test_python_is_read_by_way_of_the_command_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dumped = json.dumps({"num_generations": 8, "learning_rate": 2e-5})
    code = (
        "class C:\n    def to_json(self):\n        return DUMPED\n\ndef mine():\n    return C()\n"
    )
    Path("a.py").write_text(f"DUMPED = {dumped!r}\n{code}")
    with pytest.raises(PlanError, match="is Python, which is not run here") as refused:
        translate_file("a.py:mine")
    told = re.search(r"(python -c .*); type rlfactory import (\S+) then", str(refused.value))
    assert told is not None
    subprocess.run(told[1].replace("python", sys.executable, 1), shell=True, check=True)
    assert "group_size=8" in translate_file(told[2]).command()


def test_openrlhf_has_two_ways_to_name_its_options(tmp_path: Path) -> None:
    old = (
        "python -m openrlhf.cli.train_ppo_ray --pretrain a/b --rollout_batch_size 512"
        " --n_samples_per_prompt 16 --train_batch_size 1024 --generate_max_len 8192"
        " --advantage_estimator reinforce_baseline --init_kl_coef 1e-4 --use_kl_loss"
        " --kl_estimator k2 --actor_learning_rate 1e-6 --eps_clip_low_high 0.2 0.27"
    )
    new = (  # 0.11
        "python -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path a/b"
        " --rollout.batch_size 512 --rollout.n_samples_per_prompt 16 --train.batch_size 1024"
        " --rollout.max_new_tokens 8192 --algo.advantage.estimator reinforce_baseline"
        " --algo.kl.init_coef 1e-4 --algo.kl.use_loss --algo.kl.estimator k2"
        " --actor.adam.lr 1e-6 --actor.eps_clip_low_high 0.2 0.27 --data.max_len 9216"
        " --eval.n_samples_per_prompt 4 --critic.adam.betas 0.5 0.6"
    )
    made = []
    for name, text in {"old.sh": old, "new.sh": new}.items():
        (tmp_path / name).write_text(text)
        made.append(translate_file(str(tmp_path / name)))
    assert made[0].command() == made[1].command()
    assert {"prompts_per_iteration=512", "group_size=16", "updates_per_iteration=8"} <= {
        *made[1].command()
    }
    left = ("data.max_len", "eval.n_samples_per_prompt", "critic.adam.betas")
    assert {*left} <= made[1].dropped.keys()


def test_other_trainers_of_openrlhf_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("deepspeed --module openrlhf.cli.train_rm --pretrain a/b")
    with pytest.raises(PlanError, match="train_ppo, train_sft and train_dpo are"):
        translate_file(str(tmp_path / "a.sh"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            "openrlhf.cli.train_sft --model.model_name_or_path a/b --data.dataset c/d"
            " --data.input_key q --data.output_key a --train.batch_size 64 --adam.lr 2e-6",
            "algo=sft prompts_per_iteration=64 micro_batch=2 algo.length=2048 prompts.column=q"
            " algo.column=a optimizer.lr=2e-06 precision=bf16 model.text_role=none",
        ),
        (
            "openrlhf.cli.train_sft --pretrain a/b --dataset c/d --input_key text",
            "algo=sft prompts_per_iteration=128 prompts.column=text algo.column=null",
        ),
        (
            "openrlhf.cli.train_dpo --pretrain a/b --dataset c/d --apply_chat_template --beta 0.2"
            " --chosen_key good --rejected_key bad --ipo --micro_train_batch_size 1",
            "algo=dpo micro_batch=2 algo.length=512 algo.chosen=good algo.rejected=bad"
            " algo.beta=0.2 algo.loss_type=ipo model.text_role=user optimizer.lr=1e-05",
        ),
        (
            "verl.trainer.fsdp_sft_trainer model.partial_pretrain=a/b data.train_files=c.parquet"
            " data.prompt_key=q data.micro_batch_size_per_gpu=2 trainer.logger=swanlab",
            "algo=sft prompts_per_iteration=256 micro_batch=2 prompts.column=q algo.column=answer"
            " optimizer.lr=1e-05 learning_rate.schedule=cosine logger=swanlab",
        ),
    ],
)
def test_trainers_of_given_completions(tmp_path: Path, command: str, words: str) -> None:
    (tmp_path / "a.sh").write_text(f"torchrun -m {command}")
    assert {*words.split()} <= {*translate_file(str(tmp_path / "a.sh")).command()}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            "grpo --max_completion_length 8192 --max_length 2048",
            "dynamics.length=8192 model.max_prompt_length=2048 model.long_prompts=cut"
            " algo.aggregation=sequence",
        ),
        (
            "ppo --max_length 99 --truncation_strategy delete",
            "dynamics.length=512 dynamics.temperature=0.9 model.max_prompt_length=99"
            " model.long_prompts=drop prompts_per_iteration=16 optimizer.lr=0.0001"
            " model.value_lr=0.0001",
        ),
        (
            "grpo --advantage_estimator rloo --beta 0.1",
            "algo=rloo regularizer.placement=reward regularizer.estimator=k1 group_size=8"
            " precision=bf16",
        ),
        (
            "dpo --max_length 99 --per_device_train_batch_size 3",
            "algo.length=99 prompts_per_iteration=18 micro_batch=6",
        ),
    ],
)
def test_ms_swift_has_names_and_defaults_of_its_own(
    tmp_path: Path, options: str, words: str
) -> None:
    (tmp_path / "a.sh").write_text(f"swift rlhf --rlhf_type {options} --model a/b")
    assert {*words.split()} <= {*translate_file(str(tmp_path / "a.sh")).command()}


def of_script(folder: Path, text: str) -> Translation:
    (folder / "a.sh").write_text(text)
    return translate_file(str(folder / "a.sh"))


@pytest.mark.parametrize(
    ("script", "algo"),
    [
        ("trl/scripts/dpo.py", "dpo"),
        ("rloo_vlm.py", "rloo"),
        ("gspo.py --epsilon_high 1", "grpo_token"),
    ],
)
def test_a_script_of_trl_names_its_trainer(tmp_path: Path, script: str, algo: str) -> None:
    # without a key that is DPO's or RLOO's alone
    options = "--model_name_or_path a/b --per_device_train_batch_size 2"
    made = of_script(tmp_path, f"accelerate launch --num_processes 4 {script} {options}")
    assert made.words["algo"] == f"algo={algo}"


def test_online_dpo_is_dpo_on_pairs_of_the_policys_own(tmp_path: Path) -> None:
    options = "--reward_model_path a/r --missing_eos_penalty 1.0 --gradient_accumulation_steps 16"
    made = of_script(tmp_path, f"python online_dpo.py --model_name_or_path a/b {options}")
    assert plan_composed(compose(made.command())).config["prompts_per_iteration"] == 128
    assert {"group_size=2", "dynamics.length=64", "dynamics.temperature=0.9"} <= {*made.command()}
    assert made.words["optimizer.lr"] == "optimizer.lr=5e-07"
    assert "missing_eos_penalty" in made.dropped
    (tmp_path / "a.yaml").write_text("{max_new_tokens: 53, beta: [0.2], loss_type: ipo}")
    words = translate_file(str(tmp_path / "a.yaml")).words
    assert {"algo=online_dpo", "algo.beta=0.2", "algo.loss_type=ipo"} <= {*words.values()}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("python trl/scripts/kto.py --output_dir a --max_length 9", "kto"),
        ("python nash_md.py --model_name_or_path a/b --beta 0.1", "nash"),
        ("python reward_modeling.py --output_dir a --max_length 9", "reward"),
        ("python mine.py --per_device_train_batch_size 1 --desirable_weight 2", "kto"),
    ],
)
def test_trainers_that_are_not_here_are_refused(tmp_path: Path, text: str, kind: str) -> None:
    with pytest.raises(PlanError, match=f"is {kind}; known are"):
        of_script(tmp_path, text)


def test_a_command_has_the_options_of_the_file_that_it_reads(tmp_path: Path) -> None:
    content = "model_name_or_path: a/b\nnum_processes: 4\nlearning_rate: 1.0e-6\n"
    (tmp_path / "b.yaml").write_text(content)
    words = of_script(tmp_path, "trl sft --config b.yaml --learning_rate 1e-5").words
    assert words["algo"] == "algo=sft"
    assert words["optimizer.lr"] == "optimizer.lr=1e-05"
    assert words["prompts_per_iteration"] == "prompts_per_iteration=32"  # 8 on each of 4 GPUs
    with pytest.raises(PlanError, match="c.yaml, which is not here"):
        of_script(tmp_path, "trl sft --config c.yaml")
    with pytest.raises(PlanError, match="names no trainer"):
        translate_file(str(tmp_path / "b.yaml"))


VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b data.max_response_length=64"
)


def test_verl_has_lists_of_files_and_losses(tmp_path: Path) -> None:
    options = (
        " algorithm.adv_estimator=grpo data.max_prompt_length=32 data.filter_overlong_prompts=True"
        """ "data.train_files=['a.parquet', 'b.parquet']" "data.val_files=['c.parquet']" """
        " trainer.logger=console trainer.project_name=p trainer.n_gpus_per_node=$GPUS"
        " actor_rollout_ref.actor.policy_loss.loss_mode=gspo"
        " actor_rollout_ref.actor.fsdp_config.model_dtype=fp32"
        " reward_model.overlong_buffer.enable=True reward_model.overlong_buffer.len=16"
    )
    made = of_script(tmp_path, VERL + options)
    wanted = (
        "prompts.path=a.parquet prompts.eval_path=c.parquet algo=grpo_token algo.ratio=sequence"
        " algo.aggregation=sequence model.long_prompts=drop logger=jsonl precision=bf16"
        " algo.overlong_buffer=0.25 algo.whiten_unbiased=true regularizer.placement=none"
    )
    assert {*wanted.split()} <= {*made.command()}
    assert {"logger.project", "algo.dual_clip"}.isdisjoint(made.words)
    assert {note.partition(":")[0] for note in made.notes} >= {
        "[b.parquet]",
        "no reward is translated",
    }


def test_a_library_with_the_keys_of_another_is_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="has the keys of no known library"):
        of_script(tmp_path, VERL.replace("verl.", "verl_omni.", 1))
    dance = "torchrun train_grpo_flux_lora.py --pretrained_model_name_or_path data/flux"
    dance += " --sampling_steps 4 --lora_rank 8"
    wanted = "model.finetune=lora model.lora_targets=[to_k,to_q,to_v,to_out.0] model.lora_rank=8"
    assert {*wanted.split()} <= {*of_script(tmp_path, dance).command()}
    with pytest.raises(PlanError, match="experiment=peer/mix"):
        of_script(tmp_path, f"{dance} --training_strategy part")


def test_a_reward_model_may_be_a_folder(tmp_path: Path) -> None:
    verl = of_script(
        tmp_path, f"{VERL} reward_model.enable=True reward_model.model.path=/models/rm"
    )
    trl = of_script(tmp_path, "trl grpo --reward_funcs ./rm")
    assert verl.words["reward"] == trl.words["reward"] == "reward=reward_model"
    assert (verl.words["reward.path"], trl.words["reward.path"]) == (
        "reward.path=/models/rm",
        "reward.path=./rm",
    )


def test_the_critic_of_verl_has_its_defaults(tmp_path: Path) -> None:
    words = {*of_script(tmp_path, f"{VERL} algorithm.adv_estimator=gae").command()}
    assert {
        "algo=ppo",
        "algo.value_clip=0.5",
        "model.value_lr=1e-05",
        "algo.dual_clip=3.0",
    } <= words


def test_what_a_script_computes_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text("trl grpo --output_dir $(date) --learning_rate 1e-5")
    notes = translate_file(str(tmp_path / "a.sh")).notes
    assert any(re.match(r"run_dir=.*date.*: the script, which is not run", n) for n in notes)


def test_a_command_whose_file_has_no_options_is_told(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "run.sh").write_text("trl grpo --config list.yaml\n")
    with pytest.raises(PlanError, match=r"list.yaml has no options"):
        translate_file(str(tmp_path / "run.sh"))
