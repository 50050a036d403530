"""Whether this user began a run with its code; test_hostile_inputs.py has received ones."""

import os
from pathlib import Path

import pytest

from rlfactory.run.folder import RunFolder
from rlfactory.train.process.begun_code import is_begun, remember_code

NAMED = [("reward.function", "judge.py:score")]
CONFIG = {"reward": {"function": "judge.py:score"}}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.inputs.mkdir(parents=True)
    (made.inputs / "judge.py").write_text("def score(): ...\n")
    return made


def test_it_holds_for_the_code_that_was_begun_alone(folder: RunFolder) -> None:
    assert not is_begun(folder, NAMED)
    remember_code(folder, CONFIG)
    assert is_begun(folder, NAMED)
    assert not is_begun(folder, [("reward.function", "judge.py:other")])
    (folder.inputs / "judge.py").write_text("import os\n")
    assert not is_begun(folder, NAMED)


@pytest.mark.timeout(20)
def test_a_pipe_in_a_received_folder_is_not_waited_for(folder: RunFolder) -> None:
    remember_code(folder, CONFIG)
    os.mkfifo(folder.inputs / "more.py")
    assert not is_begun(folder, NAMED)
