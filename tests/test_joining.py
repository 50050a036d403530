from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlfactory.hardware.base import CommonError, Hardware
from rlfactory.joining import alone, joined

Together = Callable[..., list[Any]]
CONFIG = {"seed": 0, "run_dir": "outputs/now", "choices": {"algo": "nft"}}


def test_all_learn_the_folder_of_the_first(together: Together) -> None:
    def work(hardware: Hardware) -> Path:
        config = {**CONFIG, "run_dir": f"outputs/{hardware.rank}"}
        return joined(hardware, config, None if hardware.rank else Path("runs/a"))

    assert together(3, work) == [Path("runs/a")] * 3


def test_different_configurations_are_known_to_all(together: Together) -> None:
    def work(hardware: Hardware) -> None:
        config = {**CONFIG, "seed": int(hardware.rank == 2)}
        with pytest.raises(CommonError, match="process 2 has another configuration"):
            joined(hardware, config, Path("run"))

    together(3, work)


def test_one_process_looks_at_what_several_learned() -> None:
    node = {
        "_target_": "rlfactory.hardware.distributed.Distributed",
        **{"processes": 8, "device": "cpu", "threads": 2, "memory_gb": None, "port": None},
    }
    local = {"_target_": "rlfactory.hardware.local.Local", "device": "cpu", "threads": 2}
    assert alone({"hardware": node})["hardware"] == {**local, "memory_gb": None}
    config = {"hardware": local}
    assert alone(config) is config
