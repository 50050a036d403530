import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlfactory.hardware.process_environment import (
    GPU,
    PORTS,
    ProcessInfo,
    first_host,
    installed_gpus,
    is_non_main,
    is_quiet,
    needs_launch,
    process_info,
    started_processes,
    use_expandable_segments,
    visible_gpus,
)
from rlfactory.utils.errors import UserError

MANY = {
    "_target_": "rlfactory.hardware.distributed.Distributed",
    "launcher": "auto",
    "port": None,
    "processes": 2,
}
NODES = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
}


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", *SLURM, *NODES):
        monkeypatch.delenv(name, raising=False)


def told(monkeypatch: pytest.MonkeyPatch, env: dict[str, str]) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def test_without_a_launcher_processes_are_started_by_the_command() -> None:
    assert process_info(MANY) is None
    assert needs_launch(MANY)
    assert not needs_launch({**MANY, "processes": 1})
    assert not needs_launch({"_target_": "rlfactory.hardware.local.Local"})
    assert not is_non_main(MANY)
    assert not is_quiet([])


def test_what_torchrun_says_is_what_we_say(monkeypatch: pytest.MonkeyPatch) -> None:
    here = ProcessInfo(rank=1, world_size=2, local_rank=1, master_addr="10.0.0.1", master_port=4000)
    env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    told(monkeypatch, env | {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "4000"})
    assert process_info(MANY) == here
    assert is_non_main(MANY)
    assert is_quiet([])
    assert not needs_launch(MANY)
    assert not is_non_main({"_target_": "rlfactory.hardware.local.Local"})


def test_tasks_of_slurm_are_processes_where_it_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, SLURM | {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"})
    assert process_info(MANY) is None
    assert is_quiet(["hardware=slurm"])
    assert is_quiet(["hardware=ddp", "hardware.launcher=slurm"])
    assert not is_quiet(["hardware=cpu"]), "tasks that have nothing to do with each other"
    node: dict[str, Any] = {**MANY, "launcher": "slurm"}
    here = process_info(node)
    assert here is not None
    assert (here.rank, here.world_size, here.local_rank, here.master_addr) == (3, 8, 1, "10.0.0.7")
    assert here.master_port in PORTS
    assert here == process_info(node), "all tasks find the same port"
    found = process_info({**node, "port": 4711})
    assert found is not None
    assert found.master_port == 4711


def test_a_shell_with_a_rank_left_in_it_is_no_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for left in ({"RANK": "3"}, {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": ""}, {"RANK": ""}):
        with monkeypatch.context() as shell:
            told(shell, left)
            assert not is_quiet([]), left
    told(monkeypatch, {"RANK": "", "WORLD_SIZE": ""})
    assert process_info(MANY) is None
    assert started_processes() == 1


def test_a_batch_script_is_no_task_of_srun(monkeypatch: pytest.MonkeyPatch) -> None:
    told(monkeypatch, SLURM)
    monkeypatch.delenv("SLURM_STEP_ID")
    assert process_info({**MANY, "launcher": "slurm"}) is None
    assert not is_quiet(["hardware=slurm"])


@pytest.mark.parametrize(
    ("env", "launcher", "said"),
    [
        ({"RANK": "x", "WORLD_SIZE": "2"}, "auto", "RANK is 'x'"),
        ({"RANK": "0", "WORLD_SIZE": "2.0"}, "auto", "WORLD_SIZE is '2.0'"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "a"}, "auto", "MASTER_PORT is 'a'"),
        ({"SLURM_PROCID": "0", "SLURM_STEP_ID": "0"}, "slurm", "SLURM_NTASKS is not set"),
    ],
)
def test_variables_that_no_launcher_sets_so_are_named(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], launcher: str, said: str
) -> None:
    told(monkeypatch, env)
    with pytest.raises(UserError, match=f"{said}; allowed is a whole number"):
        process_info({**MANY, "launcher": launcher})


def test_rank_0_listens_on_the_first_host_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    node: dict[str, Any] = {**MANY, "launcher": "slurm"}
    login = {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"}  # where srun was typed
    told(monkeypatch, SLURM | login | {"SLURM_JOB_NODELIST": "gpu[07-09]"})
    info = process_info(node)
    assert info is not None
    assert info.master_addr == "gpu07"
    monkeypatch.setenv("SLURM_STEP_NODELIST", "gpu[08-09]")
    info = process_info(node)
    assert info is not None
    assert info.master_addr == "gpu08"
    monkeypatch.setenv("MASTER_ADDR", "gpu09")
    info = process_info(node)
    assert info is not None
    assert info.master_addr == "gpu09"


@pytest.fixture
def nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """A stand-in for the tool, of these lines of shell."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    def install(lines: str) -> None:
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f"#!/bin/sh\n{lines}\n")
        tool.chmod(0o755)
        installed_gpus.cache_clear()

    installed_gpus.cache_clear()
    yield install
    installed_gpus.cache_clear()


THREE = "echo '0, GPU-aa1, 81559'; echo '1, GPU-ab2, 40960'; echo '2, GPU-ac3, [N/A]'"


def test_gpus_are_those_of_the_driver(nvidia_smi: Callable[[str], None]) -> None:
    assert visible_gpus() == [], "there is no such program"
    nvidia_smi("exit 9")
    assert visible_gpus() == []
    nvidia_smi(THREE)
    assert visible_gpus() == [
        GPU("0", "GPU-aa1", 81559),
        GPU("1", "GPU-ab2", 40960),
        GPU("2", "GPU-ac3", None),
    ]


@pytest.mark.parametrize(
    ("variable", "indices"),
    [
        ("1", ["1"]),
        ("2, 0", ["2", "0"]),
        ("GPU-ab", ["1"]),
        ("GPU-ac3,0", ["2", "0"]),
        ("GPU-a", []),  # three begin so
        ("", []),
        ("-1", []),
        ("0,-1,1", ["0"]),
        ("0,7,1", ["0"]),
        ("NoDevFiles", []),
        ("MIG-x", ["MIG-x"]),
    ],
)
def test_cuda_visible_devices_hides_gpus(
    monkeypatch: pytest.MonkeyPatch,
    nvidia_smi: Callable[[str], None],
    variable: str,
    indices: list[str],
) -> None:
    nvidia_smi(THREE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert [gpu.index for gpu in visible_gpus()] == indices


@pytest.mark.parametrize("own", [None, "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_segments_are_expandable_unless_the_user_has_configured_them(
    own: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {} if own is None else {own: "max_split_size_mb:64"})
    use_expandable_segments()
    expected = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    assert os.environ == (expected if own is None else {own: "max_split_size_mb:64"})


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("", ""),
        ("gpu3", "gpu3"),
        ("node-a,node-b", "node-a"),
        ("node[01-04,07],gpu3", "node01"),
        ("n[8-11]", "n8"),
        ("n[098-101]", "n098"),
        ("rack[0-1]n[1-2].site", "rack0n1.site"),
        ("b2,a[3,1]", "b2"),
        ("a[3,1],b2", "a3"),
        (" a[07] ", "a07"),
    ],
)
def test_the_first_host_of_a_list_is_found(text: str, host: str) -> None:
    assert first_host(text) == host
