"""Compares mathematical answers by math-verify; the program of a process that may be killed.

It reads JSON lines `[answer, completion, seconds]`, first of all one of the limit on its memory in
bytes, and writes a JSON line for each: `{"equal": true}`, or `{"error": "..."}`. The kernel kills
it where a comparison takes longer than its seconds. It imports nothing of this package, so that it
starts quickly.
"""

import json
import logging
import resource
import signal
import sys
from typing import Any

_ENVIRONMENTS = ("$", "\\boxed", "\\(", "\\[", "\\begin{equation", "\\begin{align")


def main() -> None:
    """Answer lines until there are no more."""
    memory = int(sys.stdin.readline())
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    logging.disable(logging.CRITICAL)  # it warns of its timeout, which is off
    import math_verify  # noqa: F401  before the first limit on time

    for line in sys.stdin:
        answer, text, seconds = json.loads(line)
        # the default action ends the process, also where a call into C never returns: 9**9**9
        signal.setitimer(signal.ITIMER_REAL, seconds)
        reply = _reply(answer, text)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), flush=True)


def _reply(answer: str, text: str) -> dict[str, Any]:
    try:
        return {"equal": is_equal(answer, text)}
    except Exception as error:  # parsers and sympy raise anything
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def is_equal(answer: str, text: str) -> bool:
    """Whether the last answer in a text is mathematically equal to `answer`.

    ValueError where `answer` can't be read. math-verify's own timeouts are off: they need signals
    of their own, and do not end a call into C.
    """
    from math_verify import parse, verify

    # an answer is looked for as LaTeX, between dollars, unless it is marked already, not by `\$12`
    is_marked = any(mark in answer.replace("\\$", "") for mark in _ENVIRONMENTS)
    marked = answer if is_marked else f"${answer}$"
    gold = parse(marked, parsing_timeout=None, raise_on_error=True)
    if all(isinstance(one, str) for one in gold):  # nothing but the text itself was read
        raise ValueError("the answer can't be read as mathematics")
    found = parse(text, parsing_timeout=None, raise_on_error=True)
    return bool(verify(gold, found, timeout_seconds=None, raise_on_error=True))


if __name__ == "__main__":
    main()
