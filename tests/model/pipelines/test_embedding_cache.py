"""The embedding cache: damaged files, keys by model, and the limit of memory."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rlfactory.model.pipelines.embedding_cache import (
    ABOUT_FILE,
    EmbeddingStore,
    PromptCache,
    TextEmbeddings,
    identity_of_files,
)
from rlfactory.utils.errors import ModelError

ROWS: TextEmbeddings = {
    "sequence": torch.arange(6.0).view(2, 3),
    "pooled": torch.ones(3, dtype=torch.bfloat16),
}
BYTES = 6 * 4 + 3 * 2


def same(found: TextEmbeddings | None, rows: TextEmbeddings) -> bool:
    if found is None or set(found) != set(rows):
        return False
    return all(torch.equal(found[n], t) and found[n].dtype == t.dtype for n, t in rows.items())


def test_what_is_kept_on_disk_is_there_for_the_next_run(tmp_path: Path) -> None:
    identity = {"model": "a", "dtype": torch.float32}
    prompt = "a “red” circle\nand more" + 500 * " very long"
    PromptCache(tmp_path).open(identity).put(prompt, ROWS)
    again = PromptCache(tmp_path).open(identity)
    assert again.holds([prompt])
    assert same(again.get(prompt), ROWS)
    assert again.get("another") is None
    assert again.folder is not None
    assert json.loads((again.folder / ABOUT_FILE).read_text())["model"] == "a"
    assert not PromptCache(tmp_path).open({**identity, "dtype": torch.bfloat16}).holds([prompt])


def test_without_a_folder_memory_alone_holds_it() -> None:
    known = PromptCache().open({})
    known.put("a", ROWS)
    assert same(known.get("a"), ROWS)
    assert not PromptCache().open({}).holds(["a"])


def test_memory_is_bounded_and_the_one_asked_last_stays() -> None:
    known = EmbeddingStore(None, 2 * BYTES)
    for prompt in ("a", "b"):
        known.put(prompt, ROWS)
    known.get("a")
    known.put("c", ROWS)
    assert [known.holds([prompt]) for prompt in "abc"] == [True, False, True]
    known.put("c", ROWS)  # again: its room counts once
    assert known.holds(["a", "c"])


def test_beside_a_disk_little_is_kept_and_nothing_is_lost(tmp_path: Path) -> None:
    known = EmbeddingStore(tmp_path, BYTES)
    for prompt in ("a", "b"):
        known.put(prompt, ROWS)
    assert list(known._rows) == ["b"]
    assert known.holds(["a", "b"])
    assert same(known.get("a"), ROWS)


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def of_another(path: Path) -> None:
    EmbeddingStore(path.parent, 0).put("b", ROWS)
    other = next(p for p in path.parent.glob("*.safetensors") if p != path)
    other.replace(path)


@pytest.mark.parametrize("harm", [torn, of_another, lambda path: path.write_bytes(b"")])
def test_a_damaged_file_is_named_and_its_prompt_encoded_anew(
    harm: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    EmbeddingStore(tmp_path, 0).put("a", ROWS)
    (path,) = tmp_path.glob("*.safetensors")
    assert callable(harm)
    harm(path)
    known = EmbeddingStore(tmp_path, 0)
    with caplog.at_level(logging.WARNING):
        assert known.get("a") is None
    assert str(path) in caplog.text
    known.put("a", ROWS)
    assert same(known.get("a"), ROWS)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


WRITER = """
import sys, torch
from pathlib import Path
from rlfactory.model.pipelines.embedding_cache import EmbeddingStore
rows = {"sequence": torch.full((64, 64), float(sys.argv[2]))}
known = EmbeddingStore(Path(sys.argv[1]), 0)
for _ in range(100):
    known.put("a", rows)
    found = known.get("a")["sequence"]
    assert (found == found[0, 0]).all()
"""


@pytest.mark.slow
def test_two_processes_may_write_the_same(tmp_path: Path) -> None:
    source = str(Path(__file__).parents[3] / "src")
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), number],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in ("1", "2")
    ]
    for process in both:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert "damaged" not in said
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_can_not_be_written_is_an_error_with_the_key(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match=r"^prompt_cache: .*file can't be written \(.*=null$"):
        PromptCache(tmp_path / "file").open({})
    known = PromptCache(tmp_path / "new").open({})
    assert known.folder is not None
    (known.folder / ABOUT_FILE).unlink()
    known.folder.rmdir()
    with pytest.raises(ModelError, match=r"^prompt_cache: "):
        known.put("a", ROWS)


def test_a_models_identity_is_what_its_files_hold(tmp_path: Path) -> None:
    for name in ("text_encoder/config.json", "tokenizer/vocab.txt", "vae/config.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(name)
    weights = tmp_path / "text_encoder" / "model.safetensors"
    weights.write_bytes(bytes(2**24 + 1000))
    os.utime(weights, (1, 1))

    def identity() -> str:
        return identity_of_files(tmp_path, ["text_encoder", "tokenizer"])

    before = identity()
    (tmp_path / "vae" / "config.json").write_text("another")
    assert identity() == before
    os.utime(weights, (2, 2))
    assert identity() != before
    os.utime(weights, (1, 1))
    assert identity() == before
    content = bytearray(weights.read_bytes())
    content[-1] = 1
    weights.write_bytes(content)
    os.utime(weights, (1, 1))
    assert identity() != before, "the same size and time, and another end"
    (tmp_path / "tokenizer" / "vocab.txt").write_text("another")
    third = identity()
    (tmp_path / "tokenizer" / "merges.txt").write_text("")
    assert len({before, third, identity()}) == 3
