"""Standing in a folder that somebody sent: no file there runs but what a command names."""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
SHADOWED = (
    *("attr", "attrs", "yaml", "rich", "hydra", "omegaconf", "antlr4", "numpy", "torch", "jinja2"),
    *("json", "random", "socket", "tempfile", "string", "typing_extensions", "setuptools", "tomli"),
    *("requests", "IPython", "pandas", "wandb", "tensorboard", "psutil", "bitsandbytes", "triton"),
    *("sitecustomize", "usercustomize", "readline", "encodings_extra", "org", "colorama", "dotenv"),
)
PACKAGES = ("hydra_plugins", "hydra_plugins_extra", "mypackage", "google", "transformers_modules")
EVIL = "from pathlib import Path\nPath({marks!r}, {name!r}).touch()\n"
STARTS: dict[str, Sequence[str]] = {
    "console script": ("-c", "import sys; from rlfactory.cli import main; main()"),
    "python -m rlfactory": ("-m", "rlfactory"),
    "python -m rlfactory.cli": ("-m", "rlfactory.cli"),
}
WORDS = {
    "check": ("check", "algo=grpo"),
    "list": ("list", "reward"),
    "completion": ("-sc", "install=bash"),
    "multirun": ("check", "-m", "seed=0,1"),
}


def plant(folder: Path, marks: Path) -> None:
    """Files and packages that note that they have run, and a package's metadata with our entry."""
    for name in SHADOWED:
        text = EVIL.format(marks=str(marks), name=name)
        (folder / f"{name}.py").write_text(text)
    for name in PACKAGES:
        (folder / name).mkdir()
        for file in ("__init__", "evil_launcher", "conf"):
            text = EVIL.format(marks=str(marks), name=name)
            # without `__init__` a folder is part of a namespace, as Hydra's plug-ins are
            if file != "__init__" or name != "hydra_plugins":
                (folder / name / f"{file}.py").write_text(text)
    info = folder / "mypackage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rlfactory.conf]\nmine = mypackage.conf\n[console_scripts]\nx = mypackage:main\n"
    )


def start(folder: Path, how: Sequence[str], words: Sequence[str]) -> subprocess.CompletedProcess:
    """Run a command in a folder, as its user would; without the entries of a developer's path."""
    # a script's own folder is first on the path, where `-c` has the current one
    safe = ["-P"] if how[0] == "-c" else []
    return subprocess.run(
        [sys.executable, *safe, *how, *words],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONSAFEPATH")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the planted files that ran, in any of the commands."""
    folder, marks = tmp_path_factory.mktemp("received"), tmp_path_factory.mktemp("marks")
    plant(folder, marks)
    cases = [
        *((how, WORDS["check"]) for how in STARTS.values()),
        *((STARTS["console script"], words) for words in WORDS.values()),
    ]
    with ThreadPoolExecutor(2) as pool:
        ended = [*pool.map(lambda case: start(folder, *case), cases)]
    for answer in ended:
        assert answer.returncode == 0, answer.stderr
    return {path.name for path in marks.iterdir()}


@pytest.mark.parametrize("name", [*SHADOWED, *PACKAGES])
def test_a_file_named_like_a_module_does_not_run(name: str, executed: set[str]) -> None:
    assert name not in executed


@pytest.mark.slow
@pytest.mark.parametrize("hardware", [pytest.param("cpu", marks=pytest.mark.whole), "ddp"])
def test_nor_do_they_in_a_run_and_its_processes(tmp_path: Path, hardware: str) -> None:
    folder, marks = tmp_path / "received", tmp_path / "marks"
    folder.mkdir()
    marks.mkdir()
    plant(folder, marks)
    words = [
        *(f"hardware={hardware}", "model=tiny_gpt2", "algo=rloo", "reward=length", "iterations=1"),
        *("dynamics.length=2", "prompts_per_iteration=2", "group_size=2", "evaluation.prompts=2"),
        *("evaluation.grid=2", "scoring.background=process", "run_dir=run"),
    ]
    if hardware == "ddp":
        words += ["hardware.processes=2", "hardware.device=cpu"]
    answer = start(folder, STARTS["python -m rlfactory"], words)
    assert answer.returncode == 0, answer.stderr
    assert not [*marks.iterdir()]


@pytest.mark.slow
def test_what_a_command_names_is_imported_with_its_siblings(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from helper import Base\n\n\nclass Mine(Base):\n    pass\n\n\n"
        "def length(prompts, completions):\n    return [1.0 for _ in completions]\n"
    )
    (tmp_path / "helper.py").write_text(
        "from rlfactory.reward.base import Reward\n\n\nclass Base(Reward):\n    pass\n"
    )
    code = (
        "import sys\n"
        "from rlfactory.utils.current_folder import leave_current_folder, trust_names\n"
        "leave_current_folder()\n"
        "def imported():\n"
        "    try:\n"
        "        import mine\n"
        "    except ImportError:\n"
        "        return False\n"
        "    return 'helper' in sys.modules\n"
        "assert not imported()\n"
        "trust_names(['mine'])\n"
        "assert imported()\n"
    )
    answer = start(tmp_path, ("-c", code), ())
    assert answer.returncode == 0, answer.stderr
