"""Prompts of image adapters: what the encoders are asked, and what of a prompt is not read."""

import bisect
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from tiny_pipelines import with_pictures

from rlfactory.config.overrides import plan_from_words
from rlfactory.config.schema.targets import instantiate
from rlfactory.model.pipelines.embedding_cache import PromptCache
from rlfactory.model.prompt_encoding import PromptEncoding


def test_a_pipeline_is_asked_for_what_its_encode_prompt_takes() -> None:
    """Further texts that it requires are the same one; a row without a name is not read."""

    class Pipeline:
        def encode_prompt(
            self, prompt: list[str], prompt_2: None, device: str, max_sequence_length: int = 1
        ) -> tuple[list[str], str, int]:
            assert prompt_2 is None
            return prompt, device, max_sequence_length

    model = SimpleNamespace(
        pipe=Pipeline(), device="cpu", text_tokens=7, encoded=("text", "", "tokens")
    )
    found = PromptEncoding._text_of(cast(Any, model), ["a"])
    assert found == {"text": ["a"], "tokens": 7}
    longer = PromptEncoding._text_of(cast(Any, model), ["a"], max_sequence_length=9)
    assert cast(Any, longer)["tokens"] == 9


FAMILIES = ("tiny_sd", "tiny_sd3", "tiny_flux", "sdxl", "flux_kontext", "qwen_image", "z_image")
MORE = (
    *("chroma", "qwen_image_edit", "qwen_image_21"),
    *("flux2_klein", "flux2_dev", "flux3_klein", "sana", "wan"),
    *("krea2", "ernie_image", "lumina2", "ltx"),
)
ROOM = {
    **{"qwen_image": 300, "qwen_image_edit": 500, "qwen_image_21": 300},
    **{"flux2_dev": 900, "krea2": 300, "lumina2": 280},
}


def are_equal(model: Any, texts: Sequence[str]) -> bool:
    one, other = (model.encode(with_pictures(model, [text])).tensors for text in texts)
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    "family",
    [
        *FAMILIES,
        *(pytest.param(family, marks=pytest.mark.slow) for family in (*MORE, "ernie_image")),
    ],
)
def test_what_is_said_to_be_cut_is_cut(family: str, small: Callable[[str], list[str]]) -> None:
    # a template is long in the tokens of these small tokenizers, which are bytes
    room = ROOM.get(family, 60)
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
    count = bisect.bisect(range(600), False, key=lambda n: reader("a " * n)[1])  # the first cut
    assert not are_equal(model, ["a " * (count - 1), "a " * (count - 2) + "b "])
    pair = ["a " * (count + 30), "a " * (count + 29) + "b "]  # of one length, so of equal bits
    assert are_equal(model, pair)
    assert reader(pair[0])[0] == reader(pair[1])[0] != reader("a b")[0]
    assert model.prompt_metrics([long, "a b", "a b", "a b"]) == {"prompts/cut": 0.25}
    assert model.prompt_metrics(["a b"]) == {}
