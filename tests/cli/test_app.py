"""The command: what it shows, what it refuses, and how fast."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlfactory import __version__
from rlfactory.cli import app
from rlfactory.config.problems import PlanError
from rlfactory.run.progress import Progress

Refused = Callable[..., str]
Command = Callable[..., subprocess.CompletedProcess[str]]

QUICK = [
    ["check"],
    ["list"],
    ["list", "algo"],
    ["explain", "optimizer.lr"],
    ["--help"],
    ["--version"],
    ["check", "algo=grpo", "algo.clip_rnage=1e-4"],
    ["check", "algo=ddpo", "advantage.buffer_size=15", "advantage.min_count=21"],
    ["--cfg", "job"],
]


@pytest.mark.slow
def test_quick_commands_import_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys, json\n"
        "from rlfactory import cli\n"
        "heavy = {'torch', 'diffusers', 'transformers', 'peft', 'datasets', 'wandb', 'scipy',"
        " 'numpy', 'matplotlib'}\n"
        "found = {}\n"
        "for line in sys.argv[1:]:\n"
        "    sys.argv = ['rlfactory', *line.split()]\n"
        "    try:\n        cli.main()\n"
        "    except SystemExit:\n        pass\n"
        "    found[line] = sorted(heavy & set(sys.modules))\n"
        "print(json.dumps(found))\n"
    )
    lines = [" ".join(words) for words in QUICK]
    source = str(Path(app.__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-c", script, *lines],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout.splitlines()[-1]) == dict.fromkeys(lines, [])


def test_a_command_in_a_notebooks_cell_has_no_live_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["rlfactory", "--version"])
    monkeypatch.setenv("TERM", "xterm-color")
    monkeypatch.setenv("TTY_COMPATIBLE", "")
    terminal = io.StringIO()
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    for parent, is_live in ("", True), ("1", False):
        monkeypatch.setenv("JPY_PARENT_PID", parent)
        with pytest.raises(SystemExit):
            app.main()
        assert Progress(1, stream=terminal).is_live == is_live


@pytest.mark.slow
def test_version_and_help(command: Command) -> None:
    assert command("--version").stdout == f"{__version__}\n"
    shown = command("--help")
    assert shown.returncode == 0
    for word in ("algo", "grpo", "nft", "tiny_gpt2", "rlfactory check", "-m algo=grpo,nft"):
        assert word in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 110


def test_check_shows_choices_arithmetic_and_folder(here: Command, tmp_path: Path) -> None:
    shown = here("check", "algo=grpo", "group_size=6", "run_dir=here")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split(maxsplit=1) for line in shown.stdout.splitlines()]
    assert ["algo", "grpo"] in lines
    assert ["dynamics", "flow_sde"] in lines
    assert ["samples", "8 groups x 6 = 48 an iteration, 24 an update"] in lines
    assert shown.stdout.splitlines()[-1].split() == ["run", "folder", "here"]
    assert all(line == line.rstrip() for line in shown.stdout.splitlines())
    assert list(tmp_path.iterdir()) == [], "a check writes nothing"


def test_the_plan_names_what_is_combined(here: Command) -> None:
    words = ["reward=[shapes,incompressibility]", "logger=[jsonl,tensorboard]"]
    lines = [line.split(maxsplit=1) for line in here("check", *words).stdout.splitlines()]
    assert ["reward", "combine: shapes, incompressibility"] in lines
    assert ["logger", "several: jsonl, tensorboard"] in lines


def test_the_issues_own_example(here: Command) -> None:
    shown = here("check", "algo=grpo", "algo.clip_rnage=1e-4")
    assert shown.returncode == 2
    assert shown.stdout == ""
    first, second = shown.stderr.splitlines()
    assert first.startswith("error: algo.clip_rnage: there is no such key")
    assert first.endswith("Did you mean algo.clip_range?")
    assert second == "    try: rlfactory check algo=grpo algo.clip_range=1e-4"


def test_cfg_job_prints_the_configuration(here: Command, tmp_path: Path) -> None:
    shown = here("--cfg", "job", "algo=grpo")
    assert shown.returncode == 0
    assert "_target_: rlfactory.algo.grpo.GRPO" in shown.stdout
    assert list(tmp_path.iterdir()) == []


REFUSALS = [
    (["reward=shpes"], "reward", "Did you mean shapes?", "reward=shapes"),
    (["model.path=./" + "n" * 300], "model.path", "", ""),
    (["prompts.path=./" + "n" * 300], "prompts.path", "", ""),
    (["model=nope"], "model", "no option nope", "rlfactory list model"),
    (["optimzer.lr=3"], "optimzer.lr", "Did you mean optimizer.lr?", "optimizer.lr=3"),
    (["sed=3"], "sed", "Did you mean seed?", "seed=3"),
    (["+sed=3"], "sed", "Did you mean seed?", "seed=3"),
    (["+algo.bta=1"], "algo.bta", "Did you mean algo.beta?", "algo.beta=1"),
    (["+evaluation.evry=1"], "evaluation.evry", "evaluation.every?", "evaluation.every=1"),
    (["optimizer.lr=abc"], "optimizer.lr", "is 'abc'; allowed is a number", ""),
    (["optimizer.lr=null"], "optimizer.lr", "is null; allowed is a number", ""),
    (["group_size=2.5"], "group_size", "is 2.5; allowed is a whole number >= 1", ""),
    (["group_size=true"], "group_size", "is True; allowed is a whole number", ""),
    (["iterations=0"], "iterations", "is 0; allowed is a whole number >= 1", ""),
    (["max_failed=1.5"], "max_failed", "allowed is a number >= 0 and <= 1", ""),
    (["advantage.std=both"], "advantage.std", "allowed is group | global | none", ""),
    (["+advantage.weights.shapes=a"], "advantage.weights", "a mapping of text, each a number", ""),
    (["advantage.weights={}"], "advantage.weights", "no score a weight", "advantage.weights=null"),
    (["ema.decay=1"], "ema.decay", "is 1; allowed is a number >= 0 and < 1", ""),
    (["old.schedule=nft_3"], "old.schedule", "nft_0 | nft_1 | nft_2", ""),
    (["algo.old_decay=nft_2"], "algo.old_decay", "there is no such key", ""),
    (["evaluation=3"], "evaluation", "allowed is a mapping", ""),
    (["algo=grpo", "group_size=1"], "group_size", "allowed are 2 or more", "group_size=4"),
    (["algo=nft", "group_size=1"], "group_size", "allowed are 2 or more", "group_size=4"),
    (["updates_per_iteration=7"], "updates_per_iteration", "nearest are 4, 6, 8", ""),
    (["algo=grpo", "dynamics=ode"], "dynamics", "likelihood", "dynamics=flow_sde"),
    (["algo=nft", "regularizer=kl_gaussian"], "regularizer", "keeps none", "regularizer=kl_v"),
    (["algo=nft", "regularizer=kl_x"], "regularizer", "keeps none", "regularizer=kl_v"),
    (["model.path=/no/where"], "model.path", "does not exist", "model.path=zoo:tiny_sd3"),
    (["model.path=zoo:none"], "model.path", "does not ship", "model.path=zoo:tiny_sd3"),
    (["prompts=file"], "prompts.path", "type prompts.path=VALUE", ""),
    (["prompts=file", "prompts.path=no.txt"], "prompts.path", "there is no no.txt", ""),
    (["seed=1,2"], "seed", "several values", "rlfactory check -m seed=1,2"),
    (["algo=grpo,nft"], "algo", "several values", "rlfactory check -m algo=grpo,nft"),
    (["+reward=shapes"], "reward", "chosen already", "reward=shapes"),
    (["+experiment=smoke"], "experiment", "chosen already", "experiment=smoke"),
    (["reward@x=shapes"], "reward", "@", "reward=shapes"),
    (["reward=null"], "reward", "needs an option", "rlfactory list reward"),
    (["engine="], "engine", "needs an option", "rlfactory list engine"),
    (["~reward"], "reward", "has no _target_", ""),
    (["+seed=3"], "seed", "exists already", "seed=3"),
    (["algo=grpo,"], "algo", "can't be read", "algo=grpo"),
    (["run_dir=[a"], "run_dir", "can't be read", ""),
    (["run_dir=a{b"], "run_dir", "with quotes around", "'a{b'"),
    (["=3"], "=3", "names no key", ""),
    (["reward._target_=os.system"], "reward._target_", "outside the packages", ""),
    (
        ["reward._target_=json.JSONDecoder"],
        "reward._target_",
        "outside the packages",
        "trust=[json]",
    ),
    (
        ["reward._target_=rlfactory.reward.nope.X"],
        "reward._target_",
        "no module rlfactory.reward.nope",
        "",
    ),
    (
        ["reward._target_=rlfactory.config.schema.targets.locate"],
        "reward._target_",
        "trust opens none of our own package",
        "",
    ),
    (["optimizer.lr=-1"], "optimizer.lr", "allowed is a number > 0", "optimizer.lr=1e-4"),
    (["optimizer.betas=[0.9]"], "optimizer.betas", "two numbers >= 0 and < 1", "[0.9,0.999]"),
    (["optimizer.weight_decay=-1"], "optimizer.weight_decay", "a number >= 0", "=0"),
    (["model.lora_rank=${nope}"], "model.lora_rank", "'nope' not found", ""),
]
SD = ["model=sd14", "model.path=owner/name"]
CROSSED = [
    *(
        ([f"algo={algo}", "dynamics=ode"], "dynamics", "have none", "dynamics=flow_sde")
        for algo in ("ddpo", "ddpo_sf", "grpo_guard", "flow_dppo")
    ),
    *(
        (["algo=grpo", f"dynamics={solver}"], "dynamics", "have none", "dynamics=flow_sde")
        for solver in ("dpm_solver", "sa_solver")
    ),
    ([*SD, "algo=ddpo", "dynamics=ode"], "dynamics", "have none", "dynamics=ddim"),
    *(
        (["algo=grpo_guard", f"dynamics={sde}"], "dynamics", "flow_sde alone", "dynamics=flow_sde")
        for sde in ("dance_sde", "cps")
    ),
    ([*SD, "algo=grpo_guard", "dynamics=ddim"], "algo", "flow_sde alone", "algo=ddpo"),
    ([*SD, "algo=grpo", "dynamics=flow_sde"], "dynamics", "model's is vp", "dynamics=ddim"),
    (["algo=grpo", "dynamics=ddim"], "dynamics", "model's is flow", "dynamics=flow_sde"),
    (["schedule=leading"], "schedule", "model's is flow", "schedule=uniform"),
    (["times=rollout", "times.count=11"], "times.count", "10", "times.count=10"),
    (["times=discrete", "times.count=10"], "times.count", "9", "times.count=9"),
    (
        ["algo=ddpo_sf", "updates_per_iteration=2"],
        "updates_per_iteration",
        "is not on-policy",
        "updates_per_iteration=1",
    ),
    (["algo=nft", "branches=4"], "branches", "are the same", "branches=1"),
    (["algo=grpo", "branches=3"], "branches", "does not divide a group of 16", "group_size=18"),
    (
        ["algo=nft", "regularizer=kl_behaviour", "regularizer.compare=surrogate"],
        "regularizer.compare",
        "has no surrogate",
        "compare=prediction",
    ),
    (["old.decay=1"], "old.decay", "is 1; allowed is a number >= 0 and < 1", ""),
    (["old.decay=-0.1"], "old.decay", "is -0.1; allowed is a number >= 0 and < 1", ""),
    (["ema.initial=1.0"], "ema.initial", "is 1.0; allowed is a number >= 0 and < 1", ""),
    (["algo=awm", "algo.weighting=t3"], "algo.weighting", "uniform | t | t2 | huber | ghuber", ""),
    (["algo=vgrpo", "algo.clip_range=0"], "algo.clip_range", "a number > 0", ""),
]
WINDOWS = [
    (["window=fixed", "window.steps=[3,12]"], "window.steps", "[12] lie outside the 10 steps"),
    (["window=fixed", "window.steps=[]"], "window.steps", "is empty"),
    (["window=random_subset", "window.size=11"], "window.size", "steps 0 to 9 are 10"),
    (["window=random_subset", "window.low=9"], "window.size", "steps 9 to 9 are 1"),
    (["window=random_subset", "window.low=10"], "window.low", "steps to choose from end at 9"),
    (["window=random_contiguous", "window.high=11"], "window.high", "there are 10 steps"),
    (["window=all", "window.skip_last=10"], "window.skip_last", "skips 10 of 10 steps"),
    (["window=fixed", "schedule.steps=2"], "window.steps", "[2] lie outside the 2 steps"),
]


@pytest.mark.parametrize(("words", "key", "said", "remedy"), [*REFUSALS, *CROSSED], ids=str)
def test_bad_input_is_one_clear_error(
    refused: Refused, words: list[str], key: str, said: str, remedy: str
) -> None:
    shown = refused("check", *words)
    assert shown.count("error:") == 1, shown
    assert shown.startswith(f"error: {key}: ")
    assert said in shown
    if remedy:
        assert remedy in shown.splitlines()[-1]
        assert shown.splitlines()[-1].startswith("    try: rlfactory")


@pytest.mark.parametrize(("words", "key", "said"), WINDOWS, ids=str)
def test_windows_lie_within_the_steps(
    refused: Refused, words: list[str], key: str, said: str
) -> None:
    shown = refused("check", "algo=grpo", *words)
    assert shown.count("error:") == 1
    assert shown.startswith(f"error: {key}: ")
    assert said in shown


IN_FOLDERS = [
    (["run_dir=" + "n" * 300], "run_dir", "File name too long"),
    (["prompt_cache=file/below"], "prompt_cache", "is a file"),
    (
        ["prompts=file", "prompts.path=bad.jsonl", "reward=compressibility"],
        "prompts.path",
        "bad.jsonl:2: not JSON",
    ),
    (
        ["prompts=file", "prompts.path=names.jsonl", "reward=compressibility"],
        "prompts.column",
        "names.jsonl has no column prompt; it has title",
    ),
    (
        ["prompts=file", "prompts.path=odd.jsonl", "reward=compressibility"],
        "prompts.path",
        "odd.jsonl:2: `prompt` must be a text",
    ),
    (["prompts=file", "prompts.path=file", "reward=compressibility"], "prompts.path", ".jsonl"),
    (["-cd", "mine", "reward=seven"], "configuration", "holds no mapping"),
    (["-cd", "mine", "reward=open"], "configuration", "can't be read"),
    (["memory._target_=os.system"], "memory._target_", "outside the packages"),
    (["~dynamics._target_"], "dynamics", "has no _target_"),
    (["optimizer.betas=[" + "1," * 5000 + "1]"], "optimizer.betas", "10,019 characters"),
    (["stop.reward=nan"], "stop.reward", "is nan; allowed is a number"),
    (["max_grad_norm=1e400"], "max_grad_norm", "is inf; allowed is a number > 0, and finite"),
]


@pytest.mark.parametrize(("words", "key", "said"), IN_FOLDERS, ids=lambda x: str(x)[:60])
def test_what_lies_where_it_is_typed(
    refused: Refused, tmp_path: Path, words: list[str], key: str, said: str
) -> None:
    (tmp_path / "mine" / "reward").mkdir(parents=True)
    for name, text in {
        "file": "a red circle",
        "bad.jsonl": '{"prompt": "a"}\n{"prompt":',
        "names.jsonl": '{"title": "a"}',
        "odd.jsonl": '{"prompt": "a"}\n{"prompt": 3}',
        "mine/reward/seven.yaml": "7",
        "mine/reward/open.yaml": "reward: [",
    }.items():
        (tmp_path / name).write_text(text)
    shown = refused("check", *words)
    assert shown.startswith(f"error: {key}: ")
    assert said in shown
    assert shown.count("error:") == 1


def test_a_run_with_an_impossible_name_is_none(refused: Refused) -> None:
    assert "is no run folder" in refused("resume", "n" * 300)
    assert "neither a command" in refused("-m", "seed=1,2", "iterations")


def test_all_problems_at_once(refused: Refused) -> None:
    shown = refused(
        "check", "optimizer.lr=abc", "optimzer.lr=3", "group_size=0", "algo=grpo", "dynamics=ode"
    )
    keys = [line.split(":")[1].strip() for line in shown.splitlines() if "error" in line]
    assert sorted(keys) == ["dynamics", "group_size", "optimizer.lr", "optimzer.lr"]


def test_a_bad_choice_hides_no_other_mistake_and_makes_none(refused: Refused) -> None:
    shown = refused("check", "algo=gpro", "algo.clip_range=3", "seed=-1")
    assert [line for line in shown.splitlines() if "error" in line][1].startswith("error: seed")
    assert shown.count("error:") == 2


@pytest.mark.parametrize(("name", "content"), [("empty.txt", b" \n"), ("latin.txt", b"caf\xe9\n")])
def test_prompt_files_are_text(refused: Refused, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    shown = refused("check", "prompts=file", "reward=compressibility", f"prompts.path={name}")
    assert ("is empty" if name == "empty.txt" else "latin.txt:1: not UTF-8") in shown


def test_a_folder_that_is_no_pipeline(refused: Refused, tmp_path: Path) -> None:
    assert "holds no model_index.json" in refused("check", f"model.path={tmp_path}")


def test_a_used_run_folder_stays_as_it_is(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "config.yaml").write_text("mine")
    assert "run_dir" in refused("run_dir=used")
    assert "type run_dir=used_2" in refused("check", "run_dir=used")
    assert (tmp_path / "used" / "config.yaml").read_text() == "mine"
    (tmp_path / "file").write_text("mine")
    assert "run_dir" in refused("run_dir=file/below")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chekc"], "rlfactory check"),
        (["list", "modle"], "rlfactory list model"),
        (["explain"], "rlfactory explain optimizer.lr"),
        (["explain", "optimizer.rl"], "there is no such key"),
        (["explain", "seed", "algo=nope"], "there is no option nope"),
        (["evaluate"], "rlfactory evaluate RUN"),
        (["evaluate", "nowhere"], "is no run folder"),
        (["evaluate", "run/checkpoints/step_000001"], "a checkpoint; run takes the newest"),
        (["compare", "nowhere", "nowhere"], "nowhere: is not a run folder\n"),
        (["evaluate", "broken"], "can't be read"),
        (["evaluate", "bare"], "holds no configuration"),
        (["sample", "nowhere", "--prompt", "x"], "is no run folder"),
        (["-cd"], "names no folder"),
        (["check", "-cd", "nowhere"], "there is no folder"),
    ],
    ids=str,
)
def test_commands_say_what_they_need(
    refused: Refused, tmp_path: Path, words: list[str], said: str
) -> None:
    for name, content in (("broken", "a: ["), ("bare", "7")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(content)
    assert said in refused(*words)


def test_lines_without_metadata_do_not_suit_every_reward(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("a red circle\n")
    assert "reads include of each prompt" in refused(
        "check", "prompts=file", "prompts.path=some.txt"
    )


def test_another_optimiser_brings_its_own_keys(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["optimizer._target_=torch.optim.SGD", "+optimizer.momentum=0.9"]
    assert app.dispatch(["check", *words]) == 0
    with pytest.raises(PlanError) as refused:
        app.dispatch(["check", *words, "+optimizer.nesterow=true"])
    assert [p.fix for p in refused.value.problems] == ["optimizer.nesterov"]


def test_tilde_is_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for word in ("run_dir=~/run", "run_dir='~/run'"):
        assert app.dispatch(["check", word]) == 0
        assert capsys.readouterr().out.splitlines()[-1].endswith(f" {tmp_path}/run")


def test_experiments_and_hydras_own_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.dispatch(["list", "experiment"]) == 0
    assert "smoke" in capsys.readouterr().out
    assert app.dispatch(["check", "experiment=smoke"]) == 0
    assert "2 groups x 4 = 8" in capsys.readouterr().out
    assert app.dispatch(["check", "experiment=null"]) == 0
    assert "8 groups x 12 = 96" in capsys.readouterr().out
    with pytest.raises(PlanError, match="is not read"):
        app.dispatch(["check", "hydra.verbose=true"])


def test_a_reader_that_leaves_makes_no_noise(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", "rlfactory.cli", "list"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(app.__file__).parents[2])},
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_interruption_has_the_shells_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "dispatch", interrupted)
    with pytest.raises(SystemExit) as stopped:
        app.main()
    assert stopped.value.code == 130


def test_one_more_interruption_as_the_process_ends_prints_nothing() -> None:
    script = (
        "import atexit, os, signal\n"
        "from rlfactory.cli import app\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def dispatch(argv):\n"
        "    atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "    raise KeyboardInterrupt\n"
        "app.dispatch = dispatch\n"
        "app.main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_import_that_is_interrupted_ends_the_command(tmp_path: Path) -> None:
    """Libraries turn the exception into one of their own, and finalizers drop it."""
    (tmp_path / "library.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "except KeyboardInterrupt:\n"
        "    raise ModuleNotFoundError('is it installed?')\n"
    )
    script = (
        "import signal\n"
        "from importlib import import_module\n"
        "from rlfactory.cli import app\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "app.dispatch = lambda argv: import_module('library')\n"
        "app.main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{Path(app.__file__).parents[2]}"},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_a_current_folder_that_was_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    gone.rmdir()
    with pytest.raises(SystemExit):
        app.main()
    assert "error: the current folder was removed" in capsys.readouterr().err


def test_a_terminal_without_a_character_shows_its_escape(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rlfactory.cli", "--cfg", "job", "run_dir='größe'"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert rb"gr\xf6\xdfe" in done.stdout
