"""Text encoders of every family: run once per prompt, unloaded, and reloaded for new prompts."""

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlfactory.model.flux import Flux
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.embedding_cache import EmbeddingStore, PromptCache, TextEmbeddings
from rlfactory.model.pipelines.text_encoders import encode_once, prompt_reader, report_cut
from rlfactory.model.sd import SD
from rlfactory.model.sd3 import SD3

CPU = torch.device("cpu")
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
    monkeypatch.setattr(PromptCache, "open", lambda *_: EmbeddingStore(None, 10_000))
    model = make("sd", PromptCache(prompts=tuple(f"prompt {i}" for i in range(20))))
    with caplog.at_level(logging.INFO):
        model.prepare()
    assert None not in encoders(model).values()
    assert "prompt_cache=FOLDER" in caplog.text


def test_prompts_are_prepared_each_alone_and_once(make: Make) -> None:
    model = make("sd", PromptCache(prompts=tuple("abcde")))
    seen: list[list[str]] = []
    encode = model.text_encoders._encode
    model.text_encoders._encode = lambda prompts: (seen.append(prompts), encode(prompts))[1]
    model.prepare()
    model.prepare()
    assert seen == [["a"], ["b"], ["c"], ["d"], ["e"]]


@pytest.mark.parametrize("family", ["sd", "sd3", "flux"])
def test_new_prompts_bring_the_encoders_once(
    make: Make, family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make(family, memory=Memory(offload_text=True))
    expected = {prompt: make(family).encode([prompt]).tensors for prompt in PROMPTS}
    moves: list[str] = []
    to = model.pipe.text_encoder.to
    monkeypatch.setattr(
        model.pipe.text_encoder, "to", lambda *a, **k: (moves.append("to"), to(*a, **k))[1]
    )
    model.encode_ahead([*PROMPTS, PROMPTS[0]])
    model.encode_ahead(PROMPTS)
    assert moves == ["to"] * 2, "there and back, for all of them"
    for prompt, rows in expected.items():
        found = model.encode([prompt]).tensors
        assert all(torch.equal(found[name], row) for name, row in rows.items())
    assert moves == ["to"] * 2


def test_all_prompts_of_a_run_are_prepared_in_one_visit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make("sd", PromptCache(prompts=tuple("abcde")), memory=Memory(offload_text=True))
    moves: list[str] = []
    monkeypatch.setattr(model.pipe.text_encoder, "to", lambda *_, **__: moves.append("to"))
    model.prepare()
    assert moves == ["to"] * 2


def test_no_more_is_encoded_ahead_than_is_kept(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make("sd", guidance=1.0)
    model.encode(["first"])
    size = model.text_encoders.store._bytes
    monkeypatch.setattr(PromptCache, "open", lambda *_: EmbeddingStore(None, 3 * size))
    model = make("sd", guidance=1.0)
    model.encode(["old", "a"])
    asked: list[str] = []
    encode = model.text_encoders._encode
    model.text_encoders._encode = lambda prompts: (asked.extend(prompts), encode(prompts))[1]
    model.encode_ahead(["a", "b", "c", "d", "e"])
    assert asked == ["b", "c", "d"], "d does not fit, and the rest waits for its batch"


def test_ranks_share_the_prompts_of_a_folder(make: Make, tmp_path: Path) -> None:
    asked: list[str] = []
    models = []
    for rank in range(2):
        cache = PromptCache(tmp_path, tuple("abcd"), rank=rank, world_size=2)
        models.append(make("sd", cache))
    second = models[1].text_encoders
    encode = second._encode
    turns = iter(range(3))

    def counted(prompts: list[str]) -> TextEmbeddings:
        asked.extend(prompts)
        if next(turns) == 0:  # the other rank encodes its half meanwhile
            models[0].encode(["a", "b"])
        rows: TextEmbeddings = encode(prompts)
        return rows

    second._encode = counted
    models[1].prepare()
    assert asked == ["c", "d"]
    assert set(encoders(models[1]).values()) == {None}


def test_each_prompt_is_encoded_once_and_rows_follow_the_question() -> None:
    asked: list[list[str]] = []

    def encode(prompts: list[str]) -> TextEmbeddings:
        asked.append(prompts)
        assert not torch.is_grad_enabled()
        return {"length": torch.tensor([[float(len(p))] for p in prompts])}

    known = EmbeddingStore(None, 1000)
    first = encode_once(["bbb", "a", "bbb"], known, encode, CPU).tensors["length"]
    again = encode_once(["cc", "a"], known, encode, CPU).tensors["length"]
    assert asked == [["bbb"], ["a"], ["cc"]]
    assert first.tolist() == [[3.0], [1.0], [3.0]]
    assert again.tolist() == [[2.0], [1.0]]


def test_prompts_that_are_truncated_alike_stay_two_prompts(tmp_path: Path) -> None:
    asked: list[str] = []

    def encode(prompts: list[str]) -> TextEmbeddings:
        asked.extend(prompts)
        return {"first_words": torch.tensor([[float(ord(p[0]))] for p in prompts])}

    long, longer = "a " * 100, "a " * 100 + "red circle"
    for known in (EmbeddingStore(None, 1000), EmbeddingStore(tmp_path, 1000)):
        asked.clear()
        encode_once([long], known, encode, CPU)
        assert known.get(longer) is None
        rows = encode_once([long, longer], known, encode, CPU).tensors["first_words"]
        assert asked == [long, longer]
        assert torch.equal(rows[0], rows[1])
        assert None not in (known.get(long), known.get(longer))
    assert None not in [EmbeddingStore(tmp_path, 0).get(prompt) for prompt in (long, longer)]


def test_more_than_is_kept_can_be_asked_at_once() -> None:
    def encode(prompts: list[str]) -> TextEmbeddings:
        return {"length": torch.tensor([[float(len(p))] for p in prompts])}

    known = EmbeddingStore(None, 8)  # two rows of four bytes
    rows = encode_once(["a", "bb", "ccc", "a"], known, encode, CPU).tensors["length"]
    assert rows.tolist() == [[1.0], [2.0], [3.0], [1.0]]
    assert [known.holds([p]) for p in ("a", "bb", "ccc")] == [False, True, True]


def test_the_network_makes_room_while_prompts_are_encoded_in_advance() -> None:
    from types import SimpleNamespace
    from typing import cast

    from rlfactory.model.image_base import PipelineModel

    moves = list[str]()

    def prepared(device: str, *, is_new: bool) -> list[str]:
        moves.clear()
        network = SimpleNamespace(
            parameters=lambda: iter([torch.zeros(1)]), to=lambda place: moves.append(str(place))
        )
        encoders = SimpleNamespace(
            has_new_prompts=lambda: is_new, prepare=lambda: moves.append("encode")
        )
        model = SimpleNamespace(
            network=network, text_encoders=encoders, device=torch.device(device)
        )
        model._read, encoders.expected = None, ()
        model._network_away = lambda: PipelineModel._network_away(cast(PipelineModel, model))
        PipelineModel.prepare(cast(PipelineModel, model))
        return [*moves]

    assert prepared("cuda", is_new=True) == ["cpu", "encode", "cuda"]
    assert prepared("cuda", is_new=False) == ["encode"]
    assert prepared("cpu", is_new=True) == ["encode"]


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
