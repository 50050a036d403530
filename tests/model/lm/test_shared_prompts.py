"""Equal prompts are read once, and nothing but time depends on that."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from tiny_language_models import KINDS, save_language_model
from torch import Tensor

from rlfactory.dynamics.token import Token
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.attention import GPT2Step
from rlfactory.model.lm.shared_prompts import first_rows, prompts_together, shared_prompts
from rlfactory.model.memory import Memory
from rlfactory.rollout import Tokens, row_keys
from rlfactory.utils.pytree import index_rows

CPU = torch.device("cpu")
LONG = "What follows is known to all who were at sea"
PADDED, EQUAL = [LONG, "A shorter one, of which", LONG[1:-3]], [LONG, LONG[::-1], LONG.upper()]
ROWS = torch.tensor([0, 1, 0, 2, 0, 1, 2, 0, 1])  # groups of unequal sizes, not adjacent
LENGTH = 9
CLOSE: dict[str, float] = {"atol": 2e-5, "rtol": 1e-4}
Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            made[kind] = save_language_model(tmp_path_factory.mktemp(kind), kind)
        return made[kind]

    return of


def of_kind(kind: str, folder: Folder, gpt2_folder: Path, **options: Any) -> CausalLM:
    path = gpt2_folder if kind == "gpt2" else folder(kind)
    model = CausalLM(CPU, path=str(path), value_start="orthogonal", value_detach=False, **options)
    if model.lora is not None:  # whose adapters begin at 0
        for parameter in model.weights.parameters.values():
            parameter.data += 0.05 * torch.randn(parameter.shape)
    return model


def unshared() -> Any:
    return mock.patch.object(CausalLM, "shares_prompts", False)


def encoded(model: CausalLM, prompts: list[str]) -> tuple[Tensor, Tensor]:
    ids, mask = model.encode(prompts)
    return ids[ROWS], mask[ROWS]


def drawn(model: CausalLM, prompts: list[str], **options: Any) -> Tokens:
    uniform = torch.rand(len(ROWS), LENGTH, generator=torch.Generator().manual_seed(1))
    dynamics = Token(length=LENGTH, **options)
    return model.rollout(*encoded(model, prompts), dynamics, uniform).measured()


def shortened(tokens: Tokens) -> Tokens:
    """Responses of unequal lengths."""
    lengths = 1 + torch.arange(len(ROWS))[:, None] * 2 % LENGTH
    mask = tokens.mask & (torch.arange(tokens.mask.shape[1]) < lengths)
    return replace(tokens, mask=mask, lengths=None).measured()


class Passes:
    """The shapes of the token ids that the network read."""

    def __init__(self, model: CausalLM) -> None:
        self.shapes: list[tuple[int, ...]] = []
        model.network.base_model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, _: Any, __: Any, options: dict[str, Any]) -> None:
        self.shapes.append(tuple(options["input_ids"].shape))


def learned(model: CausalLM, tokens: Tokens) -> Iterator[tuple[str, Tensor]]:
    """Logits, values and the gradients of a loss of both."""
    logits, values = model.forward(tokens)
    yield from {"logits": logits.detach(), "values": values.detach()}.items()
    loss = logits.log_softmax(-1).square().mean() + (values - 1).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.weights.parameters.items():
        if parameter.grad is not None:
            yield name, parameter.grad
            parameter.grad = None


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    scale = max(float(x.norm()) for name, x in expected.items() if name in found)
    for name, value in expected.items():
        # of key biases the gradient is 0 but for rounding
        allowed = 1e-5 * float(value.norm()) + 1e-7 * scale
        assert float((found[name] - value).norm()) <= allowed, name


@pytest.mark.parametrize("prompts", [PADDED, EQUAL], ids=["padded", "equal"])
@pytest.mark.parametrize("finetune", ["full", "lora"])
@pytest.mark.parametrize("kind", ["gpt2", *KINDS])
def test_logits_values_and_gradients_are_those_of_whole_rows(
    kind: str, finetune: Any, prompts: list[str], folder: Folder, gpt2_folder: Path
) -> None:
    model = of_kind(kind, folder, gpt2_folder, finetune=finetune)
    tokens = shortened(drawn(model, prompts))
    assert tokens.prompts_are_padded == (prompts is PADDED)
    with unshared():
        expected = dict(learned(model, tokens))
    passes = Passes(model)
    assert_same(dict(learned(model, tokens)), expected)
    width = tokens.prompt.shape[1]
    assert passes.shapes == [(3, width), (len(ROWS), tokens.mask.shape[1] - 1)]


@pytest.mark.parametrize("prompts", [PADDED, EQUAL], ids=["padded", "equal"])
def test_a_value_model_shares_too(prompts: list[str], gpt2_folder: Path) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder), value_path=str(gpt2_folder))
    model.weights.parameters["critic.network.score.weight"].data.normal_()
    tokens = shortened(drawn(model, prompts))
    with unshared():
        expected = dict(learned(model, tokens))
    assert_same(dict(learned(model, tokens)), expected)
    assert any(name.startswith("critic.") for name in expected)


@pytest.mark.parametrize("prompts", [PADDED, EQUAL], ids=["padded", "equal"])
@pytest.mark.parametrize("kind", ["gpt2", *KINDS])
def test_rollouts_read_a_prompt_once_and_draw_the_same(
    kind: str, prompts: list[str], folder: Folder, gpt2_folder: Path
) -> None:
    model = of_kind(kind, folder, gpt2_folder)
    with mock.patch("rlfactory.model.causal_lm.shared_prompts", return_value=None):
        expected = drawn(model, prompts, temperature=1.5)
    passes = Passes(model)
    found = drawn(model, prompts, temperature=1.5)
    assert passes.shapes[0] == (3, found.prompt.shape[1])
    assert torch.equal(found.response, expected.response)
    for name in ("log_prob", "value"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), **CLOSE)


def test_a_gpt2_takes_its_own_steps_after_a_shared_prompt(gpt2_folder: Path) -> None:
    model = CausalLM(CPU, path=str(gpt2_folder))
    own = drawn(model, PADDED)
    with mock.patch.object(GPT2Step, "fits", return_value=False):
        torch.testing.assert_close(drawn(model, PADDED).log_prob, own.log_prob, **CLOSE)


def test_distinct_prompts_are_read_as_ever(folder: Folder, gpt2_folder: Path) -> None:
    model = of_kind("llama", folder, gpt2_folder)
    tokens = index_rows(shortened(drawn(model, PADDED)), torch.tensor([0, 1, 3])).measured()
    found, passes = dict(learned(model, tokens)), Passes(model)
    with unshared():
        expected = dict(learned(model, tokens))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert len(passes.shapes) == 1


def test_recomputed_layers_read_whole_rows(folder: Folder, gpt2_folder: Path) -> None:
    model = of_kind("llama", folder, gpt2_folder, memory=Memory(gradient_checkpointing=True))
    assert not model.shares_prompts
    passes = Passes(model)
    model.forward(drawn(model, PADDED))
    assert passes.shapes[0][0] == 3
    assert passes.shapes[-1][0] == len(ROWS)


def test_a_response_of_one_token_has_no_pass(folder: Folder, gpt2_folder: Path) -> None:
    model = of_kind("llama", folder, gpt2_folder)
    tokens = drawn(model, PADDED)
    mask = tokens.mask & (torch.arange(tokens.mask.shape[1]) < 1)
    tokens = replace(tokens, mask=mask, lengths=None).measured().part(slice(0, len(ROWS)))
    with unshared():
        expected = dict(learned(model, tokens))
    assert_same(dict(learned(model, tokens)), expected)


def test_keys_tell_prompts_apart_and_see_no_padding() -> None:
    ids = torch.randint(0, 50, (200, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(6) >= torch.arange(200)[:, None] % 4
    rows = [tuple(row[real].tolist()) for row, real in zip(ids, mask, strict=True)]
    keys = row_keys(ids, mask)
    assert len(keys.unique()) == len(set(rows))
    wide, wide_mask = (torch.nn.functional.pad(x, (3, 0)) for x in (ids, mask))
    assert torch.equal(row_keys(wide + 7 * ~wide_mask, wide_mask), keys)
    assert len(row_keys(ids[:1], mask[:1]).unique(dim=0)) == 1
    swapped = row_keys(ids.flip(1), torch.ones_like(mask))
    assert not torch.equal(swapped, row_keys(ids, torch.ones_like(mask)))


def test_prompts_are_shared_where_it_saves_a_quarter() -> None:
    keys = torch.tensor([7, 3, 7, 3])
    assert first_rows(keys).tolist() == [0, 1, 0, 1]
    first, number = shared_prompts(keys, 10, 10) or (None, None)
    assert first is not None
    assert (first.tolist(), number.tolist()) == ([0, 1], [0, 1, 0, 1])
    assert shared_prompts(keys, 9, 10) is None
    assert shared_prompts(torch.arange(4), 1000, 1) is None


@pytest.mark.parametrize(("width", "together"), [(40, True), (1, False)])
def test_prompts_stay_together_where_less_is_read(width: int, together: bool) -> None:
    lengths = torch.tensor([8, 2, 8, 2])
    mask = torch.arange(8) < lengths[:, None]
    prompt = torch.tensor([0, 0, 1, 1])[:, None].expand(4, width)
    zeros = torch.zeros(4, 8)
    real = torch.ones(4, width, dtype=torch.bool)
    tokens = Tokens(prompt, real, mask.long(), mask, mask[:, 0], zeros, zeros).measured()
    rows = torch.tensor([2, 0, 1, 3])
    found = prompts_together(rows, tokens, 2).tolist()
    assert found == ([2, 3, 0, 1] if together else rows.tolist())
    assert prompts_together(rows[:0], tokens, 2).tolist() == []
