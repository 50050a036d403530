"""Which package imports which: the contracts of pyproject.toml, depth, cycles, and no torch."""

import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
DEEPEST = 10
HEAVY = ("torch", "numpy", "scipy", "diffusers", "transformers", "peft", "datasets", "matplotlib")


def test_the_contracts_hold() -> None:
    # in a process of its own, since import-linter disables the loggers that exist
    code = (
        "from importlinter.cli import lint_imports as lint; raise SystemExit(lint(no_cache=True))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_packages_form_no_cycle_and_few_levels() -> None:
    chain = longest_chain(package_imports())
    assert len(chain) <= DEEPEST, " -> ".join(chain)


def test_a_cycle_is_found() -> None:
    with pytest.raises(AssertionError, match="a -> b -> c -> a"):
        longest_chain({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    assert longest_chain({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == ("a", "b", "c")


@pytest.mark.parametrize("words", [["check"], ["list", "algo"], ["explain", "optimizer.lr"]])
def test_a_plan_is_made_where_torch_cannot_be_imported(words: list[str], tmp_path: Path) -> None:
    # an audit hook, since the checks may look torch's files up in order to read them
    code = (
        "import sys\n"
        "def refuse(event, args):\n"
        f"    if event == 'import' and args[0].split('.')[0] in {HEAVY}:\n"
        "        raise ImportError(f'{args[0]} is not to be imported here')\n"
        "sys.addaudithook(refuse)\n"
        f"sys.argv = ['rlfactory', *{words}]\n"
        "from rlfactory.cli import main\n"
        "main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_training_of_texts_imports_neither_diffusers_nor_hydra() -> None:
    code = (
        "import sys, rlfactory.train.process.worker, rlfactory.model.causal_lm\n"
        "raise SystemExit(bool({'diffusers', 'hydra', 'omegaconf'} & {*sys.modules}))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def package_imports() -> Mapping[str, set[str]]:
    """What each package or module at the top of `rlfactory` imports of the others, at the top of a
    module or inside a function, without the imports that the layers' contract excepts.
    """
    graph = grimp.build_graph("rlfactory", cache_dir=None)
    for line in excepted():
        importer, _, imported = line.partition(" -> ")
        graph.remove_import(importer=importer, imported=imported)
    packages = graph.find_children("rlfactory")
    for package in packages:
        graph.squash_module(package)
    return {p: graph.find_modules_directly_imported_by(p) & (packages - {p}) for p in packages}


def excepted() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [
        line
        for contract in contracts["contracts"]
        if contract["type"] == "layers"
        for line in contract.get("ignore_imports", [])
    ]


def longest_chain(imports: Mapping[str, set[str]]) -> tuple[str, ...]:
    """The longest chain of packages of which each imports the next one: the levels of import."""

    @cache
    def chain(package: str) -> tuple[str, ...]:
        below = [chain(other) for other in sorted(imports[package])]
        return (package, *max(below, key=len, default=()))

    require_no_cycle(imports)
    return max(map(chain, sorted(imports)), key=len)


def require_no_cycle(imports: Mapping[str, set[str]]) -> None:
    done: set[str] = set()

    def visit(package: str, path: tuple[str, ...]) -> None:
        assert package not in path, " -> ".join([*path[path.index(package) :], package])
        if package not in done:
            for other in sorted(imports[package]):
                visit(other, (*path, package))
            done.add(package)

    for package in sorted(imports):
        visit(package, ())
