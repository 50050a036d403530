"""What somebody sent executes nothing: run folders, folders of options, sweeps, models, weights;
and what they contain is text wherever it is shown.

Each input would make a file, `executed`, if its code ran.
"""

import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlfactory.cli import app
from rlfactory.cli.resume import create_run
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.config.user_code import names_in
from rlfactory.config.words import typed_value
from rlfactory.model.lm.loading import load_language_model, load_tokenizer
from rlfactory.model.pipelines.pipeline_loading import require_known_libraries
from rlfactory.reward.backbones.pretrained import read_weights
from rlfactory.run.checkpoint.checksums import write_manifest
from rlfactory.run.checkpoint.load import load_checkpoint, load_optimizer
from rlfactory.run.folder import RunFolder, RunFolderError
from rlfactory.train.process.begun_code import records
from rlfactory.train.process.worker import read_config
from rlfactory.utils.current_folder import TRUST, trust_names, trusted_names
from rlfactory.utils.errors import UserError

CODE = (
    "from pathlib import Path\nPath({mark!r}).touch()\n\n\n"
    "class Evil:\n    def __init__(self, **_):\n        Path({mark!r}).touch()\n\n\n"
    "def score(*_, **__):\n    return [1.0]\n"
)
TOUCH = "!!python/object/apply:os.system ['touch {mark}']"
BASE = ("model=tiny_gpt2", "algo=rloo", "reward=length", "dynamics.length=4")
Change = Callable[[Path, dict[str, Any]], None]


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder as a command makes it."""
    path = tmp_path_factory.mktemp("sent") / "run"
    create_run(plan_from_words(*BASE, f"run_dir={path}"), "rlfactory")
    return path


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which the user stands, with a module of the sender's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLFACTORY_TRUST", "")
    monkeypatch.setenv("SECRET", "sesame")
    monkeypatch.setattr(sys, "path", [*sys.path])
    mark = str(tmp_path / "executed")
    for name in ("evil.py", "evil_too.py"):
        (tmp_path / name).write_text(CODE.format(mark=mark))
    yield tmp_path
    assert not (tmp_path / "executed").exists()
    sys.modules.pop("evil", None)


def reward(**node: Any) -> Change:
    return lambda run, config: config.update(reward=node)


def function(spec: str, **more: Any) -> Change:
    def change(run: Path, config: dict[str, Any]) -> None:
        target = "rlfactory.reward.function.Function"
        config["reward"] = {"_target_": target, "function": spec, "timeout": 9.0}
        config.update(more)

    return change


def copy_of_function(run: Path, config: dict[str, Any]) -> None:
    """The folder's own copy is read where the file is gone."""
    function("/gone/evil.py:score")(run, config)
    (run / "inputs").mkdir()
    shutil.copy("evil.py", run / "inputs" / "reward.function.py")
    entry = {"original": "/gone/evil.py", "copy": "reward.function.py", "sha256": "0"}
    (run / "inputs" / "index.json").write_text(json.dumps({"reward.function": entry}))


def moved_function(run: Path, config: dict[str, Any]) -> None:
    function("rlfactory.reward.length:missing")(run, config)
    (run / "inputs").mkdir()
    moved = {"reward.function": str(Path("evil.py").resolve()) + ":score"}
    (run / "inputs" / "moved.json").write_text(json.dumps(moved))


def code_of_another_run(run: Path, config: dict[str, Any]) -> None:
    """Beside a run of the user's, which named other code."""
    words = [*BASE[:2], "reward=function", "reward.function=mine.py:score"]
    Path("mine.py").write_text("def score(prompts, completions):\n    return [1.0]\n")
    create_run(plan_from_words(*words, f"run_dir={run.with_name('other')}"), "rlfactory")
    function("evil.py:score")(run, config)


EVIL = {"_target_": "evil.Evil"}
RUNS: dict[str, Change] = {
    "target that the folder trusts": lambda run, c: c.update(reward=EVIL, trust=["evil"]),
    "target": reward(**EVIL),
    "logger": lambda run, c: c.update(logger=EVIL, trust=["evil"]),
    "optimizer": lambda run, c: c.update(optimizer=EVIL, trust=["evil"]),
    "prompts": lambda run, c: c.update(prompts=EVIL, trust=["evil"]),
    "function of a file": function("evil.py:score"),
    "function of a module": function("evil:score"),
    "function of the standard library": function("os:system"),
    "function that the folder trusts": function("evil.py:score", trust=["evil.py", "evil"]),
    "copy of a function": copy_of_function,
    "moved function": moved_function,
    "nested target": lambda run, c: c["eval_rewards"].update(of=["x"], parts={"x": EVIL}),
    "os.system": lambda run, c: c.update(reward={"_target_": "os.system"}, trust=["os"]),
    "eval": lambda run, c: c.update(reward={"_target_": "builtins.eval"}, trust=["builtins"]),
    "our own function": reward(_target_="rlfactory.config.schema.targets.instantiate"),
    "our own class": lambda run, c: c.update(
        reward={"_target_": "rlfactory.run.folder.RunFolder"}, trust=["rlfactory"]
    ),
    "subprocess": lambda run, c: c.update(
        reward={"_target_": "subprocess.Popen", "args": ["touch", "executed"]}, trust=["subprocess"]
    ),
    "code of another run": code_of_another_run,
}
COMMANDS = (
    ["resume", "RUN"],
    ["verify", "RUN"],
    ["evaluate", "RUN"],
    ["sample", "RUN", "--prompt", "x"],
    ["export", "RUN", "--to", "out"],
    ["inspect", "RUN"],
    ["sync", "RUN", "logger=tensorboard"],
)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_folder_executes_nothing(name: str, place: Path, sent: Path) -> None:
    run = Path(shutil.copytree(sent, place / "run"))
    content = yaml.safe_load((run / "config.yaml").read_text())
    RUNS[name](run, content)
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    for command in COMMANDS:
        with pytest.raises(PlanError):
            app.dispatch([str(run) if word == "RUN" else word for word in command])
    with pytest.raises(RunFolderError):
        read_config(RunFolder(run))  # as ranks and the Python interface do


@pytest.mark.parametrize("file", ["config.yaml", "STATUS"])
def test_a_run_folder_with_tags_of_python_executes_nothing(
    file: str, place: Path, sent: Path
) -> None:
    run = Path(shutil.copytree(sent, place / "run"))
    (run / file).write_text(TOUCH.format(mark=place / "executed"))
    for command in COMMANDS[:2]:
        try:
            code = app.dispatch([str(run) if word == "RUN" else word for word in command])
        except (PlanError, RunFolderError):
            code = 2
        assert code != 0


def test_code_of_ones_own_runs_in_a_run_that_one_began(place: Path) -> None:
    Path("mine.py").write_text("def score(prompts, completions):\n    return [1.0]\n")
    words = [*BASE[:2], "reward=function", "reward.function=mine.py:score", "run_dir=own"]
    create_run(plan_from_words(*words), "rlfactory")
    assert read_config(RunFolder(Path("own")))["reward"]["function"].endswith("mine.py:score")
    assert {file.stat().st_mode & 0o777 for file in records().iterdir()} == {0o600}


def test_code_runs_that_the_command_or_the_settings_trust(
    place: Path, sent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Path(shutil.copytree(sent, place / "run"))
    content = yaml.safe_load((run / "config.yaml").read_text())
    file = str(place / "evil.py")
    function(f"{file}:score")(run, content)
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setenv("RLFACTORY_TRUST", file)
    assert read_config(RunFolder(run))["reward"]["function"] == f"{file}:score"


OPTIONS: dict[str, str] = {
    "trust": "trust: [evil]\nreward:\n  _target_: evil.Evil\n",
    "function": "reward:\n  _target_: rlfactory.reward.function.Function\n  function: evil:score\n",
    "file": "reward:\n  _target_: rlfactory.reward.function.Function\n  function: evil.py:score\n",
    "standard library": "trust: [os]\nreward:\n  _target_: os.system\n  command: touch executed\n",
    "target in parts": (
        "trust: [evil]\neval_rewards:\n  of: [x]\n  parts:\n    x: {_target_: evil.Evil}\n"
    ),
    "tag of Python": "seed: " + TOUCH.format(mark="executed") + "\n",
    "search path": "hydra:\n  searchpath: [pkg://evil]\nseed: ${nothing}\n",
    "secret": "run_dir: ${oc.env:SECRET}\n",
    "secret with a default": "run_dir: ${oc.env:SECRET,none}\n",
    "secret by another name": "a: env\nrun_dir: ${oc.${a}:SECRET}\n",
    "unknown resolver": "run_dir: ${evil:now}\n",
    "hydra's launcher": "defaults:\n  - override /hydra/launcher: evil\n",
    "hydra's callback": "hydra:\n  callbacks:\n    x: {_target_: evil.Evil}\nseed: ${nothing}\n",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_folder_of_options_executes_nothing(
    name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = place / "conf" / "experiment"
    folder.mkdir(parents=True)
    (folder / "x.yaml").write_text(f"# @package _global_\n{OPTIONS[name]}")
    words = ["check", "-cd", "conf", "model=tiny_gpt2", "experiment=x"]
    monkeypatch.setattr(sys, "argv", ["rlfactory", *words])
    with pytest.raises(SystemExit) as ended:
        app.main()
    assert ended.value.code == 2
    shown = capsys.readouterr()
    assert "sesame" not in shown.out + shown.err


@pytest.mark.parametrize("path", ["r.py", "/my code/r.py", "/a, b [c]/r.py", "/it's/r.py"])
def test_a_typed_path_of_code_is_trusted_whole(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    value = typed_value(f"{path}:score")
    words = [f"reward.function={value}", f"reward.of=[shapes,{value}]"]
    words.append(f"reward={{_target_:evil.Evil,function:{value}}}")
    for word in words:
        assert f"{os.path.realpath(path)}:score" in names_in([word]), word
    assert os.path.realpath(path) in names_in([f"trust={typed_value([path])}"])
    monkeypatch.setenv(TRUST, "")
    trust_names(["mine", f"{path}:score"])
    assert trusted_names() == {"mine", f"{path}:score"}


SWEEPS = {
    "function": (["reward=function", "reward.function=evil.py:score"], "code of its own"),
    "trust": (["reward._target_=evil.Evil", "trust=[evil]"], "code of its own"),
    "secret": (["begin_from='${oc.env:SECRET}'"], "environment variable SECRET"),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_executes_nothing(name: str, place: Path) -> None:
    words, said = SWEEPS[name]
    rows = [{"name": "x", "overrides": [*BASE[:2], *words]}]
    columns = {"score": {"label": "x", "full": "eval/score", "digits": 2}}
    about = {"title": "x", "paper": "x", "table": "x", "gpu_hours": None, "ran": "x"}
    about |= {"tolerance": "x"}
    sheet = {"about": about, "rows": rows, "columns": columns, "sizes": {"full": ["seed=0"]}}
    (place / "x.yaml").write_text(yaml.safe_dump(sheet))
    with pytest.raises(PlanError, match=said):
        app.dispatch(["sweep", "x.yaml", "--plan"])


def test_a_server_of_a_folder_of_options_executes_nothing(place: Path) -> None:
    (place / "conf" / "reward").mkdir(parents=True)
    (place / "conf" / "reward" / "x.yaml").write_text(f"# @package _global_\n{OPTIONS['file']}")
    with pytest.raises(PlanError, match="code of its own"):
        app.dispatch(["serve", "-cd", "conf", "reward=x", "port=0"])


class Bomb:
    """What pickle would call when it is loaded."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch executed",)


@pytest.mark.parametrize("name", ["reward.pt", "reward.bin", "reward.pth", "reward.safetensors"])
def test_weights_of_a_reward_are_not_unpickled(name: str, place: Path) -> None:
    Path(name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError):
        read_weights(name, key="reward.path")


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors"])
def test_a_checkpoint_is_not_unpickled(file: str, place: Path, linear: Any) -> None:
    folder = place / "step_000001"
    folder.mkdir()
    for name in ("weights.safetensors", "optimizer.safetensors"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    (folder / "state.json").write_text('{"optimizer": {"state": {}, "param_groups": []}}')
    write_manifest(folder, {})
    model = linear()
    load: Any = load_checkpoint if file == "weights.safetensors" else load_optimizer
    with pytest.raises(RunFolderError, match="can't be read"):
        load(folder, model)


@pytest.mark.parametrize("library", ["evil", "os", "evil.nested", ".", "subprocess"])
def test_components_of_a_pipeline_import_no_other_library(library: str, place: Path) -> None:
    index = {"_class_name": "StableDiffusion3Pipeline", "text_encoder": [library, "Evil"]}
    (place / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(UserError, match="is of"):
        require_known_libraries(place, "sent")


def test_code_beside_the_weights_of_a_language_model_is_not_run(
    place: Path, gpt2_folder: Path
) -> None:
    folder = Path(shutil.copytree(gpt2_folder, place / "model"))
    shutil.copy("evil.py", folder / "evil.py")
    for file in ("config.json", "tokenizer_config.json"):
        content = json.loads((folder / file).read_text())
        names = ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer")
        content["auto_map"] = {name: "evil.Evil" for name in names}
        content["model_type"] = "evil"
        (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError):
        load_language_model(str(folder))
    with suppress(UserError):
        load_tokenizer(str(folder), key="model.path")


def test_a_configuration_in_python_is_not_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = CODE.format(mark=str(place / "executed"))
    (place / "theirs.py").write_text(code + "\n\ndef get_config():\n    return Evil()\n")
    with suppress(PlanError):
        app.dispatch(["import", "theirs.py"])
