"""Executes the notebooks of docs/notebooks and stores them with their outputs.

    python scripts/docs/notebooks.py                  # all: about eight minutes of two cores
    python scripts/docs/notebooks.py first_run gpu    # some

Each is written as a Python script in Jupytext's percent format and the .ipynb is made from it, so
that a diff shows text and code instead of encoded pictures, and ruff checks the code.
"""

import argparse
import os
import re
import resource
import sys
from base64 import b64decode, b64encode
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "notebooks"
ORDER = (
    *("first_run", "own_reward", "own_pipeline", "ppo_gpt2", "grpo_verifier", "read_a_run"),
    *("compare_algorithms", "sweeps", "export", "write_an_algorithm", "inspect_lm", "gpu"),
)
"""As the index lists them."""
CELL_SECONDS = 300
_COLORS, _WIDTH = 128, 800  # of stored pictures, the width in pixels
_PICTURE = re.compile(r"(data:image/png;base64,)([A-Za-z0-9+/=]+)")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def source(name: str) -> NotebookNode:
    """The cells of a notebook's script, without outputs."""
    notebook = jupytext.read(FOLDER / f"{name}.py", fmt="py:percent")
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i}"  # random ones would differ each time
        cell.source = cell.source.strip("\n")  # blank lines around definitions, by ruff
        cell.metadata = NotebookNode()
    return notebook


def stored(name: str) -> NotebookNode:
    """The notebook as it is published, with outputs."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def execute(notebook: NotebookNode) -> float:
    """Execute the cells in an empty folder; returns the CPU seconds of all its processes.

    Raises:
        CellExecutionError: a cell raised an exception.
    """
    with TemporaryDirectory() as folder:
        environment = os.environ | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
            "IPYTHONDIR": str(Path(folder) / ".ipython"),
            "COLUMNS": "110",  # of tables that commands print
            "TQDM_DISABLE": "1",  # loading a model takes no time worth a bar
            "PYTHONWARNINGS": "ignore:IProgress",  # of bars as widgets
            **dict.fromkeys(("DIFFUSERS_VERBOSITY", "TRANSFORMERS_VERBOSITY"), "error"),
        }
        work = Path(folder) / "work"
        work.mkdir()
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            coalesce_streams=True,
            resources={"metadata": {"path": str(work)}},
        )
        before = _cpu_seconds()
        client.execute(env=environment)
        _tidy(notebook, [f"{work.resolve()}/", f"{work}/", f"{ROOT}/"])
        return _cpu_seconds() - before


def _cpu_seconds() -> float:
    """Of all processes that have ended. Other work disturbs them less than wall time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _tidy(notebook: NotebookNode, folders: list[str]) -> None:
    """Remove what is of this machine or this moment; make pictures small."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if output.output_type == "stream":
                text = _CONTROL.sub("", output.text.replace("\r\n", "\n"))
                output.text = _relative(text, folders)
            output.get("data", {}).pop("image/jpeg", None)  # PIL gives it beside image/png
            for kind, content in output.get("data", {}).items():
                if kind == "image/png":
                    output.data[kind] = _smaller(content)
                elif isinstance(content, str):
                    small = _PICTURE.sub(lambda found: found[1] + _smaller(found[2]), content)
                    output.data[kind] = _relative(small, folders)


def _relative(text: str, folders: list[str]) -> str:
    for folder in folders:
        text = text.replace(folder, "")
    return text


def _smaller(png: str) -> str:
    """A PNG in base64, with a palette and at most as wide as a page."""
    image = Image.open(BytesIO(b64decode(png))).convert("RGB")
    if image.width > _WIDTH:
        image = image.resize((_WIDTH, round(image.height * _WIDTH / image.width)))
    written = BytesIO()
    image.quantize(_COLORS).save(written, "png", optimize=True)
    return b64encode(written.getvalue()).decode("ascii")


def write(name: str) -> float:
    """Execute a notebook and store it; returns the CPU seconds that it took."""
    notebook = source(name)
    seconds = execute(notebook)
    notebook.metadata["language_info"] = NotebookNode(name="python")  # without its version
    notebook.metadata["rlfactory"] = {"cpu_seconds": round(seconds)}
    nbformat.write(notebook, FOLDER / f"{name}.ipynb")
    return seconds


def main() -> int:
    """Write the notebooks that were named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ORDER))
    names = parser.parse_args().names or ORDER
    for name in names:
        seconds = write(name)
        size = (FOLDER / f"{name}.ipynb").stat().st_size
        print(f"{name}: {seconds:.0f} s, {size / 1000:.0f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
