"""Mutants of the planner, the reports and the run folder: which of them do the mirrored tests kill?

python scripts/golden/mutate.py --count 60 --seed 0 --out before.jsonl

Each mutant has one change: a comparison turned round, a `not` left out, `and` for `or`, another
constant, or None returned. It is made in a copy of the tracked files, and tested by the files that
mirror it (`tests/config/test_plan.py` for `config/plan.py`), then by the others of that folder. The
same seed gives the same mutants while the code is the same: compare the shares before and after a
change of the tests. Nothing here is a test.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("config", "report", "run")
SECONDS = 240
"""After which a mutant counts as killed, as an endless loop would be."""
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def mutations(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What a node can be replaced by, with a word for it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPPED:
            changed = ast.Compare(node.left, [SWAPPED[type(op)]()], node.comparators)
            yield "comparison", changed
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node.operand
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", ast.BoolOp(other, node.values)
        case ast.Constant(value=bool()):
            yield "constant", ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield "constant", ast.Constant(node.value + 1)
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return", ast.Return(ast.Constant(None))


def places(path: Path) -> list[tuple[int, str]]:
    """The nodes of a file that have a mutant, by number, and its kind."""
    nodes = enumerate(ast.walk(ast.parse(path.read_text())))
    return [(number, kind) for number, node in nodes for kind, _ in mutations(node)]


def mutated(text: str, number: int) -> tuple[str, int, str]:
    """The text with one node replaced, its line, and what stands there now."""
    tree = ast.parse(text)
    old = [*ast.walk(tree)][number]
    ((_, new),) = mutations(old)

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return new if node is old else self.generic_visit(node)

    changed = ast.fix_missing_locations(Replace().visit(tree))
    shown = f"{ast.unparse(old)[:70]} -> {ast.unparse(new)[:70]}"
    return ast.unparse(changed), old.lineno, shown


def copied(folder: Path) -> Path:
    """The tracked files, in a folder where they may be changed."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def tests_of(path: Path, copy: Path) -> list[list[Path]]:
    """The test files that mirror a file of src, and those beside them."""
    folder = copy / "tests" / path.relative_to(copy / "src" / "rlfactory").parent
    files = sorted(folder.glob("test_*.py"))
    own = [f for f in files if f.stem == f"test_{path.stem}"]
    return [group for group in (own, [f for f in files if f not in own]) if group]


def killer(path: Path, copy: Path) -> str:
    """The first test that fails; empty where all pass."""
    env = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    for files in tests_of(path, copy):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", *map(str, files)]
        try:
            done = subprocess.run(
                command, cwd=copy, env=env, capture_output=True, text=True, timeout=SECONDS
            )
        except subprocess.TimeoutExpired:
            return "out of time"
        if done.returncode not in (0, 5):  # 5: all tests of these files are slow, and left out
            failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "E"))]
            return (failed or [f"exit {done.returncode}"])[-1][:160]
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60, help="mutants, shared by the packages")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--packages", nargs="+", default=PACKAGES)
    parser.add_argument("--minutes", type=float, default=120, help="begin no mutant after these")
    parser.add_argument("--out", type=Path, help="a line of JSON a mutant")
    arguments = parser.parse_args()
    drawn, start = random.Random(arguments.seed), time.monotonic()
    killed, tried = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy, chosen = copied(Path(folder)), []
        for package in arguments.packages:
            files = sorted((copy / "src" / "rlfactory" / package).rglob("*.py"))
            every = [(package, path, *place) for path in files for place in places(path)]
            chosen += drawn.sample(every, arguments.count // len(arguments.packages))
        drawn.shuffle(chosen)
        for package, path, number, kind in chosen:
            if time.monotonic() - start > 60 * arguments.minutes:
                break
            before = path.read_text()
            changed, line, shown = mutated(before, number)
            path.write_text(changed)
            found = killer(path, copy)
            path.write_text(before)
            tried[package] += 1
            killed[package] += bool(found)
            place = f"{path.relative_to(copy)}:{line}"
            print(f"{'killed ' if found else 'SURVIVED'} {place} {kind}: {shown}", flush=True)
            if arguments.out:
                record = {"place": place, "kind": kind, "change": shown, "killed_by": found}
                with arguments.out.open("a") as file:
                    file.write(f"{json.dumps(record)}\n")
    for package, count in tried.items():
        print(f"{package}: {killed[package]} of {count} killed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
