"""Runs on conversations: ratios start at 1, rewards get texts and messages, samples are read."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_language_models import KINDS, save_language_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlfactory as rl
from rlfactory.prompts.ops.chat import Message
from rlfactory.run.metrics import read
from rlfactory.utils.errors import UserError

pytestmark = pytest.mark.slow
SMALL = [
    *("model=tiny_gpt2", "iterations=1", "prompts_per_iteration=4", "updates_per_iteration=2"),
    *("evaluation.prompts=2", "evaluation.grid=2", "evaluation.preview_every=0", "hardware=cpu"),
    *("dynamics.length=12", "model.lora_targets=null"),
]
PROMPTS = [[{"role": "user", "content": f"{n} + 2?"}] for n in range(6)]
ANSWERED = [[*asked, {"role": "assistant", "content": "many"}] for asked in PROMPTS]


def seen_messages(
    prompts: Sequence[Sequence[Message]],
    completions: Sequence[Sequence[Message]],
    messages: Sequence[Sequence[Message]],
) -> list[float]:
    """A reward that reads all that it is given."""
    for prompt, (answer,), asked in zip(prompts, completions, messages, strict=True):
        assert prompt == asked
        assert answer["role"] == "assistant"
        assert "<|im_end|>" not in answer["content"]
    return [-float(len(answer["content"])) for (answer,) in completions]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "words", [["algo=ppo"], ["algo=grpo", "model.finetune=lora"], ["algo=sft"]], ids=" ".join
)
def test_an_update(kind: str, words: list[str], tmp_path: Path) -> None:
    folder = save_language_model(tmp_path / "model", kind)
    own = [] if words == ["algo=sft"] else ["group_size=2"]
    run = rl.train(
        *SMALL, *words, *own, f"model.path={folder}", prompts=ANSWERED, eval_prompts=PROMPTS,
        reward=seen_messages, run_dir=tmp_path / "run",
    )  # fmt: skip
    (metrics,) = [row for row in read(run.path / "metrics.jsonl") if "grad/norm" in row]
    assert metrics["grad/norm"] > 0
    if words != ["algo=sft"]:
        assert metrics["ratio/first_max_dev"] < 1e-4
    page = (run.path / "samples" / "eval_000001.md").read_text()
    assert "| user: 0 + 2? |" in page
    drawn = run.samples([PROMPTS[0]], 2)
    assert len(drawn) == 2


def test_a_model_without_a_template_is_refused_with_a_fix_that_works(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    given: dict[str, Any] = {
        "model": AutoModelForCausalLM.from_pretrained(gpt2_folder),
        "tokenizer": AutoTokenizer.from_pretrained(gpt2_folder),
        "reward": seen_messages,
        "prompts": PROMPTS,
    }
    with pytest.raises(UserError, match="type model.chat_template=plain"):
        rl.train(*SMALL, **given, run_dir=tmp_path / "first")
    rl.train(*SMALL, "model.chat_template=plain", **given, run_dir=tmp_path / "second")
