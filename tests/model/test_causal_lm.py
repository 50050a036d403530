"""A language model with a value head: decoding on the cache equals a full pass."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
from tiny_language_models import save_language_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlfactory.algo.ops.token_kl import entropy, exact_kl
from rlfactory.algo.ops.token_outputs import token_outputs
from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm import generate
from rlfactory.model.lm.loading import begins_with_end, end_ids
from rlfactory.model.lm.prompt_format import PromptFormat
from rlfactory.model.precision import Precision
from rlfactory.rollout import Tokens
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import index_rows

CPU = torch.device("cpu")
PROMPTS = ["This movie", "I", "", "A long opening of"]


def uniform(count: int, length: int) -> torch.Tensor:
    return torch.rand(count, length, generator=torch.Generator().manual_seed(1))


def roll(model: CausalLM, prompts: list[str] = PROMPTS, length: int = 12, **options: Any) -> Tokens:
    ids, mask = model.encode(prompts)
    return model.rollout(ids, mask, Token(length=length, **options), uniform(len(prompts), length))


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(CPU, path=str(gpt2_folder), value_start="orthogonal")


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"top_k": 20}, {"top_p": 0.8}])
def test_cached_likelihoods_and_values_are_a_full_passs(
    model: CausalLM, options: dict[str, Any]
) -> None:
    tokens = roll(model, **options)
    logits, values = model.forward(tokens)
    found = Token(**options).step(logits, next=tokens.response[tokens.mask])
    torch.testing.assert_close(found.log_prob, tokens.log_prob[tokens.mask], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(values, tokens.value[tokens.mask], atol=1e-5, rtol=1e-5)


def test_padding_on_the_left_changes_nothing(model: CausalLM) -> None:
    together = roll(model)
    ids, mask = model.encode(PROMPTS[1:2])
    alone = model.rollout(ids, mask, Token(length=12), uniform(4, 12)[1:2])
    assert torch.equal(together.response[1], alone.response[0])
    torch.testing.assert_close(together.log_prob[1:2], alone.log_prob, atol=1e-5, rtol=1e-5)


def test_it_is_transformers_own_model(model: CausalLM, gpt2_folder: Path) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(gpt2_folder, dtype=torch.float32).eval()
    tokens = roll(model, prompts=["This movie"])
    whole = torch.cat([tokens.prompt, tokens.response], dim=1)
    logits = theirs(whole).logits[0, tokens.prompt.shape[1] - 1 : -1]
    torch.testing.assert_close(model.forward(tokens)[0], logits[tokens.mask[0]])


def test_a_response_ends_with_its_stop_token(model: CausalLM) -> None:
    tokens = roll(model, prompts=PROMPTS * 8, length=40, temperature=2.0)
    end = model.tokenizer.eos_token_id
    assert tokens.ended.any()
    assert not tokens.ended.all()
    for row, mask, ended in zip(tokens.response, tokens.mask, tokens.ended, strict=True):
        length = int(mask.sum())
        assert bool(mask[:length].all())
        assert bool(ended) == (row[length - 1].item() == end)
        assert end not in row[: length - 1]
    assert torch.equal(
        tokens.log_prob[~tokens.mask], torch.zeros_like(tokens.log_prob[~tokens.mask])
    )


def test_stop_tokens_wait_for_their_time_and_the_end_may_be_ignored(model: CausalLM) -> None:
    early = roll(model, prompts=PROMPTS * 8, length=30, stop=["e", "t"], temperature=2.0)
    late = roll(
        model, prompts=PROMPTS * 8, length=30, stop=["e", "t"], stop_after=20, temperature=2.0
    )
    assert early.mask.sum(1).min() < 20
    assert late.mask.sum(1).min() > 20
    assert roll(model, PROMPTS * 8, 30, stop_at_end=False, temperature=2.0).mask.all()


def test_texts_have_no_special_tokens(model: CausalLM) -> None:
    tokens = roll(model, prompts=PROMPTS * 8, length=40, temperature=2.0)
    texts = model.texts(tokens)
    assert not any("<|endoftext|>" in text for text in texts)
    shortest = int(tokens.mask.sum(1).argmin())
    assert len(texts[shortest]) < max(map(len, texts))


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_the_reference_stays_while_the_policy_moves(gpt2_folder: Path, finetune: Any) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), finetune=finetune)
    model.weights.add("reference")
    tokens = roll(model)
    before = model.forward(tokens)[0].detach()
    optimizer = torch.optim.SGD(model.parameter_groups(), lr=0.3)
    for _ in range(2):  # adapters begin at 0, so one step moves B alone
        model.forward(tokens)[0].square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    after = model.forward(tokens)[0].detach()
    with model.weights("reference"):
        torch.testing.assert_close(model.forward(tokens)[0].detach(), before)
    assert not torch.allclose(after, before, atol=1e-4)


def test_the_head_may_be_kept_from_the_trunk(gpt2_folder: Path) -> None:
    for detach in (True, False):
        model = CausalLM(CPU, path=str(gpt2_folder), value_start="orthogonal", value_detach=detach)
        model.forward(roll(model))[1].sum().backward()  # type: ignore[no-untyped-call]
        weight = model.weights.parameters["transformer.wpe.weight"]
        assert (weight.grad is None) == detach


def test_values_begin_at_zero(gpt2_folder: Path) -> None:
    tokens = roll(CausalLM(CPU, path=str(gpt2_folder)))
    assert torch.equal(tokens.value, torch.zeros_like(tokens.value))


def test_parameter_groups_hold_each_parameter_once(gpt2_folder: Path) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), value_lr=0.5)
    groups = model.parameter_groups()
    found = [id(p) for group in groups for p in group["params"]]
    assert sorted(found) == sorted(id(p) for p in model.weights.parameters.values())
    assert groups[1]["weight_decay"] == 0
    assert groups[2]["lr"] == 0.5


def test_an_export_opens_with_transformers(model: CausalLM, tmp_path: Path) -> None:
    model.export(tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    ids = tokenizer("<|endoftext|>This movie", return_tensors="pt").input_ids
    assert torch.equal(ids, model.encode(["This movie"])[0])
    torch.testing.assert_close(theirs(ids).logits, model.network(ids).logits)


def test_prompts_that_do_not_fit_are_errors(model: CausalLM) -> None:
    model.check_lengths(["x" * 50, "y"], 13)
    with pytest.raises(
        ModelError,
        match="'x+'... has 51 tokens.*14 for what follows.*64 leave 50.*type dynamics.length=13",
    ):
        model.check_lengths(["y", "x" * 50], 14)
    with pytest.raises(ModelError, match="dynamics.length=60"):
        roll(model, length=60)


def test_an_empty_prompt_needs_a_beginning(gpt2_folder: Path) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), begin_with_end=False)
    with pytest.raises(ModelError, match="begin_with_end"):
        model.encode(["", "x"])


def test_a_stop_that_must_be_a_token_is_one(model: CausalLM) -> None:
    with pytest.raises(ModelError, match="'ab' is 2 tokens.*stop_match=text"):
        roll(model, stop=["ab"], stop_match="token")


@pytest.mark.parametrize("after", [0, 5])
def test_a_stop_text_ends_a_response_with_the_token_that_completes_it(
    model: CausalLM, after: int
) -> None:
    whole = roll(model, stop_at_end=False)

    def text(row: int, count: int) -> str:
        found: str = model.tokenizer.decode(whole.response[row, :count])
        return found

    stop = text(0, after + 3).removeprefix(text(0, after + 1))
    assert len(stop) == 2
    cut = roll(model, stop_at_end=False, stop=[stop], stop_after=after)
    for row in range(len(PROMPTS)):
        ends = [
            n
            for n in range(after + 1, 13)
            if text(row, n).count(stop) > text(row, n - 1).count(stop)
        ]
        real, count = cut.mask[row], ends[0] if ends else 12
        assert int(real.sum()) == count
        assert cut.ended[row].item() == bool(ends)
        torch.testing.assert_close(cut.log_prob[row][real], whole.log_prob[row][real])
        assert not cut.log_prob[row][~real].any()
        assert not cut.value[row][~real].any()
        assert model.texts(cut)[row] == text(row, count)
    assert after < int(cut.mask[0].sum()) <= after + 3


def padded_model(folder: Path, holes: bool) -> CausalLM:
    """A model with more ids than tokens: at the end, or a hole between them."""
    save_language_model(folder, "gemma2", vocabulary=270)
    if holes:
        text = json.loads((folder / "tokenizer.json").read_text())
        for token in text["added_tokens"]:
            token["id"] += 5
        vocabulary = text["model"]["vocab"]
        for token in text["added_tokens"]:
            vocabulary[token["content"]] = token["id"]
        (folder / "tokenizer.json").write_text(json.dumps(text))
    return CausalLM(CPU, path=str(folder))


@pytest.mark.parametrize("holes", [False, True])
def test_ids_that_no_token_has_are_neither_drawn_nor_scored(tmp_path: Path, holes: bool) -> None:
    model = padded_model(tmp_path, holes)
    unused = [*range(256, 261), *range(265, 270)] if holes else [*range(260, 270)]
    assert [*model.unused_ids] == unused
    # where they would be likeliest
    model.network.get_output_embeddings().weight.data[unused] *= 30
    model.weights.add("reference")
    dynamics = Token(length=12, temperature=2.0, stop_at_end=False)
    tokens = roll(model, ["a", "bcd"], temperature=2.0, stop_at_end=False)
    assert not {*tokens.response.flatten().tolist()} & {*unused}
    outputs, _ = token_outputs(model, dynamics, tokens.measured())
    log_probs = outputs.log_probs
    assert log_probs is not None
    assert not log_probs[:, unused].exp().any()
    torch.testing.assert_close(outputs.log_prob, tokens.log_prob[tokens.mask], atol=1e-5, rtol=1e-4)
    kept = [i for i in range(270) if i not in unused]
    within = log_probs[:, kept]
    torch.testing.assert_close(entropy(log_probs), entropy(within))
    other = (log_probs[:, kept] * 0.5).log_softmax(-1)
    wide = log_probs.clone()
    wide[:, kept] = other
    torch.testing.assert_close(exact_kl(log_probs, wide), exact_kl(within, other))
    (exact_kl(log_probs, wide).sum() + entropy(log_probs).sum()).backward()
    for name, parameter in model.network.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name
    rows = model.network.get_output_embeddings().weight.grad
    if not model.network.config.tie_word_embeddings:
        assert not rows[unused].any()


def test_a_vocabulary_that_fits_has_no_unused_ids(model: CausalLM) -> None:
    assert model.unused_ids == ()


def test_a_token_without_a_row_is_one_error(tmp_path: Path) -> None:
    save_language_model(tmp_path, "qwen3", vocabulary=259)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(tmp_path)
    model = CausalLM(CPU, path=str(tmp_path))
    assert roll(model, ["a", "abc"]).mask.any()  # the padding token has none, and is not needed
    for work in (
        lambda: model.encode(["a <new>"]),
        lambda: model.check_lengths(["a", "<new>"], 4),
        lambda: model.encode_completions(["a"], ["x <new>"], 8),
    ):
        with pytest.raises(ModelError, match="'<new>', token 260 .*259 rows"):
            work()


def test_an_end_without_a_row_is_one_error(tmp_path: Path) -> None:
    save_language_model(tmp_path, "qwen3", vocabulary=256)
    with pytest.raises(ModelError, match=r"end of text is '<\|im_end\|>', token 257, .*256 rows"):
        CausalLM(CPU, path=str(tmp_path))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_weight_that_is_no_number_is_named(tmp_path: Path, value: float) -> None:
    save_language_model(tmp_path, "llama")
    network = AutoModelForCausalLM.from_pretrained(tmp_path)
    network.model.layers[1].mlp.up_proj.weight.data[3, 4] = value
    network.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="NaN or infinity, in model.layers.1.mlp.up_proj.weight"):
        CausalLM(CPU, path=str(tmp_path))


@pytest.mark.parametrize("path", ["/no/where", "zoo:none"])
def test_a_missing_folder_is_an_error(path: str) -> None:
    with pytest.raises(ModelError, match="model.path"):
        CausalLM(CPU, path=path)


def test_rows_can_be_taken_apart(model: CausalLM) -> None:
    tokens = roll(model)
    logits, _ = model.forward(tokens)
    rows = torch.tensor([2, 0])
    part, _ = model.forward(index_rows(tokens, rows))
    lengths = tokens.mask.sum(1).tolist()
    cut = logits.split(lengths)
    torch.testing.assert_close(part, torch.cat([cut[2], cut[0]]), atol=1e-5, rtol=1e-5)


def test_what_is_padded_does_not_matter(model: CausalLM) -> None:
    tokens = roll(model, prompts=PROMPTS * 8, length=40, temperature=2.0)
    noisy = tokens.response.masked_fill(~tokens.mask, 5)
    other = model.forward(replace(tokens, response=noisy))[0]
    torch.testing.assert_close(other, model.forward(tokens)[0])


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_half_precision_is_of_the_network_alone(gpt2_folder: Path, finetune: Any) -> None:
    half = Precision(weights="bfloat16", rollout="bfloat16", learning="bfloat16")
    model = CausalLM(CPU, 0, half, path=str(gpt2_folder), finetune=finetune, value_start="default")
    trained = model.weights.parameters.values()
    assert {p.dtype for p in trained} == {torch.float32}
    frozen = {p.dtype for p in model.network.parameters() if not p.requires_grad}
    assert frozen == ({torch.bfloat16} if finetune == "lora" else set())
    tokens = roll(model)
    (log_probs,), values, states = model.measure(tokens, lambda logits: (logits.log_softmax(-1),))
    assert states.dtype == torch.bfloat16 or finetune == "full"  # GPT-2 ends in a float32 norm
    assert log_probs.dtype == values.dtype == tokens.value.dtype == torch.float32
    exact = CausalLM(CPU, path=str(gpt2_folder), finetune=finetune, value_start="default")
    expected, values_expected = exact.forward(tokens)
    torch.testing.assert_close(log_probs, expected.log_softmax(-1), atol=0.1, rtol=0.1)
    assert not torch.equal(log_probs, expected.log_softmax(-1))
    torch.testing.assert_close(values, values_expected, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("every", [3, 8, 100])
def test_checking_the_end_less_often_changes_nothing(
    model: CausalLM, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"length": 40, "stop": list(ascii_lowercase), "temperature": 2.0}
    each = roll(model, **options)
    monkeypatch.setitem(generate.CHECK_EVERY, "cpu", every)
    blocks = roll(model, **options)
    assert not each.mask[:, -1].any(), "all must end early for this test to mean anything"
    for name in ("response", "mask", "ended"):
        assert torch.equal(getattr(each, name), getattr(blocks, name))
    # rows leave the batch at other steps, and products of other shapes round otherwise
    torch.testing.assert_close(each.log_prob, blocks.log_prob, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(each.value, blocks.value, atol=1e-5, rtol=1e-5)


def test_ends_of_generation_config_end_texts(model: CausalLM) -> None:
    model.network.generation_config.eos_token_id = [5, 7]
    ends = {5, 7, model.tokenizer.eos_token_id}
    assert end_ids(model.network, model.tokenizer) == sorted(ends)
    model._end_ids = sorted(ends)
    stop = model.stop_ids(Token(stop_at_end=True)).tolist()
    assert stop == sorted(ends)
    assert model.stop_ids(Token(stop_at_end=False)).tolist() == []


def test_only_texts_like_gpt2s_begin_with_their_end(model: CausalLM) -> None:
    tokenizer = model.tokenizer
    tokenizer.bos_token = tokenizer.eos_token
    assert begins_with_end(tokenizer)
    tokenizer.add_bos_token = True  # OPT
    assert tokenizer("x").input_ids[0] == tokenizer.eos_token_id
    assert not begins_with_end(tokenizer)
    tokenizer.add_bos_token = False
    tokenizer.chat_template = "{{ messages }}"
    assert not begins_with_end(tokenizer)
    tokenizer.chat_template, tokenizer.bos_token = None, None
    assert not begins_with_end(tokenizer)


def test_a_text_without_padding_needs_no_mask(
    model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = roll(model)
    together, values = model.forward(tokens)
    masks = []
    hidden = model._hidden

    def seen(ids: Any, mask: Any, *others: Any) -> Any:
        masks.append(mask)
        return hidden(ids, mask, *others)

    monkeypatch.setattr(model, "_hidden", seen)
    parts = [tokens.measured().part(slice(row, row + 1)) for row in range(len(PROMPTS))]
    alone = [model.forward(part) for part in parts]
    assert masks == [None] * len(PROMPTS)
    torch.testing.assert_close(torch.cat([a[0] for a in alone]), together, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(torch.cat([a[1] for a in alone]), values, atol=1e-5, rtol=1e-4)


def test_prompts_are_counted_a_thousand_at_once(
    model: CausalLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer's encodings of a million prompts do not fit into the memory."""
    sizes, read = [], model.prompts.prompt_ids

    def counted(prompts: Sequence[str]) -> list[list[int]]:
        sizes.append(len(prompts))
        return read(prompts)

    monkeypatch.setattr(model.prompts, "prompt_ids", counted)
    model.long_prompts = "drop"
    many, long = [f"y {i}" for i in range(2100)], "z" * 60
    assert model.check_lengths([*many, long], 14) == {long}
    assert sizes == [1000, 1000, 101]


def test_prompts_that_do_not_fit_are_left_out_or_cut(model: CausalLM) -> None:
    long = "".join(chr(97 + i % 26) for i in range(60))
    model.long_prompts = "drop"
    assert model.check_lengths([long, "y"], 14) == {long}
    assert model.check_lengths(["y"], 14) == frozenset()
    assert model.prompt_metrics(["y"]) == {"prompts/left_out": 1.0}
    model.long_prompts = "cut"
    assert model.check_lengths([long, "y"], 14) == frozenset()
    (whole,) = model.prompts.prompt_ids([long])
    ids, mask = model.encode([long, "y"])
    assert ids.shape[1] == 64 - 14
    assert ids[0].tolist() == [whole[0], *whole[-49:]], "after the token that documents begin with"
    assert int(mask[1].sum()) == 2
    assert model.prompt_metrics([long, "y", "y", "y"])["prompts/cut"] == 0.25
    model.max_prompt_length = 10
    assert model.check_lengths([long], 14) == frozenset()
    assert model.encode([long])[0].shape[1] == 10
    model.prompts = PromptFormat(model.tokenizer, template="plain", text_role="user")
    with pytest.raises(ModelError, match=r"a conversation can't be cut.*long_prompts=drop"):
        model.check_lengths([long], 14)


def test_without_a_critic_nothing_of_one_is_trained_or_written(
    gpt2_folder: Path, tmp_path: Path
) -> None:
    whole, bare = (
        CausalLM(torch.device("cpu"), path=str(gpt2_folder), has_critic=has)
        for has in (True, False)
    )
    assert not [name for name in bare.weights.parameters if name.startswith("critic.")]
    assert len(bare.parameter_groups()) == len(whole.parameter_groups()) - 1
    bare.export(tmp_path)
    assert not [*tmp_path.glob("value_*")]
    prompt, mask = whole.encode(["a film", "it"])
    uniform = torch.rand(2, 3, generator=torch.Generator().manual_seed(0))
    drawn = [model.rollout(prompt, mask, Token(length=3), uniform) for model in (whole, bare)]
    assert torch.equal(drawn[0].response, drawn[1].response)
    assert torch.equal(drawn[0].log_prob, drawn[1].log_prob)
    logits, values = bare.forward(drawn[1])
    assert torch.equal(logits, whole.forward(drawn[0])[0])
    assert not values.any()


@pytest.mark.parametrize("saved_has", [True, False])
def test_weights_go_over_where_only_one_side_has_a_critic(
    gpt2_folder: Path, saved_has: bool
) -> None:
    saved, model = (
        CausalLM(torch.device("cpu"), path=str(gpt2_folder), has_critic=has, value_start="default")
        for has in (saved_has, not saved_has)
    )
    with torch.no_grad():
        for parameter in saved.weights.parameters.values():
            parameter.add_(1.0)
    critic = {n: p.clone() for n, p in model.weights.parameters.items() if n.startswith("critic.")}
    model.weights.load_full_state_dict(saved.weights.full_state_dict())
    for name, parameter in model.weights.parameters.items():
        other = critic[name] if name in critic else saved.weights.parameters[name]
        assert torch.equal(parameter, other)
