"""The notebooks of docs/notebooks: each runs, and what is stored is whole, small and up to date."""

import importlib
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
DOCS = str(ROOT / "scripts" / "docs")
sys.path.insert(0, DOCS)
notebooks = importlib.import_module("notebooks")
sys.path.remove(DOCS)

LARGEST = 300_000  # bytes
IS = r"(?:=|\": )"
SMALLER = {
    # of a training, and the last one's number in names of files
    re.compile(rf"\b(iterations{IS}|00000)\d+"): 2,
    re.compile(rf"\b(group_size{IS})\d+"): 2,
    re.compile(rf"\b(prompts_per_iteration{IS})\d+"): 4,
    re.compile(r"(\bseed(?:s:| in) [\[(]0,) 1"): "",
    re.compile(rf"(\bevaluation(?:\.|=\{{\"|\": \{{\")prompts{IS}|\"grid\": )\d+"): 4,
}
"""What only makes a notebook longer: iterations, their prompts, samples of each, prompts of an
evaluation, and a second seed of each run; `seed=0,1` stays."""
OF_A_MACHINE = re.compile(r"/(?:root|home|tmp|Users|work|opt)/|/site-packages/|Traceback")


@pytest.mark.notebooks
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", notebooks.ORDER)
def test_it_runs(name: str) -> None:
    """Every cell, of which runs are made small."""
    notebook = notebooks.source(name)
    for cell in notebook.cells:
        for written, number in SMALLER.items():
            cell.source = written.sub(rf"\g<1>{number}", cell.source)
    notebooks.execute(notebook)


def test_every_notebook_is_listed() -> None:
    assert {path.stem for path in notebooks.FOLDER.glob("*.py")} == {*notebooks.ORDER}
    assert {path.stem for path in notebooks.FOLDER.glob("*.ipynb")} == {*notebooks.ORDER}


def test_every_notebook_is_in_the_table_of_the_index() -> None:
    index = (notebooks.FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(f"| [{stored_title(name)}]({name}.ipynb) | " in index for name in notebooks.ORDER)


def stored_title(name: str) -> str:
    first: str = notebooks.stored(name).cells[0].source
    return first.splitlines()[0].removeprefix("# ")


@pytest.mark.parametrize("name", notebooks.ORDER)
def test_the_stored_cells_are_those_of_the_script(name: str) -> None:
    def cells(notebook: nbformat.NotebookNode) -> list[tuple[str, str]]:
        return [(cell.cell_type, cell.source) for cell in notebook.cells]

    assert cells(notebooks.stored(name)) == cells(notebooks.source(name)), (
        f"python scripts/docs/notebooks.py {name} writes it anew"
    )


@pytest.mark.parametrize("name", notebooks.ORDER)
def test_the_stored_notebook_is_whole(name: str) -> None:
    notebook = notebooks.stored(name)
    nbformat.validate(notebook)
    assert re.fullmatch(r"# \S.*\n\n\S.*", notebook.cells[0].source.split("\n\n\n")[0], re.DOTALL)
    assert (notebooks.FOLDER / f"{name}.ipynb").stat().st_size < LARGEST
    ran = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert ran == [*range(1, len(ran) + 1)]


@pytest.mark.parametrize("name", notebooks.ORDER)
def test_no_output_is_an_error_or_of_one_machine(name: str) -> None:
    outputs = [o for cell in notebooks.stored(name).cells for o in cell.get("outputs", [])]
    kinds = {"stream", "display_data", "execute_result"}
    assert {output.output_type for output in outputs} <= kinds
    texts = [o.text for o in outputs if o.output_type == "stream"]
    texts += [o.data[kind] for o in outputs for kind in o.get("data", {}) if "image" not in kind]
    found = [text[:200] for text in texts if OF_A_MACHINE.search(text) or "\x1b" in text]
    assert found == []


@pytest.mark.parametrize("name", notebooks.ORDER)
def test_every_relative_link_leads_somewhere(name: str) -> None:
    cells = [cell.source for cell in notebooks.source(name).cells if cell.cell_type == "markdown"]
    links = re.findall(r"\]\(([^)#]+)", "\n".join(cells))
    assert [link for link in links if not (notebooks.FOLDER / link).exists()] == []


def test_outputs_are_tidied() -> None:
    png = notebooks.b64encode((ROOT / "docs/images/curves.png").read_bytes()).decode()
    stream = nbformat.v4.new_output("stream", text="\x1b[1mat\x1b[0m /tmp/x/run\r\n")
    html = {"text/html": f'/tmp/x/run <img src="data:image/png;base64,{png}">'}
    shown = nbformat.v4.new_output("display_data", data=html)
    cell = nbformat.v4.new_code_cell("pass", outputs=[stream, shown])
    notebooks._tidy(nbformat.v4.new_notebook(cells=[cell]), ["/tmp/x/"])
    assert cell.outputs[0].text == "at run\n"
    assert cell.outputs[1].data["text/html"].startswith('run <img src="data:image/png;base64,iVBOR')
    assert len(cell.outputs[1].data["text/html"]) < len(png) / 2
