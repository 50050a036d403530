"""The log of a run."""

import logging
import warnings
from pathlib import Path

import pytest

from rlfactory.run.folder import RunFolder
from rlfactory.run.log_file import attach_log
from rlfactory.utils.data_files import FileError


def test_log_keeps_messages_warnings_and_the_traceback(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path)
    root = logging.getLogger()
    handlers = list(root.handlers)
    with pytest.raises(ZeroDivisionError), attach_log(folder):  # noqa: PT012
        logging.getLogger("rlfactory.train.trainer").info("an event")
        logging.getLogger("httpx").info("chatter")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("beware", stacklevel=1)
        1 / 0  # noqa: B018
    text = folder.log.read_text()
    assert "INFO rlfactory.train.trainer: an event" in text
    assert "beware" in text
    assert "ZeroDivisionError" in text
    assert "chatter" not in text
    assert root.handlers == handlers


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    folder, mine = RunFolder.create(tmp_path / "run"), tmp_path / "mine"
    mine.write_text("mine")
    folder.log.symlink_to(mine)
    with pytest.raises(FileError, match="a link, through which a run would write; remove it"):
        attach_log(folder).__enter__()
    assert mine.read_text() == "mine"
