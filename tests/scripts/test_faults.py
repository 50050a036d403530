"""The parts of the fault scripts that need no run: damage, comparison, tally, and the command."""

import random
import sys
from pathlib import Path

import pytest

SCRIPTS = str(Path(__file__).parents[2] / "scripts")
if SCRIPTS not in sys.path:
    sys.path.append(SCRIPTS)

import faults  # noqa: E402
from faulty.damage import DAMAGES, damaged  # noqa: E402
from faulty.harm.grammar import Damage, inflict  # noqa: E402
from faulty.runs import words  # noqa: E402
from faulty.tally import Tally  # noqa: E402
from faulty.traces import compared, traces  # noqa: E402

METRICS = "metrics.jsonl differs"


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("alone", [True, False])
def test_damage_changes_something(kind: str, alone: bool, tmp_path: Path) -> None:
    for seed in range(20):
        folder = tmp_path / str(seed)
        (folder / "below").mkdir(parents=True)
        (folder / "a").write_bytes(bytes(5000))  # zeros alone, and twice, are the hard case
        if not alone:
            (folder / "below" / "b").write_bytes(bytes(5000))
            (folder / "c").write_bytes(b"c" * 10)
        before = content(folder)
        said = DAMAGES[kind](folder / "a", random.Random(seed))
        assert content(folder) != before, said


def test_all_files_and_kinds_come_up(tmp_path: Path) -> None:
    found, files = set(), set()
    for seed in range(200):
        folder = tmp_path / str(seed)
        (folder / "below").mkdir(parents=True)
        for name in ("a", "below/b", "c"):
            (folder / name).write_text(name)
        kind, said = damaged(folder, random.Random(seed))
        found.add(kind)
        files.add(said.split()[0])
    assert found == {*DAMAGES}
    assert files == {"a", "below/b", "c"}


def test_a_linked_original_stays(tmp_path: Path) -> None:
    (tmp_path / "original").write_text("original")
    for kind, harm in DAMAGES.items():
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "link").hardlink_to(tmp_path / "original")
        harm(folder / "link", random.Random(0))
        assert (tmp_path / "original").read_text() == "original", kind


@pytest.mark.parametrize("second", ["MANIFEST.json", "state.json"])
def test_a_link_to_a_device_is_not_read(
    second: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Path.read_bytes

    def read_file(path: Path) -> bytes:
        assert path.is_file(), f"{path} has no end"
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_file)
    checkpoint = tmp_path / "checkpoints" / "step_000001"
    checkpoint.mkdir(parents=True)
    for name in ("MANIFEST.json", "state.json"):
        (checkpoint / name).write_text("{}")
    place = checkpoint.relative_to(tmp_path).as_posix()
    inflict(tmp_path, Damage(f"{place}/MANIFEST.json", "a link to a device", 0), tmp_path)
    inflict(tmp_path, Damage(f"{place}/{second}", "another value", 0, signed=True), tmp_path)
    assert (checkpoint / "MANIFEST.json").is_symlink()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1, "time": 1.5, "loss": 2}\n')
    (tmp_path / "STATUS").write_text("done\n")
    (tmp_path / "log.txt").write_text("at noon")
    return tmp_path


def test_the_clock_makes_no_difference(run: Path) -> None:
    before = traces(run)
    line = '{"iteration": 1, "time": 9.9, "loss": 2, "time/learn": 3, "memory/peak_gb": 1}'
    (run / "metrics.jsonl").write_text(f"{line}\n")
    (run / "log.txt").write_text("at night")
    assert compared(before, traces(run)) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "metrics.jsonl",
            '{"iteration": 1, "loss": 3}\n',
            METRICS + " in line 1 in loss",
        ),
        ("metrics.jsonl", "", METRICS + ": 0 lines instead of 1"),
        ("STATUS", "failed\n", "STATUS differs"),
        (".STATUS.x.unfinished", "", ".STATUS.x.unfinished is left over"),
    ],
)
def test_a_difference_is_named(name: str, text: str, said: str, run: Path) -> None:
    before = traces(run)
    (run / name).write_text(text)
    assert compared(before, traces(run)) == [said]


def test_tensors_are_compared_and_not_the_order_of_their_metadata(run: Path) -> None:
    def write(header: str, data: bytes) -> None:
        text = header.encode()
        (run / "a.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)

    write('{"a": 1, "b": 2}', b"data")
    before = traces(run)
    write('{"b": 2, "a": 1}', b"data")
    assert compared(before, traces(run)) == []
    write('{"a": 1, "b": 3}', b"data")
    assert compared(before, traces(run)) == ["a.safetensors differs in header"]
    write('{"a": 1, "b": 2}', b"date")
    assert compared(before, traces(run)) == ["a.safetensors differs in bytes"]


def test_what_is_missing_and_what_is_unsound_is_named(run: Path) -> None:
    before = traces(run)
    (run / "log.txt").unlink()
    (run / "checkpoints" / "step_000001").mkdir()
    checkpoint, log = compared(before, traces(run))
    assert checkpoint == "checkpoint 1 is left over"
    assert log == "log.txt is missing"
    assert "is damaged" in str(traces(run)["checkpoint 1"])


def test_a_tally_shows_figures_and_failures() -> None:
    tally = Tally(3, 2, ["the third"], {"seconds": "1.5"})
    assert tally.show() == "2 of 3 passed\n  seconds: 1.5\n  FAILED the third"


@pytest.mark.parametrize(("passed", "code"), [(5, 0), (4, 1)])
def test_the_exit_code_says_whether_all_passed(
    passed: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(faults, "_tally", lambda kind, asked: Tally(5, passed))
    monkeypatch.setattr(faults.logging, "disable", lambda: None)
    assert faults.main(["--kills", "5"]) == code


def test_nothing_asked_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        faults.main([])
    assert "say how many" in capsys.readouterr().err


def test_a_key_given_twice_counts_once() -> None:
    assert words("a=1", "b=2", "a=3") == ("a=3", "b=2")
