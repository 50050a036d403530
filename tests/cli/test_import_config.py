"""`rlfactory import FILE`."""

import shlex
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

from rlfactory.config.overrides import compose, plan_composed

Command = Callable[..., CompletedProcess[str]]


def test_the_printed_command_is_planned(here: Command, tmp_path: Path) -> None:
    (tmp_path / "grpo.yaml").write_text("num_generations: 4\nper_device_train_batch_size: 8\n")
    shown = here("import", "grpo.yaml", "--gpus", "2")
    assert shown.returncode == 0, shown.stderr
    lines = [line for line in shown.stdout.splitlines() if line and not line.startswith("#")]
    words = shlex.split(" ".join(lines).replace("\\ ", ""))
    assert words[0] == "rlfactory"
    assert plan_composed(compose(words[1:])).config["prompts_per_iteration"] == 4


def test_files_typed_as_words_are_answered(here: Command) -> None:
    for words in (["ff.yaml"], ["check", "--config=dgx.py:get_config"], ["train", "ff.yaml"]):
        shown = here(*words)
        assert shown.returncode == 2
        assert "try: rlfactory import" in shown.stderr


def test_without_a_file_it_says_what_it_needs(here: Command) -> None:
    shown = here("import", "nowhere.yaml")
    assert shown.returncode == 2
    assert "there is no file nowhere.yaml" in shown.stderr
