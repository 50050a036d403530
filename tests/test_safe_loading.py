"""Nothing that is read can run code, and no name leads out of the folder that is written."""

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from rlfactory.report.results import Gallery
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.scores import Scores

SOURCES = sorted((Path(__file__).parents[1] / "src").rglob("*.py"))
RUNS_PROGRAMS = {"program_runner.py", "python_code.py", "targets.py"}
"""Of `reward=python`, which is there to run them, in a process of its own; and what compiles a
method of a component, of packages whose code may run alone."""
SHIPPED_FORMULAS = {"importer.py"}
"""What evaluates formulas of `peers/libraries/*.yaml`, of values that are no code."""
SAFE_LOADERS = ("SafeLoader", "_loader()", "loader")
"""OmegaConf's, which `_loader` returns, is a safe one too; `loader` is libyaml's, or Python's."""
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
ALLOWED_IMPORTS = {
    ("pretrained.py", "UnpicklingError"),
}
"""An error to catch: nothing that reads a file."""


def _calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def _keywords(call: ast.Call) -> dict[str | None, str]:
    return {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_loads_what_could_run(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, call in _calls(tree):
        given = _keywords(call)
        runs = () if path.name in RUNS_PROGRAMS else ("exec", "compile")
        evaluates = () if path.name in SHIPPED_FORMULAS else ("eval",)
        assert name not in ("__import__", "os.system", *runs, *evaluates), name
        assert "unsafe" not in name
        assert given.get("trust_remote_code") in (None, "False")
        assert given.get("shell") in (None, "False")
        if name in ("torch.load", "load") and "torch" in name:
            assert given.get("weights_only") == "True"
        if name == "yaml.load":
            loader = given["Loader"] if "Loader" in given else ast.unparse(call.args[1])
            assert loader.endswith(SAFE_LOADERS), "yaml.safe_load reads it"
        if name.endswith("np.load") or name == "numpy.load":
            assert given.get("allow_pickle", "False") == "False"
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert not UNSAFE & {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE:
            assert all((path.name, alias.name) in ALLOWED_IMPORTS for alias in node.names)


HOSTILE = ["../../escaped", "/tmp/escaped_absolutely", "nul\0inside", "n" * 5000, "..", "a/b", "\n"]


@pytest.mark.slow
@pytest.mark.parametrize("media", ["images", "texts"])
def test_names_and_prompts_do_not_lead_out_of_the_folder(tmp_path: Path, media: str) -> None:
    """Prompts and names of scores are shown inside files, and never name one."""
    inside = tmp_path / "run" / "samples"
    inside.mkdir(parents=True)
    count = len(HOSTILE)
    images = torch.zeros(count, 3, 8, 8, dtype=torch.uint8) if media == "images" else None
    texts = HOSTILE if media == "texts" else None
    drawn = GeneratedSamples(images, texts)
    values = {name: np.full(count, 0.5) for name in ["../../score", "/tmp/score"]}
    rooms = Gallery(inside, "../../score", 1.0, count)
    rooms.show("eval_000001", "../../score", drawn, Scores(HOSTILE, values))
    found = {p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()}
    assert found
    assert all(p.parts[:2] == ("run", "samples") for p in found)
    assert not list(Path("/tmp").glob("escaped_absolutely*"))
