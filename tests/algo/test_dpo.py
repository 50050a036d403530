"""DPO on texts: its properties, and the run that learns from pairs of a file."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rlfactory.algo.dpo import DPO, OnlineDPO
from rlfactory.algo.ops.preference import PairBatch
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.rollout import Rollout
from rlfactory.run.folder import RunFolder
from rlfactory.train.sampling.given import GivenSampler
from rlfactory.train.session import Session

DOCS = Path(__file__).parents[2] / "docs"
ROWS = [("The film:", " good", " dull."), ("A", " fine film", " bad"), ("Plot?", " ok", " no, no")]
PROMPTS = [Prompt(text, {"chosen": a, "rejected": b}) for text, a, b in ROWS]
# a hot and truncated sampler, which must not matter
TOKEN = Token(length=12, temperature=1.7, top_k=3)


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    made = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    made.weights.add(REFERENCE)
    return made


def sampled(model: CausalLM, algo: DPO) -> Rollout:
    sampler = GivenSampler(
        model, completion=algo.completion, dynamics=TOKEN, batch=8, advance=lambda count: None
    )
    groups = torch.arange(len(PROMPTS)).repeat_interleave(2)
    rollout = algo.compute_advantages(sampler.rollout(PROMPTS, groups, seed=0, iteration=0), "any")
    shuffled = torch.tensor([3, 0, 5, 4, 1, 2])  # as minibatches are
    return algo.normalise_update(rollout[shuffled])


def items(model: CausalLM, **options: Any) -> tuple[DPO, PairBatch]:
    algo = DPO(**options)
    return algo, algo.training_items(sampled(model, algo), model, seed=0, iteration=0)


def log_prob(model: CausalLM, prompt: str, completion: str) -> float:
    """By the network itself: the end before the prompt, the completion and its end."""
    end = model.tokenizer.eos_token_id
    given, rest = (model.tokenizer(text).input_ids for text in (prompt, completion))
    ids = torch.tensor([end, *given, *rest, end])
    logits = model.network(ids[None]).logits[0, :-1].log_softmax(-1)
    taken = logits.gather(-1, ids[1:, None])[:, 0]
    return taken[len(given) :].sum().item()


def moved(model: CausalLM) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.weights.parameters.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("loss_type", ["sigmoid", "robust"])
def test_the_first_loss_is_log_2(model: CausalLM, loss_type: Any) -> None:
    algo, batch = items(model, loss_type=loss_type, label_smoothing=0.1)
    found = algo.loss(model, batch)
    assert found.metrics["preference/margin"].tolist() == [0.0, 0.0, 0.0]
    assert found.value.item() == pytest.approx(math.log(2), abs=1e-7)


def test_log_ratios_are_those_of_whole_completions(model: CausalLM) -> None:
    before = {(p, c): log_prob(model, p, c) for p, *both in ROWS for c in both}
    moved(model)
    algo, batch = items(model, beta=0.3)
    metrics = algo.loss(model, batch).metrics
    for number, (prompt, chosen, rejected) in enumerate(ROWS):
        now = [log_prob(model, prompt, text) for text in (chosen, rejected)]
        ratios = [x - before[prompt, t] for x, t in zip(now, (chosen, rejected), strict=True)]
        assert metrics["preference/chosen"][number].item() == pytest.approx(
            0.3 * ratios[0], abs=2e-5
        )
        margin = metrics["preference/margin"][number].item()
        assert margin == pytest.approx(0.3 * (ratios[0] - ratios[1]), abs=2e-5)
        for name, value in zip(("chosen", "rejected"), now, strict=True):
            found = metrics[f"preference/log_prob_{name}"][number].item()
            assert found == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize("loss_type", ["sigmoid", "ipo", "hinge", "robust"])
def test_learning_separates_pairs_and_leaves_reference_and_critic(
    model: CausalLM, loss_type: Any
) -> None:
    algo, batch = items(model, loss_type=loss_type)
    kept = {k: v.clone() for k, v in model.weights.state_dict().items() if k.startswith(REFERENCE)}
    optimizer = torch.optim.SGD(model.weights.parameters.values(), lr=0.02)
    for _ in range(4):
        loss = algo.loss(model, batch)
        loss.value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        assert all(p.grad is None for p in model.critic.parameters())
        optimizer.zero_grad()
    assert (algo.loss(model, batch).metrics["preference/margin"] > 0).all()
    for name, tensor in model.weights.state_dict().items():
        assert name not in kept or torch.equal(tensor, kept[name])


def test_the_weight_of_likelihood_adds_it(model: CausalLM) -> None:
    moved(model)
    plain, batch = items(model)
    with_sft = DPO(sft_weight=0.5).loss(model, batch)
    lengths = batch.tokens.response_lengths[::2]
    extra = -(with_sft.metrics["preference/log_prob_chosen"] / lengths).mean()
    expected = plain.loss(model, batch).value + 0.5 * extra
    torch.testing.assert_close(with_sft.value, expected)


@pytest.mark.parametrize("size", [1, 2, 4, 5])
def test_micro_batches_are_whole_pairs_and_add_up(model: CausalLM, size: int) -> None:
    moved(model)
    algo, batch = items(model)
    parts = [*batch.split(size)]
    assert all(len(part) % 2 == 0 for part in parts)
    assert batch.weight == sum(part.weight for part in parts) == 3
    whole = algo.loss(model, batch).value.item()
    total = sum(algo.loss(model, part).value.item() * part.weight for part in parts) / 3
    assert total == pytest.approx(whole, abs=1e-6)


def test_the_padding_of_a_process_is_a_pair(model: CausalLM) -> None:
    algo = DPO()
    one = sampled(model, algo)[torch.zeros(1, dtype=torch.int64)]
    batch = algo.training_items(one, model, seed=0, iteration=0)
    assert algo.loss(model, batch).value.isfinite()


def test_completions_may_be_messages() -> None:
    said = {k: [{"role": "assistant", "content": k}] for k in ("chosen", "rejected")}
    found = [DPO().completion(Prompt("Hi", said), member)[1] for member in (0, 1)]
    assert found == ["chosen", "rejected"]


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"chosen": " a"}, "'rejected' must be a text, and there is none.*columns are chosen"),
        (
            {"chosen": True, "rejected": " b"},
            r"'chosen' must be a text, and it is True.*algo\.chosen",
        ),
        ({"chosen": " a", "rejected": " "}, "it is ' '"),
        ({"chosen": " a", "rejected": " a"}, "are equal, ' a'; a pair must differ"),
    ],
)
def test_a_row_that_is_no_pair_is_an_error(metadata: dict[str, Any], message: str) -> None:
    with pytest.raises(PromptError, match=message):
        DPO().completion(Prompt("The film", metadata), 0)


SCORES = [0.3, 0.9, 0.9, 0.1, 0.5, 0.5, 0.5, 0.5, 0.2, 0.0, 0.4, 0.8]
"""Of three groups of four completions; those of the second are equal."""


def test_own_pairs_are_the_best_and_the_worst_of_each_group(model: CausalLM) -> None:
    """Their loss is that of the same completions as pairs of data."""
    texts = [f" {letter}" for letter in "abcdefghijkl"]
    prompts = [Prompt(f"{n} is", {"texts": texts[4 * n : 4 * n + 4]}) for n in range(3)]

    def completion(prompt: Prompt, member: int) -> tuple[str, str]:
        return prompt.text, prompt.metadata["texts"][member % 4]

    sampler = GivenSampler(
        model, completion=completion, dynamics=TOKEN, batch=12, advance=lambda count: None
    )
    drawn = sampler.rollout(prompts, torch.arange(3).repeat_interleave(4), seed=0, iteration=0)
    drawn = replace(drawn, rewards={"any": torch.tensor(SCORES)})
    algo = OnlineDPO(beta=0.3)
    pairs = algo.normalise_update(algo.compute_advantages(drawn, "any"))
    assert pairs.texts == [" b", " d", " l", " j"]
    moved(model)
    batch = algo.training_items(pairs, model, seed=0, iteration=0)
    found = algo.loss(model, batch)
    rows = [("0 is", " b", " d"), ("2 is", " l", " j")]
    data = [Prompt(text, {"chosen": a, "rejected": b}) for text, a, b in rows]
    offline = DPO(beta=0.3)
    sampler = GivenSampler(
        model, completion=offline.completion, dynamics=TOKEN, batch=4, advance=lambda count: None
    )
    given = sampler.rollout(data, torch.arange(2).repeat_interleave(2), seed=0, iteration=0)
    given = offline.compute_advantages(given, "any")
    items = offline.training_items(given, model, seed=0, iteration=0)
    torch.testing.assert_close(found.value, offline.loss(model, items).value)


PAIRS = Path(__file__).parents[1] / "data" / "pairs.jsonl"


def problems(*words: str) -> dict[str, str]:
    plain = ["model=tiny_gpt2", "algo=dpo", "prompts=file", f"prompts.path={PAIRS}"]
    try:
        plan_from_words(*plain, *words)
    except PlanError as error:
        return {problem.key: f"{problem.message} {problem.fix}" for problem in error.problems}
    return {}


@pytest.mark.parametrize(
    ("word", "key", "message"),
    [
        ("algo.chosen=better", "algo.chosen", "no such column; they have chosen, rejected"),
        ("algo.rejected=chosen", "algo.rejected", "equal to chosen; a pair must differ"),
        ("group_size=1", "group_size", "or two, chosen and rejected; allowed is 2"),
        ("shares=random", "shares", "shares=groups"),
        ("regularizer=kl_token", "regularizer", "regularizer=none"),
        ("algo.label_smoothing=0.5", "algo.label_smoothing", "< 0.5"),
        ("prompts_per_iteration=6", "updates_per_iteration", "does not divide the 6 prompts"),
    ],
)
def test_the_plan_names_what_does_not_fit(word: str, key: str, message: str) -> None:
    found = problems(word)
    assert [*found] == [key]
    assert message in found[key]


def test_the_plan_accepts_pairs() -> None:
    assert problems() == {}


def test_the_loss_follows_the_medium() -> None:
    assert plan_from_words("model=tiny_sd3", "algo=dpo").choices["algo"] == "diffusion_dpo"


def run_words(folder: Path, gpt2_folder: Path, *words: str) -> dict[str, Any]:
    """A run's configuration: two iterations of two updates, and held-out prompts."""
    plan = plan_from_words(
        *(f"run_dir={folder}", "model=gpt2", f"model.path={gpt2_folder}", "hardware=cpu"),
        *("algo=dpo", "prompts=file", f"prompts.path={PAIRS}", "reward=length", "iterations=2"),
        *("prompts_per_iteration=4", "updates_per_iteration=2", "dynamics.length=12"),
        *("evaluation.prompts=2", "checkpoint.every=1", "optimizer.lr=1e-3", *words),
    )
    return {**plan.config, "choices": plan.choices}


@pytest.fixture
def start(gpt2_folder: Path) -> Callable[..., Session]:
    def begin(path: Path, *words: str, **options: Any) -> Session:
        folder = RunFolder(path) if path.exists() else RunFolder.create(path)
        config = run_words(path, gpt2_folder, *words)
        folder.config.write_text(yaml.safe_dump(config))
        return Session(config, folder, **options)

    return begin


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["model.finetune=lora", "epochs=2"]], ids=str)
def test_a_run_learns_the_pairs_and_is_resumed_bit_for_bit(
    words: list[str],
    start: Callable[..., Session],
    tmp_path: Path,
    traces: Callable[[Path], dict[str, Any]],
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert start(whole, *words).run() == "done"
    assert start(parts, *words, until=1).run() == "paused"
    assert start(parts, *words).run() == "done"
    assert traces(whole) == traces(parts)
    lines = [json.loads(line) for line in RunFolder(whole).metrics.read_text().splitlines()]
    margins = [line["preference/margin"] for line in lines if "preference/margin" in line]
    assert margins[1] > margins[0] > 0
    known = re.findall(r"`([a-z]+/[^`]+)`", (DOCS / "metrics.md").read_text())
    logged = {name for line in lines for name in line if name.startswith("preference/")}
    assert logged <= set(known)
