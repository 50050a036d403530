"""The text encoders of every family: asked once, let go, and loaded again where they must be."""

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlfactory.model.flux import Flux
from rlfactory.model.prompt_cache import Embeddings, PromptCache
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3

PROMPTS = ["a red circle", "two blue stars"]
Make = Callable[..., Any]


@pytest.fixture
def make(sd_folder: Path, sd3_folder: Path, flux_folders: dict[str, Path]) -> Make:
    """The adapter of a family, with guidance where it has any."""

    def model(family: str, cache: PromptCache | None = None, **options: object) -> Any:
        known: dict[str, Any] = {"size": 64, "lora_rank": 1}
        device, cache = torch.device("cpu"), cache or PromptCache()
        if family == "sd":
            return SD(device, 0, prompt_cache=cache, path=str(sd_folder), **known | options)
        known |= {"text_tokens": 16}
        if family == "sd3":
            known |= {"path": str(sd3_folder), "guidance": 3.0}
            return SD3(device, 0, prompt_cache=cache, **known | options)
        return Flux(device, 0, prompt_cache=cache, path=str(flux_folders["dev"]), **known | options)

    return model


def encoders(model: Any) -> dict[str, Any]:
    parts = model.pipe.components
    return {name: part for name, part in parts.items() if name.startswith("text_encoder")}


@pytest.mark.parametrize("family", ["sd", "sd3", "flux"])
def test_an_embedding_does_not_tell_its_company(make: Make, family: str) -> None:
    """Else a run that goes on, and meets its prompts otherwise, would end with other bits."""
    alone, together = make(family), make(family)
    rows = together.encode(PROMPTS).tensors
    for i, prompt in enumerate(reversed(PROMPTS), start=1):
        found = alone.encode([prompt]).tensors
        assert all(torch.equal(found[name][0], rows[name][-i]) for name in rows)


@pytest.mark.parametrize("family", ["sd", "sd3", "flux"])
def test_encoders_go_once_all_is_known_and_come_back_for_what_is_new(
    make: Make, family: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(family)
    before = {prompt: model.encode([prompt]).tensors for prompt in [*PROMPTS, "something else"]}
    model = make(family, PromptCache(prompts=tuple(PROMPTS)))
    watched = [weakref.ref(part) for part in encoders(model).values()]
    model.prepare()
    gc.collect()
    assert [part() for part in watched] == [None] * len(watched)
    assert set(encoders(model).values()) == {None}
    assert model.pipe.tokenizer is not None

    def same(prompt: str) -> bool:
        found = model.encode([prompt]).tensors
        return all(torch.equal(found[name], rows) for name, rows in before[prompt].items())

    assert all(same(prompt) for prompt in PROMPTS)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        assert same("something else")
    assert "a prompt is new: the text encoders are loaded again" in caplog.text
    for part in encoders(model).values():
        assert not part.training
        assert not any(p.requires_grad for p in part.parameters())
        assert part.dtype == torch.float32


@pytest.mark.parametrize("family", ["sd", "sd3", "flux"])
def test_encoders_are_not_loaded_where_the_disk_has_all(
    make: Make, family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = make(family, PromptCache(tmp_path))
    expected = first.encode(PROMPTS).tensors
    assert None not in encoders(first).values()
    second = make(family, PromptCache(tmp_path, tuple(PROMPTS)))
    assert set(encoders(second).values()) == {None}
    found = second.encode(PROMPTS).tensors
    assert all(torch.equal(found[name], rows) for name, rows in expected.items())
    second.prepare()
    assert caplog.text == ""
    more = make(family, PromptCache(tmp_path, (*PROMPTS, "new")))
    assert None not in encoders(more).values()


def test_another_length_of_text_is_another_embedding(make: Make, tmp_path: Path) -> None:
    short = make("sd3", PromptCache(tmp_path), text_tokens=8).encode(PROMPTS).tensors["sequence"]
    longer = make("sd3", PromptCache(tmp_path)).encode(PROMPTS).tensors["sequence"]
    assert (short.shape[1], longer.shape[1]) == (16 + 8, 16 + 16)


def test_a_damaged_file_is_mended_by_encoders_that_were_not_loaded(
    make: Make, tmp_path: Path
) -> None:
    expected = make("sd", PromptCache(tmp_path)).encode(PROMPTS).tensors["sequence"]
    for path in tmp_path.rglob("*.safetensors"):
        path.write_bytes(b"torn")
    model = make("sd", PromptCache(tmp_path, tuple(PROMPTS)))
    assert torch.equal(model.encode(PROMPTS).tensors["sequence"], expected)
    assert torch.equal(
        make("sd", PromptCache(tmp_path, tuple(PROMPTS))).encode(PROMPTS).tensors["sequence"],
        expected,
    )


def test_prompts_that_memory_can_not_hold_keep_their_encoders(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(PromptCache, "open", lambda *_: Embeddings(None, 10_000))
    model = make("sd", PromptCache(prompts=tuple(f"prompt {i}" for i in range(20))))
    with caplog.at_level(logging.INFO):
        model.prepare()
    assert None not in encoders(model).values()
    assert "prompt_cache=FOLDER" in caplog.text


def test_prompts_are_prepared_each_alone_and_once(make: Make) -> None:
    model = make("sd", PromptCache(prompts=tuple("abcde")))
    seen: list[list[str]] = []
    encode = model.texts._encode
    model.texts._encode = lambda prompts: (seen.append(prompts), encode(prompts))[1]
    model.prepare()
    model.prepare()
    assert seen == [["a"], ["b"], ["c"], ["d"], ["e"]]
