from pathlib import Path

import pytest

from rlfactory.report.typed import typed_keys
from rlfactory.run.folder import RunFolder


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("rlfactory algo=nft +reward.x=1 'a.b=[1, 2]' ~c.d=3", {"algo", "reward.x", "a.b", "c.d"}),
        ("rlfactory -m --algo=nft,grpo seed=0,1", {"algo", "seed"}),
        ("rlfactory", set()),
        ("rlfactory.train('algo=nft', 'optimizer.lr=0.1')", {"algo", "optimizer.lr"}),
        ("rlfactory.train('a=(1)')", {"a"}),
        ("rlfactory.train()", set()),
    ],
)
def test_the_keys_of_a_command(tmp_path: Path, command: str, keys: set[str]) -> None:
    folder = RunFolder(tmp_path)
    folder.command.write_text(f"{command}\n")
    assert typed_keys(folder) == keys


def test_unknown_where_the_folder_does_not_say_all(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert typed_keys(folder) is None  # an earlier version
    folder.command.write_text("rlfactory 'unclosed")
    assert typed_keys(folder) is None
    folder.command.write_text("rlfactory.train('algo=nft')")
    folder.objects.write_text('{"reward": "a function"}')
    assert typed_keys(folder) is None
