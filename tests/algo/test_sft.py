"""Supervised fine-tuning: the loss is transformers' own, on the tokens of the completions."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_language_models import save_language_model

from rlfactory.algo.sft import SFT
from rlfactory.batch import TokenBatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.ops.chat import read_prompt
from rlfactory.rollout import Rollout
from rlfactory.train.sampling.given import GivenSampler
from rlfactory.utils.pytree import require

ROWS = [("The film:", " dull."), ("A", " good film"), ("Plot?", " ok")]
PROMPTS = [Prompt(text, {"completion": rest}) for text, rest in ROWS]
# a hot and truncated sampler, which must not matter
TOKEN = Token(length=12, temperature=1.7, top_k=3)


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(torch.device("cpu"), path=str(gpt2_folder))


def sampled(model: CausalLM, algo: SFT, prompts: list[Prompt] = PROMPTS) -> Rollout:
    sampler = GivenSampler(
        model,
        completion=algo.completion,
        length=12,
        dynamics=TOKEN,
        batch=8,
        advance=lambda count: None,
    )
    rollout = sampler.rollout(prompts, torch.arange(len(prompts)), seed=0, iteration=0)
    return algo.compute_advantages(rollout, "any")


def items(model: CausalLM, **options: Any) -> tuple[SFT, TokenBatch]:
    algo = SFT(**options)
    return algo, algo.training_items(sampled(model, algo), model, seed=0, iteration=0)


@pytest.mark.parametrize("train_on", ["completion", "text"])
def test_the_loss_is_transformers_own(model: CausalLM, train_on: Any) -> None:
    """By `labels`, in which -100 leaves a token out; a mean over the tokens of all rows."""
    algo, batch = items(model, train_on=train_on)
    found = algo.loss(model, batch)
    end = model.tokenizer.eos_token_id
    total, count = 0.0, 0
    for given, learned in ROWS:
        prompt, rest = (model.tokenizer(text).input_ids for text in (given, learned))
        ids = torch.tensor([[end, *prompt, *rest, end][: 12 + 1 + len(prompt)]])
        labels = ids.clone()
        labels[:, : 1 if train_on == "text" else 1 + len(prompt)] = -100
        if train_on == "text":
            ids, labels = ids[:, :13], labels[:, :13]
        size = int((labels != -100).sum())
        total += float(model.network(ids, labels=labels).loss) * size
        count += size
    assert found.value.item() == pytest.approx(total / count, abs=1e-5)
    assert batch.weight == count


def test_whole_texts_need_no_completion(model: CausalLM) -> None:
    algo = SFT(column=None)
    texts = [Prompt(given + rest, {}) for given, rest in ROWS]
    tokens = require(sampled(model, algo, texts).tokens, "tokens")
    both = require(sampled(model, SFT(train_on="text")).tokens, "tokens")
    assert torch.equal(tokens.response, both.response)


def test_the_gradient_makes_the_data_likelier_and_spares_the_critic(model: CausalLM) -> None:
    algo, batch = items(model)
    optimizer = torch.optim.SGD(model.weights.parameters.values(), lr=0.02)
    losses = []
    for _ in range(5):
        loss = algo.loss(model, batch)
        losses.append(loss.value.item())
        loss.value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert all(p.grad is None for p in model.critic.parameters())
        optimizer.zero_grad()
    assert losses[-1] < losses[0]


def test_micro_batches_add_up(model: CausalLM) -> None:
    algo, batch = items(model)
    whole = algo.loss(model, batch).value
    parts = [algo.loss(model, part).value * part.weight / batch.weight for part in batch.split(2)]
    assert sum(part.item() for part in parts) == pytest.approx(whole.item(), abs=1e-6)


def test_accuracy_is_the_share_of_likeliest_tokens(model: CausalLM) -> None:
    algo, batch = items(model)
    logits, _ = model.forward(batch.tokens)
    expected = logits.argmax(-1) == batch.tokens.real(batch.tokens.response)
    assert torch.equal(algo.loss(model, batch).metrics["policy/accuracy"], expected.float())


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"answer": "x"}, "'completion' must be a text, and there is none.*columns are answer"),
        ({"completion": True}, "it is True"),
        ({"completion": " "}, "it is ' '"),
        ({}, "columns are none"),
    ],
)
def test_a_row_without_a_completion_is_an_error(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        SFT().completion(Prompt("The film", metadata), 0)


@pytest.mark.parametrize(
    ("algo", "prompts", "fixes"),
    [
        ("sft", "arithmetic", ["algo.column=answer"]),
        ("sft", "movies", ["algo.column=null"]),  # no column: the prompts are whole texts
        ("dpo", "arithmetic", ["", ""]),  # a pair of equal texts is none
    ],
)
def test_the_column_that_prompts_have_is_suggested(
    algo: str, prompts: str, fixes: list[str]
) -> None:
    words = ["model=tiny_gpt2", f"algo={algo}", f"prompts={prompts}"]
    with pytest.raises(PlanError, match="no such column") as found:
        plan_from_words(*words)
    assert [problem.fix for problem in found.value.problems] == fixes
    if all(fixes):
        plan_from_words(*words, *fixes)


def test_no_score_trains() -> None:
    assert SFT().reward_names("sentiment") == []


def test_of_a_conversation_the_last_answer_is_learned(tmp_path: Path) -> None:
    model = CausalLM(torch.device("cpu"), path=str(save_language_model(tmp_path, "qwen3")))
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    ((text, metadata),) = [read_prompt({"messages": messages}, "messages")]
    tokens = require(sampled(model, SFT(), [Prompt(text, metadata)]).tokens, "tokens")
    learned = model.tokenizer.decode(tokens.response[tokens.mask])
    given = model.tokenizer.decode(tokens.prompt[tokens.prompt_mask])
    assert learned == "4<|im_end|>"
    assert given + learned + "\n" == model.tokenizer.apply_chat_template(messages, tokenize=False)
    for options in ({"column": None}, {"train_on": "text"}):
        with pytest.raises(PromptError, match="type algo.train_on=completion algo.column=comp"):
            SFT(**options).completion(Prompt(text, metadata), 0)
