"""Whether this user signed a run folder; tests/cli/test_hostile_inputs.py has received ones."""

import os
from pathlib import Path

import pytest

from rlfactory.run.folder import RunFolder
from rlfactory.train.process.signed_run import is_signed, sign

NAMED = [("reward.function", "judge.py:score")]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.inputs.mkdir(parents=True)
    (made.inputs / "judge.py").write_text("def score(): ...\n")
    return made


def test_it_holds_for_the_code_that_was_signed_alone(folder: RunFolder) -> None:
    assert not is_signed(folder, NAMED)
    sign(folder, NAMED)
    assert is_signed(folder, NAMED)
    assert not is_signed(folder, [("reward.function", "judge.py:other")])
    (folder.inputs / "judge.py").write_text("import os\n")
    assert not is_signed(folder, NAMED)


def test_letters_that_no_signature_has(folder: RunFolder) -> None:
    sign(folder, NAMED)
    folder.signature.write_text(folder.signature.read_text() + "\u00e9")
    assert not is_signed(folder, NAMED)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("place", ["signature.txt", "inputs/more.py"])
def test_a_pipe_in_a_received_folder_is_not_waited_for(folder: RunFolder, place: str) -> None:
    sign(folder, NAMED)
    (folder.path / place).unlink(missing_ok=True)
    os.mkfifo(folder.path / place)
    assert not is_signed(folder, NAMED)
