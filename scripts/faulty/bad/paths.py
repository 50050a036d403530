"""Places that are not there, are something else, or are in use."""

import random
from collections.abc import Mapping

from faulty.bad.case import SUBJECTS, Case

FILE = {"taken": b"mine"}
USED = {"used/config.yaml": b"mine: 1\n", "used/STATUS": b"running\n"}
LINES = {
    "empty.txt": b" \n",
    "latin.txt": b"caf\xe9\n",
    "plain.txt": b"a red circle\n",
    "broken.jsonl": b'{"prompt": \n',
    "list.jsonl": b"[1]\n",
    "nothing.jsonl": b'{"text": "no prompt"}\n',
}
PLACES: tuple[tuple[str, str, Mapping[str, bytes]], ...] = (
    ("run_dir=taken", "run_dir", FILE),
    ("run_dir=taken/below", "run_dir", FILE),
    ("run_dir=taken/below/deep", "run_dir", FILE),
    ("run_dir=used", "run_dir", USED),
    ("run_dir=/proc/nothing", "run_dir", {}),
    ("run_dir=/dev/null", "run_dir", {}),
    ("run_dir=/dev/null/run", "run_dir", {}),
    (f"run_dir={'n' * 300}", "run_dir", {}),
    (f"run_dir={'deep/' * 1000}", "run_dir", {}),
    ("prompts=file", "prompts.path", {}),
    ("prompts=file prompts.path=no.txt", "prompts.path", {}),
    ("prompts=file prompts.path=.", "prompts.path", {}),
    ("prompts=file prompts.path=", "prompts.path", {}),
    (f"prompts=file prompts.path={'n' * 300}", "prompts.path", {}),
    *(
        (f"prompts=file prompts.path={name} reward=compressibility", "prompts.path", LINES)
        for name in ("empty.txt", "latin.txt", "broken.jsonl", "list.jsonl", "nothing.jsonl")
    ),
    (
        "prompts=file prompts.path=plain.txt prompts.eval_path=no.txt reward=compressibility",
        "prompts.eval_path",
        LINES,
    ),
    ("prompts=file prompts.path=plain.txt", "prompts", LINES),
    ("prompts=datasets reward=compressibility", "prompts.path", {}),
    ("prompt_cache=taken", "prompt_cache", FILE),
    ("prompt_cache=taken/below", "prompt_cache", FILE),
    ("model.path=taken", "model.path", FILE),
    ("model.path=.", "model.path", {}),
    (f"model.path=./{'n' * 300}", "model.path", {}),
    ("model.path=", "model.path", {}),
    ("model=tiny_sd model.path=zoo:../tiny_sd", "model.path", {}),
    ("-cd nowhere", "-cd", {}),
    ("-cd taken", "-cd", FILE),
    ("-cd", "-cd", {}),
    ("--config-dir=nowhere", "--config-dir", {}),
    ("-cd conf reward=mine", "reward", {"conf/reward/mine.yaml": b"reward: [\n"}),
    ("-cd conf reward=mine", "reward", {"conf/reward/mine.yaml": b"caf\xe9: 1\n"}),
    ("-cd conf reward=mine", "reward", {"conf/reward/mine.yaml": b"7\n"}),
    ("-cd conf reward=mine", "reward", {"conf/reward/mine.yaml": b"reward: {a: 1}\n"}),
    (
        "-cd conf reward=mine",
        "reward",
        {"conf/reward/mine.yaml": b"# @package _global_\nreward:\n  _target_: os.system\n"},
    ),
    (
        "-cd conf experiment=mine",
        "sede",
        {"conf/experiment/mine.yaml": b"# @package _global_\nsede: 3\n"},
    ),
    (
        "-cd conf experiment=mine",
        "seed",
        {"conf/experiment/mine.yaml": b"# @package _global_\nseed: !!python/object:os.system x\n"},
    ),
    (
        "-cd conf experiment=mine",
        "nope",
        {"conf/experiment/mine.yaml": b"# @package _global_\ndefaults: [{override /algo: nope}]\n"},
    ),
)


def misplaced(rng: random.Random) -> Case:
    """Any of the places."""
    words, name, files = rng.choice(PLACES)
    subject = rng.choice(SUBJECTS)
    typed = (*([subject] if subject else []), *words.split(" "))
    return Case("a place that won't do", typed, (name,), files)
