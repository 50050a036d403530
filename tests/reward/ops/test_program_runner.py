import subprocess

import pytest

from rlfactory.reward.ops.program_runner import raises_nothing, run
from rlfactory.reward.python_code import NotRunError, count_passed

ADD = "def add(a, b):\n    return a + b\n"


def passed(code, *tests, seconds=5.0):
    return count_passed(code, tests or ["pass"], seconds=seconds, memory=2**29)


def test_each_test_runs_after_the_program():
    assert (
        passed(ADD, "assert add(1, 2) == 3", "assert add(1, 2) == 4", "assert add(2, 2) == 4") == 2
    )


@pytest.mark.parametrize(
    "code",
    [
        "def add(",
        "1 / 0",
        "raise SystemExit(0)",
        "import os; os._exit(0)",
        "x = bytearray(2**31)",
        "import socket; socket.socket()",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.fork()",
        "open('/tmp/rlfactory_program', 'w')",
        "import os; os.rename('.', '/tmp/rlfactory_program')",
        "import numpy",
    ],
)
def test_a_program_that_fails_or_breaks_a_limit_passes_nothing(code):
    assert passed(code) == 0


def test_an_endless_program_is_ended():
    assert passed("while True:\n    pass", seconds=0.2) == 0


def test_a_program_has_a_folder_of_its_own():
    code = "open('notes', 'w').write('x')\ntext = open('notes').read()"
    assert passed(code, "assert text == 'x'") == 1


def test_an_exit_in_a_test_fails_that_test_alone():
    names = {}
    assert not raises_nothing("raise SystemExit(0)", names)
    assert run("x = 1", ["assert x == 1", "raise SystemExit(0)", "assert x == 1"]) == 2


def test_a_process_that_does_not_start_is_no_fault_of_the_program(monkeypatch):
    def refuse(*args, **options):
        raise OSError("too many processes")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(NotRunError, match="too many"):
        passed("pass")
