"""Prompts that text encoders cut: which these are is what each family's own embeddings say."""

import logging
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_pipelines import with_pictures

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.schema.targets import instantiate
from rlfactory.model.pipelines.cut_prompts import prompt_reader, report_cut
from rlfactory.model.pipelines.embedding_cache import PromptCache

FAMILIES = ("tiny_sd", "tiny_sd3", "tiny_flux", "sdxl", "flux_kontext", "qwen_image", "z_image")
MORE = ("flux2_klein", "flux2_dev", "sana", "wan")


def are_equal(model: Any, texts: Sequence[str]) -> bool:
    one, other = (model.encode(with_pictures(model, [text])).tensors for text in texts)
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("family", [*FAMILIES, *MORE])
def test_what_is_said_to_be_cut_is_cut(family: str, small: Callable[[str], list[str]]) -> None:
    # a template is long in the tokens of these small tokenizers, which are bytes
    room = {"qwen_image": 300, "flux2_dev": 900}.get(family, 60)
    read = [] if family in ("tiny_sd", "sdxl") else [f"model.text_tokens={room}"]
    words = [*small(family), *read, "model.finetune=full", "precision=fp32", "hardware=cpu"]
    config = plan_from_words(f"model={family}", *words, "distilled_to=null").config
    model = instantiate(
        config["model"], "model", device=torch.device("cpu"), prompt_cache=PromptCache()
    )
    reader = model._read
    long = "a b " * 600
    assert reader(long)[1]
    assert not reader("a b")[1]
    count = next(n for n in range(1, 600) if reader("a " * n)[1])
    assert not are_equal(model, ["a " * (count - 1), "a " * (count - 2) + "b "])
    pair = ["a " * (count + 30), "a " * (count + 29) + "b "]  # of one length, so of equal bits
    assert are_equal(model, pair)
    assert reader(pair[0])[0] == reader(pair[1])[0] != reader("a b")[0]
    assert model.prompt_metrics([long, "a b", "a b", "a b"]) == {"prompts/cut": 0.25}
    assert model.prompt_metrics(["a b"]) == {}


def test_prompts_that_are_one_to_the_model_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    def words(text: str, **_: object) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[hash(word) for word in text.split()])

    reader = prompt_reader([words], 3, str)
    with caplog.at_level(logging.WARNING):
        report_cut(reader, ["a b c", "a b c"])
        assert not caplog.messages
        report_cut(reader, ["a b", "a b c d", "a b c e", "x y z a"])
    (said,) = caplog.messages
    assert said.startswith("3 of 4 prompts are longer than the text encoder reads, and are cut")
    assert said.endswith("2 of them are equal to another one up to there")
