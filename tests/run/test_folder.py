import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlfactory.run import atomic_write
from rlfactory.run.folder import RunFolder, RunFolderError, enough_space, require_unused


def test_a_fresh_folder_is_running_and_has_its_parts(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "deep" / "run")
    assert folder.status.read_text() == "running\n"
    assert folder.read_status() == "running"
    assert folder.samples.is_dir()
    assert folder.evaluations.is_dir()
    assert folder.checkpoints.is_dir()
    assert folder.grid(60).name == "eval_000060.png"
    assert folder.evaluation(0) == folder.path / "evaluations" / "000000.json"


def test_an_existing_empty_folder_is_fresh(tmp_path: Path) -> None:
    RunFolder.create(tmp_path)


def test_a_part_that_links_into_the_folder_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    folder.checkpoints.rmdir()
    folder.checkpoints.symlink_to(tmp_path / "elsewhere")
    folder.require_separate_parts()
    for target in (".", "samples", "checkpoints"):
        folder.checkpoints.unlink()
        folder.checkpoints.symlink_to(target)
        with pytest.raises(RunFolderError, match=r"into the run folder.* mkdir \S*checkpoints$"):
            folder.require_separate_parts()


def test_a_used_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    used = tmp_path / "run"
    used.mkdir()
    (used / "precious").write_text("mine")
    (tmp_path / "run_2").mkdir()
    with pytest.raises(RunFolderError, match=r"precious.*run_dir=.*run_3"):
        RunFolder.create(used)
    assert [p.name for p in used.iterdir()] == ["precious"]


def test_what_was_killed_while_it_was_made_is_made_again(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.plan.write_text("as planned")
    folder.samples.rmdir()
    (folder.path / ".config.yaml.ab12.unfinished").write_text("hal")
    assert RunFolder.create(folder.path).samples.is_dir()


@pytest.mark.parametrize("name", ["config.yaml", "samples/mine.png", "notes"])
def test_what_more_than_that_is_in_it_is_not_overwritten(name: str, tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    (folder.path / name).write_text("mine")
    with pytest.raises(RunFolderError, match="is not empty"):
        RunFolder.create(folder.path)


def test_a_plan_of_ones_own_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("mine")
    with pytest.raises(RunFolderError, match=r"holds plan\.txt"):
        RunFolder.create(tmp_path)


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot be written .*run_dir="):
        RunFolder.create(tmp_path / "file" / "run")
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunFolder.create(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_place_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(RunFolderError, match="cannot be written"):
        RunFolder.create(tmp_path / "run")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="this system has no /proc")
def test_a_place_that_permissions_allow_and_the_system_does_not_is_refused() -> None:
    with pytest.raises(RunFolderError, match="cannot be written"):
        require_unused(Path("/proc/run"))


def test_asking_leaves_nothing(tmp_path: Path) -> None:
    require_unused(tmp_path / "run")
    assert not [*tmp_path.iterdir()]


def test_a_disk_that_fails_while_the_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_write.os, "fsync", full)
    with pytest.raises(RunFolderError, match="No space left on device"):
        RunFolder.create(tmp_path / "run")


def test_a_failed_write_keeps_the_old_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder.create(tmp_path)
    names = sorted(p.name for p in tmp_path.iterdir())

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic_write.os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.set_status("done")
    assert folder.read_status() == "running"
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_status_of_what_is_not_a_run_folder(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="not a run folder"):
        RunFolder(tmp_path).read_status()
    RunFolder(tmp_path).status.write_text("dancing")
    with pytest.raises(RunFolderError, match="dancing"):
        RunFolder(tmp_path).read_status()


def test_enough_space_says_needed_and_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    enough_space(tmp_path / "not" / "yet", 1)
    usage = SimpleNamespace(free=3 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    with pytest.raises(RunFolderError, match=r"5\.0 GiB needed, 3\.0 MiB free"):
        enough_space(tmp_path, 5 * 2**30)


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("content", [b"", b"perhaps", b"\xff\xfe", b"done\ndone", b"x" * 10_000])
def test_an_unknown_status_is_an_error_that_says_what_to_write(
    tmp_path: Path, content: bytes
) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.status.write_bytes(content)
    with pytest.raises(RunFolderError, match=r"STATUS: .*write that of this run there"):
        folder.read_status()


def test_a_pipe_in_the_place_of_the_status_is_not_waited_for(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.status.unlink()
    os.mkfifo(folder.status)
    with pytest.raises(RunFolderError, match="is no file"):
        folder.read_status()
