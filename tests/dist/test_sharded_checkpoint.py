"""Checkpoints of a network that is sharded over gloo ranks: what they hold, who can load them, and
the memory that they take.
"""

import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from warm_process import Warm

from rlfactory.run.checkpoint.checksums import DamagedError, verify
from rlfactory.run.checkpoint.find import is_sharded

pytestmark = pytest.mark.dist
HERE = Path(__file__).parent
Ranks = Callable[[int, str, Path], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def ranks(warm: Warm) -> Ranks:
    """What each of `count` ranks found."""

    def run(count: int, action: str, folder: Path) -> list[dict[str, Any]]:
        words = {"script": str(HERE / "shards.py"), "words": [action, str(folder)]}
        (ended,) = warm(folder.parent, [{**words, "processes": count}])
        assert ended["codes"] == [0] * count, ended
        found = [json.loads(line) for line in ended["out"].splitlines() if line.startswith("{")]
        assert len(found) == count, ended
        return found

    return run


def own_ranks(count: int, action: str, folder: Path, **more: str) -> list[dict[str, Any]]:
    """The same, of ranks that share no memory with another process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    env = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"} | more
    started = []
    for rank in range(count):
        own = {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(rank)}
        own |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        words = [sys.executable, str(HERE / "shards.py"), action, str(folder)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(words, env=env | own, text=True, **pipes))  # type: ignore[call-overload]
    ended = [process.communicate(timeout=200) for process in started]
    assert [process.returncode for process in started] == [0] * count, ended
    return [json.loads(said.splitlines()[-1]) for said, _ in ended]


@pytest.fixture(scope="module")
def saved(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A checkpoint by two ranks, and what was saved."""
    folder = tmp_path_factory.mktemp("run") / "step_000002"
    one, two = ranks(2, "save", folder)
    assert one == two
    return folder, one


def test_each_rank_writes_files_of_its_own(saved: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = saved
    assert is_sharded(folder)
    verify(folder)
    files = [path.name for path in (folder / "shards").iterdir()]
    assert {name.split("-")[1] for name in files} == {"00001", "00002"}
    assert all(name.endswith(".safetensors") for name in files), "nothing is pickled"
    assert not (folder / "weights.safetensors").exists()
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_ranks_resumes(
    ranks: Ranks, saved: tuple[Path, dict[str, Any]], count: int
) -> None:
    folder, expected = saved
    for found in ranks(count, "load", folder):
        for state in ("numbers", "next"):
            assert found[state].keys() == expected[state].keys()
            for key, value in expected[state].items():
                assert found[state][key] == pytest.approx(value, rel=1e-5, abs=1e-5), (state, key)


def test_a_changed_byte_in_any_file_is_damage(
    saved: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder, _ = saved
    for file in sorted((folder / "shards").iterdir()):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        try:
            with pytest.raises(DamagedError, match=file.name):
                verify(folder)
        finally:
            file.write_bytes(whole)
    verify(folder)


def test_the_memory_of_a_rank_is_that_of_its_shards(tmp_path: Path) -> None:
    # with a small threshold the allocator returns at once what is freed
    more = {"WIDTH": "1024", "MALLOC_MMAP_THRESHOLD_": "65536"}
    for found in own_ranks(2, "measure", tmp_path / "step_000002", **more):
        assert found["shard"] > 50 * 2**20
        ratio = found["held"] / found["shard"]
        assert 0.9 < ratio <= 1.3, ratio


def test_a_disk_that_is_full_in_one_rank_is_an_error_of_all(ranks: Ranks, tmp_path: Path) -> None:
    found = ranks(2, "fail", tmp_path / "step_000002")
    assert [each["errno"] for each in found] == [errno.ENOSPC] * 2
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left"
