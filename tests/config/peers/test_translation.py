"""The text of a translation is a command and comments."""

import shlex

from rlfactory.config.peers.translation import Translation


def test_the_text_runs_in_a_shell() -> None:
    made = Translation("Their library")
    made.set("optimizer.betas", [0.9, 0.99])
    made.type("algo=grpo", "algo=nft")
    made.set("run_dir", "my run")
    made.notes.append("their noise is another one")
    made.drop("a.key", None, "for no reason")
    lines = made.text("file.yaml").splitlines()
    command = [line for line in lines if line and not line.startswith("#")]
    assert shlex.split(" ".join(command)) == [
        "rlfactory", "algo=nft", "run_dir=my run", "optimizer.betas=[0.9,0.99]"
    ]  # fmt: skip
    assert lines[-1] == "#   a.key = null  (for no reason)"
    assert "#   their noise is another one" in lines


def test_long_commands_are_folded() -> None:
    made = Translation("Their library")
    made.type(*(f"key_{i}=value" for i in range(40)))
    lines = made.text("f").splitlines()
    assert max(map(len, lines)) < 120
    assert all(line.endswith("\\") for line in lines[1:-1])
