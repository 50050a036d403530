"""Options of shell commands of other libraries."""

from typing import Any

import pytest

from rlfactory.config.peers.shell_command import of_shell


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("1e-4", 1e-4),
        ("1e+5", 1e5),
        ("3", 3),
        ("true", True),
        ("1e", "1e"),
        ("[1e-4,2]", [1e-4, 2]),
    ],
)
def test_numbers_are_read_in_each_form(typed: str, value: Any) -> None:
    found = of_shell(f"trl grpo --learning_rate {typed}").values["learning_rate"]
    assert found == value
    assert type(found) is type(value)


VARIABLES = """
NAME=${NAME:-deep}  # it's read where the script sets none
length=$((1024 * 2))
PATHS=${ROOT:-"$NAME/data"}/train
KL="kl.use=true \\
    kl.coef=0.1"
ARGS=(
    --batch $((length / 4))  # of all GPUs
    # --batch 1
    --steps $(expr 16 / 4)
    --path "$PATHS"
)
ARGS+=(--words '["a","b"]')
"""


@pytest.mark.parametrize(
    ("command", "values"),
    [
        (
            'x "${ARGS[@]}" "$@" > out.log 2>&1',
            {"batch": 512, "steps": 4, "path": "deep/data/train", "words": ["a", "b"]},
        ),
        ("python -m x data.n=$length $KL", {"data.n": 2048, "kl.use": True, "kl.coef": 0.1}),
        ("x --a ${1:-vllm} --b '$NAME' --c $UNSET", {"a": "vllm", "b": "$NAME", "c": "$UNSET"}),
        ("x --data set#20 'other set#3' \\", {"data": ["set#20", "other set#3"]}),
    ],
)
def test_values_of_a_script_are_put_in(command: str, values: dict[str, Any]) -> None:
    assert of_shell(VARIABLES + command).values == values


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("swift rlhf --a 1 --plugin own.py --b 2", "swift rlhf"),
        ("python -m openrlhf.cli.x --a 1 --plugin own.py --b 2", "python -m openrlhf.cli.x"),
        ("torchrun --standalone x.py --a 1 --plugin own.py --b 2", "torchrun --standalone x.py"),
        ("ray job submit --x -- python3 -m y --a 1 --plugin own.py --b 2", None),
        ("python -m torch.distributed.run --n 8 x.py --a 1 --plugin own.py --b 2", None),
    ],
)
def test_a_file_among_the_options_is_no_script(command: str, program: str | None) -> None:
    found = of_shell(command)
    assert found.values == {"a": 1, "plugin": "own.py", "b": 2}
    assert program in (None, found.program)
