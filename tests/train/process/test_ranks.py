from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.hardware.base import AllRanksError, Hardware, PeerLostError
from rlfactory.run.folder import RunFolder
from rlfactory.train.process.ranks import (
    as_peer_lost,
    require_same_config,
    single_process_config,
)

Together = Callable[..., list[Any]]
CONFIG = {"seed": 0, "run_dir": "outputs/now", "choices": {"algo": "nft"}}


def test_all_learn_the_folder_of_the_first(together: Together) -> None:
    def work(hardware: Hardware) -> Path:
        config = {**CONFIG, "run_dir": f"outputs/{hardware.rank}"}
        return require_same_config(hardware, config, None if hardware.rank else Path("runs/a"))

    assert together(3, work) == [Path("runs/a")] * 3


def test_different_configurations_are_known_to_all(together: Together) -> None:
    def work(hardware: Hardware) -> None:
        config = {**CONFIG, "seed": int(hardware.rank == 2)}
        with pytest.raises(AllRanksError, match="process 2 has another configuration"):
            require_same_config(hardware, config, Path("run"))

    together(3, work)


def test_what_a_lost_process_wrote_is_told(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "log_rank1.txt").write_text("ERROR: the run failed\nTraceback\nRewardError: no\n")
    gone = RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed by peer\nmore")
    found = as_peer_lost(gone, folder)
    assert isinstance(found, PeerLostError)
    assert str(found).splitlines() == [
        f"another process does not answer any more: {str(gone).splitlines()[0]}",
        "log_rank1: RewardError: no",
    ]
    assert str(as_peer_lost(PeerLostError("gone"))) == "gone"
    other = RuntimeError("a defect")
    assert as_peer_lost(other, folder) is other


def test_one_process_looks_at_what_several_learned() -> None:
    node = {
        "_target_": "rlfactory.hardware.distributed.Distributed",
        **{
            "processes": 8,
            "device": "cpu",
            "threads": 2,
            "memory_gb": None,
            "gpu": "auto",
            "port": None,
        },
    }
    local = {"_target_": "rlfactory.hardware.local.Local", "device": "cpu", "threads": 2}
    assert single_process_config({"hardware": node})["hardware"] == {
        **local,
        "gpu": "auto",
        "memory_gb": None,
    }
    config = {"hardware": local}
    assert single_process_config(config) is config
