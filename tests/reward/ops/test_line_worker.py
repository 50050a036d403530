import pytest

from rlfactory.reward.ops.line_worker import LineWorker, WorkerDied

PROGRAM = """
import json, sys
first = json.loads(sys.stdin.readline())
for line in sys.stdin:
    value = json.loads(line)
    if value == "die":
        sys.exit(3)
    print(json.dumps([first, value]), flush=True)
"""


def test_a_worker_that_dies_is_replaced(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    worker = LineWorker(program, "first")
    assert worker.ask({"a": "\u00e9\n"}) == ["first", {"a": "\u00e9\n"}]
    with pytest.raises(WorkerDied, match="3"):
        worker.ask("die")
    assert worker.ask(1) == ["first", 1]
    worker.close()
