"""A rank as torchrun starts it: `python -m rlfactory.train.process`."""

import signal
from pathlib import Path

import pytest

from rlfactory.train.process import __main__ as rank
from rlfactory.train.process import worker
from rlfactory.train.process.run_arguments import EXIT_CODE, RunArguments


@pytest.mark.parametrize(("code", "shown"), [(0, 0), (1, 1), (130, 0), (143, 0)])
@pytest.mark.parametrize("number", [0, 1])
def test_a_requested_stop_is_no_failure_to_torchrun(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int, shown: int, number: int
) -> None:
    former = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(rank, "terminate_with_parent", lambda _: None)
    monkeypatch.setattr(rank, "leave_current_folder", lambda: None)
    monkeypatch.setenv("RANK", str(number))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    file = tmp_path / "code"
    file.write_text("130")  # of an attempt before
    asked: list[RunArguments] = []

    def run(arguments: RunArguments) -> int:
        assert file.read_text() == ("" if number == 0 else "130")
        asked.append(arguments)
        return code

    monkeypatch.setattr(worker, "run_rank", run)
    arguments = RunArguments(Path("run"), 2, True)
    try:
        assert rank.main([*arguments.words(), EXIT_CODE, str(file)]) == shown
    finally:
        signal.signal(signal.SIGINT, former)
    assert asked == [arguments]
    assert file.read_text() == (str(code) if number == 0 else "130")


def test_a_restart_is_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("RESTART_COUNT", "2"), ("MAX_RESTARTS", "3")):
        monkeypatch.setenv(f"TORCHELASTIC_{name}", value)
    rank._report_restart()
    assert "from the newest checkpoint; restart 2 of 3" in capsys.readouterr().err
