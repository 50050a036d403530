from typing import Any

import pytest

from rlfactory.ranks import PORTS, Place, follows, is_quiet, is_to_launch, place, variables

MANY = {
    "_target_": "rlfactory.hardware.distributed.Distributed",
    "launcher": "auto",
    "port": None,
    "processes": 2,
}
SLURM = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "77"}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", *SLURM):
        monkeypatch.delenv(name, raising=False)


def told(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def test_without_a_launcher_processes_are_started_by_the_command() -> None:
    assert place(MANY) is None
    assert is_to_launch(MANY)
    assert is_to_launch({**MANY, "_target_": "rlfactory.hardware.deepspeed.DeepSpeed"})
    assert not is_to_launch({**MANY, "processes": 1})
    assert not is_to_launch({"_target_": "rlfactory.hardware.local.Local"})
    assert not follows(MANY)
    assert not is_quiet([])


def test_what_torchrun_says_is_what_we_say(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Place(rank=1, world=2, local=1, address="10.0.0.1", port=4000)
    told(monkeypatch, variables(here))
    assert place(MANY) == here
    assert follows(MANY)
    assert is_quiet([])
    assert not is_to_launch(MANY)
    assert not follows({"_target_": "rlfactory.hardware.local.Local"})


def test_tasks_of_slurm_are_processes_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, SLURM | {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"})
    assert place(MANY) is None
    assert is_quiet(["hardware=slurm"])
    assert is_quiet(["hardware=deepspeed", "hardware.launcher=slurm"])
    assert not is_quiet(["hardware=cpu"]), "tasks that have nothing to do with each other"
    node: dict[str, Any] = {**MANY, "launcher": "slurm"}
    here = place(node)
    assert here is not None
    assert (here.rank, here.world, here.local, here.address) == (3, 8, 1, "10.0.0.7")
    assert here.port in PORTS
    assert here == place(node), "all tasks find the same port"
    found = place({**node, "port": 4711})
    assert found is not None
    assert found.port == 4711
