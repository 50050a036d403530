"""The small runs whose folders are damaged: one of images, one of texts, and a sweep of two."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from faulty.attempt import start_attempt
from faulty.runs import IMAGES, TEXTS, words

CONF = Path(__file__).parent / "conf"
DONE, PAUSED, SWEEP = "done", "paused", "sweep"
AT = "evaluating:kill:3"
"""Before its last evaluation, when a run has all of its checkpoints and is not done."""
PROMPTS = ("a dull film", "a fine film", "it was", "they say", "nobody", "the end")
ROWS = """
about: {title: two runs}
columns: {score: {label: score, full: eval/shapes}}
sizes: {full: [%s]}
seeds: [0, 1]
rows: [{name: a row, full: []}]
"""


def typed(kind: str, folder: Path) -> tuple[str, ...]:
    """The words of a run of images or of texts."""
    logger = (f"hydra.searchpath=[{CONF}]", "logger=quiet", "trust=[faulty]")
    if kind == "image":
        return words(*IMAGES, "algo=nft", "model.finetune=lora", *logger)
    prompts = ("prompts=file", f"prompts.path={folder / 'prompts.txt'}")
    return words(*TEXTS, "algo=ppo", "model.finetune=lora", *prompts, *logger)


def prepare(folder: Path) -> None:
    """Make `folder/KIND/STATE` for both kinds, and the sweep `folder/sweep/done`."""
    (folder / "prompts.txt").write_text("\n".join(PROMPTS * 4) + "\n")
    for kind in ("image", "text"):
        for state, code, fault in ((DONE, 0, ""), (PAUSED, -9, AT)):
            run = folder / kind / state
            _end(code, [f"run_dir={run}", *typed(kind, folder)], folder, fault)
            (run / "links.json").write_text(json.dumps({"Quiet": "https://localhost/run"}) + "\n")
    _prepare_sweep(folder)


def sheet(folder: Path) -> Path:
    """The file of the sweep."""
    return folder / "two.yaml"


def _prepare_sweep(folder: Path) -> None:
    """The runs of a sweep are copies of one: they are read, and not compared."""
    from rlfactory.sweep.command import prepared
    from rlfactory.sweep.sweep_arguments import read_request

    listed = ", ".join(f'"{word}"' for word in IMAGES)
    sheet(folder).write_text(ROWS % listed)
    place = folder / SWEEP / DONE
    asked = prepared(read_request([str(sheet(folder)), f"sweep_dir={place}"]))
    place.mkdir(parents=True)
    asked.table.save(place)
    (place / "logs").mkdir()
    for job in asked.jobs:
        shutil.copytree(folder / "image" / DONE, place / job.folder)
        shutil.rmtree(place / job.folder / "checkpoints")
        (place / "logs" / f"{job.folder}.txt").write_text("error: none\n")


def _end(code: int, words: Sequence[str], folder: Path, fault: str = "") -> None:
    attempt = start_attempt(words, folder / "logs", fault)
    attempt.wait()
    if attempt.code != code:
        raise RuntimeError(f"{words[0]} ended with {attempt.code}: {attempt.said.read_text()}")
