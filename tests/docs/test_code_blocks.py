"""Every code block of README and docs: commands are planned or parsed, snippets run.

A block in a language, or a line of a kind, that no test here knows fails: nothing escapes.
"""

import itertools
import json
import re
import runpy
import shlex
import shutil
import struct
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from rlfactory.cli import app, arguments
from rlfactory.config.problems import PlanError
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.report import command as report_commands
from rlfactory.sweep.sweep_file import file_of

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference" / "generated"
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(p for p in sorted((ROOT / "docs").rglob("*.md")) if not p.is_relative_to(GENERATED)),
]
BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
SHOWN = ("text", "json", "{toctree}", "{include} README.md", "{glossary}", "{eval-rst}")
"""Languages of blocks that nobody types; autodoc reads those of reStructuredText."""
ELSEWHERE = {
    "README.md": "tests/test_readme.py",
    **dict.fromkeys(("docs/python.md", "docs/guides/python_objects.md"), "tests/test_api.py"),
    **{
        f"docs/extend/{name}.md": "tests/test_extend.py"
        for name in (
            *("algorithm", "dynamics", "listener", "logger", "model", "prompts", "reward"),
            "text_algorithm",
        )
    },
}
"""Pages whose Python a test of its own runs; those of docs/extend, their commands too."""
NOT_RUN = {
    "docs/model/sd3.md": "tests/model/test_export.py loads these formats",
    "docs/guards.md": "tests/train/guards/test_failure_dump.py reads these files",
    "docs/migrating/trl.md": "names objects of the reader; docs/python.md runs this call",
}
MADE = {"docs/guides/reward_models.md": ("sft/checkpoints/step_000030", "rm")}
"""What earlier commands of a page make; a small language model stands in for each."""
SMALL = {
    "iterations=10": "iterations=1",
    'run_dir="redness_in_python",': 'run_dir="r", group_size=2, evaluation={"prompts": 2},',
    "iterations=10, prompts_per_iteration=2)": (
        'iterations=1, prompts_per_iteration=2, group_size=2, evaluation={"prompts": 2})'
    ),
}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        return self.page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, m[2].strip(), m[3]) for m in BLOCK.finditer(text)]


ALL = [block for page in PAGES for block in blocks(page)]


def typed_lines(block: Block) -> list[str]:
    """The lines of a shell block, continued ones joined."""
    joined = block.text.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.strip()]


def commands(block: Block) -> list[str]:
    """What a block tells one to type."""
    if block.language == "console":
        return [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
    return typed_lines(block) if block.language == "bash" else []


LINES = {
    line.split("  #")[0].strip(): b.name  # a line of several pages is one
    for b in ALL
    for line in commands(b)
    if not (b.name.startswith("docs/extend/") and b.name in ELSEWHERE)
}
REFUSED = {
    line.split("  #")[0].strip()
    for b in ALL
    for line in commands(b)
    if line.rstrip().endswith("# refused") or b.language == "console" and "error:" in b.text
}


@pytest.mark.parametrize("page", sorted({b.name for b in ALL}))
def test_blocks_are_of_a_known_language(page: str) -> None:
    for block in (b for b in ALL if b.name == page):
        if block.language == "":
            first = block.text.split()[0]
            assert first not in {"rlfactory", "python", "pytest", "pip"}, "a command is ```bash"
        elif block.language.startswith(("{code", "{grid")):
            pytest.fail(f"{page}: a directive with code that nothing tests")
        else:
            assert block.language in (*SHOWN, "bash", "console", "python", "yaml"), page


def files_of(page: str, folder: Path, command: str = "") -> None:
    """Write the files that a page shows, and run those lines that write one."""
    for block in (b for b in ALL if b.name == page):
        named = re.match(r"# ([\w/]+\.(?:py|yaml))", block.text)
        if named and block.language in ("python", "yaml"):
            path = folder / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        for line in commands(block):
            if line.startswith("printf "):
                subprocess.run(line, shell=True, cwd=folder, check=True)
            if line.startswith("python -c "):
                subprocess.run([sys.executable, *shlex.split(line)[1:]], cwd=folder, check=True)
            if line.startswith("python scripts/examples/"):
                to = line.split()[2]
                if not command or to in command:  # a command that reads none of it needs none
                    shutil.copytree(example(line).name, folder / to, dirs_exist_ok=True)
    for path in MADE.get(page, ()):
        if {f"run_dir={path.split('/')[0]}", path} & {*command.split()}:
            continue  # the command itself makes it
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).symlink_to(zoo_path("tiny_gpt2"))


@cache
def example(line: str) -> TemporaryDirectory[str]:
    """What a script of examples writes, for all commands that read it."""
    few = 6 if "image" in line else 60  # an image takes as long as a thousand texts
    script, _, *rest = re.sub(r"--count \d+", f"--count {few}", line).split()[1:]
    folder = TemporaryDirectory()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [script, folder.name, *rest])
        runpy.run_path(str(ROOT / script), run_name="__main__")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands in for /data: what pages assume that a reader has there."""
    folder = tmp_path_factory.mktemp("data")
    for name, shipped in {
        **{"my-sd1": "tiny_sd", "my-sd": "tiny_sd", "my-flux": "tiny_flux"},
        **{"my-lm": "tiny_gpt2", "sft": "tiny_gpt2", "rm": "tiny_gpt2"},
    }.items():
        (folder / name).symlink_to(zoo_path(shipped))
    ignored = shutil.ignore_patterns("*.safetensors")
    sd3 = Path(shutil.copytree(zoo_path("tiny_sd3"), folder / "my-sd3", ignore=ignored))
    for file in zoo_path("tiny_sd3").rglob("*.safetensors"):  # of no tensors: none is loaded
        (sd3 / file.relative_to(zoo_path("tiny_sd3"))).write_bytes(struct.pack("<Q", 2) + b"{}")
    config = sd3 / "transformer" / "config.json"
    large = json.loads(config.read_text()) | {"sample_size": 64, "pos_embed_max_size": 64}
    config.write_text(json.dumps(large))
    (folder / "queries.jsonl").write_text('{"query": "why"}\n' * 200)
    row = {"prompt": "a red circle", "include": [{"class": "circle", "color": "red", "count": 1}]}
    (folder / "test.jsonl").write_text(json.dumps(row | {"exclude": [], "tag": "colors"}) + "\n")
    for name in ("HPS_v2.1_compressed.pt", "sac+logos+ava1-l14-linearMSE.pth"):
        (folder / name).touch()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("line", "page"), sorted(LINES.items()))
def test_every_command_is_accepted(
    line: str, page: str, tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files_of(page, tmp_path, line)
    for command in parts(line):
        words = shlex.split(command.replace("/data/", f"{data}/"), comments=True)
        if line in REFUSED:
            with pytest.raises(PlanError):
                accept(words)
        elif words:
            accept(words)


def parts(line: str) -> list[str]:
    """The commands of a line, without what a shell sets up for them."""
    line = re.sub(r"^(?:\w+=\S+ |\$ )+", "", line)
    return [part.strip() for part in line.split(" && ")]


def accept(words: list[str]) -> None:
    """Plan or parse a command; any error says that it can't be typed."""
    program, *rest = words
    if program in ("torchrun", "srun"):
        start = words.index("rlfactory.cli.app" if program == "torchrun" else "rlfactory")
        accept_rlfactory(words[start + 1 :])
    elif program == "rlfactory":
        accept_rlfactory(rest)
    else:
        accept_program(program, rest)


def accept_rlfactory(words: list[str]) -> None:
    unsaid = ("...", "--force", "--take-over")
    words = [word for word in words if word not in unsaid]
    command, *rest = words or [""]
    with_flags = arguments.command_table()["flags"].keys() - {"import"}
    parsers = {
        **{name: partial(arguments.parsed, name) for name in with_flags},
        "report": report_commands.report_arguments,
        "compare": report_commands.compare_arguments,
    }
    if command in parsers:
        parsers[command]([word.strip("[].") for word in rest])  # [--out FOLDER], RUN...
    elif command in ("evaluate", "sync"):  # of a run of any kind: its keys are those of a plan
        plan([word for word in rest[1:] if "mode=" not in word])
    elif command == "serve":
        plan([word for word in rest if word.startswith("reward")])
    elif command in ("list", "explain"):
        assert app.dispatch(words) == 0
    elif command == "sweep" and "./mine.yaml" in rest:
        return  # a file of one's own: tests/sweep/test_sweep_file.py reads such
    elif command == "sweep" and rest[1:] == ["size=tiny"]:
        assert file_of(rest[0]).is_file()  # tests/sweeps plans each of its jobs
    elif command == "sweep":
        assert app.dispatch(words if len(words) == 1 else [*words, "--plan"]) == 0
    elif command in ("-m", "--multirun"):
        axes = [[f"{key}={v}" for v in values.split(",")] for key, values in map(pair, rest)]
        for chosen in itertools.product(*axes):
            plan(list(chosen))
    elif command in ("-sc", "--help", "--version", "--cfg", "import"):
        return  # tests/cli types these
    else:
        plan(rest if command in ("check", "estimate") else words)


def pair(word: str) -> tuple[str, str]:
    key, _, value = word.partition("=")
    return key, value


def plan(words: list[str]) -> None:
    if any(word.startswith("hardware.processes=") for word in words):
        words = [*words, "prompts_per_iteration=64"]  # any number of processes divides it
    assert app.dispatch(["check", *words]) == 0


def accept_program(program: str, rest: list[str]) -> None:
    """A program other than rlfactory: what it names exists."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = settings["project"]["optional-dependencies"]
    tools = {name: [re.split(r"\W", r)[0] for r in needs] for name, needs in extras.items()}
    if program in ("#!/bin/bash", "#SBATCH", "printf", "eval", "git", "cd", "."):
        return
    if program == "python" and rest[0] == "-c":
        return  # `files_of` runs it
    if program == "python" and rest[:2] != ["-m", "venv"]:
        program, *rest = rest
    if (ROOT / program).is_file() or program in ("bash", "python"):
        script = ROOT / (rest.pop(0) if program == "bash" else program)
        text = script.read_text(encoding="utf-8") if script.is_file() else "venv"
        flags = [word for word in rest if word.startswith("--")]
        assert all(flag in text or flag[2:].replace("-", "_") in text for flag in flags)
    elif program == "pip":
        named = [extra for word in rest for extra in re.findall(r"\[(\w+)\]", word)]
        assert rest[0] == "install"
        assert set(named) <= extras.keys()
    elif program == "pytest":
        markers = [m.split(":")[0] for m in settings["tool"]["pytest"]["ini_options"]["markers"]]
        chosen = rest[rest.index("-m") + 1] if "-m" in rest else ""
        assert all(name in markers for name in re.split(r" or | and |not ", chosen) if name)
        assert all((ROOT / word).exists() for word in rest if word.startswith("tests/"))
    else:
        known = {"lint-imports": "import", "sphinx-build": "sphinx", "pre-commit": "pre-commit"}
        tool = known.get(program, program)
        assert tool in {"pre-commit", *itertools.chain(*tools.values())}, f"unknown: {program}"


PYTHON_PAGES = sorted({b.name for b in ALL if b.language == "python"} - {*ELSEWHERE})


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON_PAGES)
def test_the_snippets_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippets = [b.text for b in ALL if b.name == page and b.language == "python"]
    monkeypatch.chdir(tmp_path)
    files_of(page, tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for snippet in snippets:
        for long, short in SMALL.items():
            snippet = snippet.replace(long, short)
        code = compile(snippet, page, "exec")
        if page not in NOT_RUN:
            exec(code, names)


def test_no_page_is_excused_without_need() -> None:
    assert {*NOT_RUN} | {*ELSEWHERE} <= {b.name for b in ALL if b.language == "python"}
    assert all((ROOT / path.split()[0]).is_file() for path in ELSEWHERE.values())


def test_configurations_are_read() -> None:
    for block in (b for b in ALL if b.language == "yaml"):
        assert isinstance(yaml.safe_load(block.text), dict), block.name
