"""Inputs that no text can hold: models, tokenizers, pipelines and adapters as strangers save them.

Each function takes the path that it writes, and is named by the cases that need it.
"""

import gzip
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq


def latin_1_table(path: Path) -> None:
    """A table as old programs save it."""
    path.write_bytes("prompt,answer\nfür dich,1\n".encode("latin-1"))


def utf_16_table(path: Path) -> None:
    """A table as a spreadsheet saves "Unicode text"."""
    path.write_bytes("prompt\tanswer\nfür dich\t1\nfür mich\t2\n".encode("utf-16"))


def compressed_lines(path: Path) -> None:
    """Lines of JSON, compressed."""
    path.write_bytes(gzip.compress(b'{"prompt": "a", "answer": "1"}\n' * 2))


def parquet_with_null(path: Path) -> None:
    """Three rows, of which the second has no prompt."""
    columns = {"prompt": ["a", None, "b"], "answer": ["1", "2", "3"]}
    pq.write_table(pa.table(columns), path)


def parquet_odd(path: Path) -> None:
    """Columns of the rarer types, and a prompt in large strings."""
    columns = {
        "id": pa.array([1, 2]),
        "my.prompt": pa.array(["one and one?", "two and two?"], pa.large_string()),
        "answer": pa.array(["2", "4"]).dictionary_encode(),
        "at": pa.array([0, 1], pa.timestamp("s")),
        "nested": pa.array([{"a": [[1.0]]}, None]),
    }
    pq.write_table(pa.table(columns), path)


def parquet_images(path: Path) -> None:
    """Prompts beside images and embeddings."""
    images = [{"bytes": b"\x89PNG", "path": None}] * 2
    columns = {"prompt": ["one", "two"], "image": images, "embedding": [[0.5] * 8] * 2}
    pq.write_table(pa.table(columns), path)


def saved_splits(path: Path) -> None:
    """Two splits, as `DatasetDict.save_to_disk` writes them."""
    rows = datasets.Dataset.from_dict({"prompt": ["a", "b"], "answer": ["1", "2"]})
    datasets.DatasetDict(train=rows, test=rows.select([1])).save_to_disk(path)
