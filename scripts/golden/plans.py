"""The golden plans: what pairs of model and algorithm, presets, options and sweeps resolve to.

python scripts/golden/plans.py           # write tests/data/golden/plans.jsonl and nodes.json
python scripts/golden/plans.py --check   # exit code 1 and the differences where a plan has changed

A refactoring must not change a plan: tests/config/test_golden_plans.py compares. A change that is
meant is written anew by this script and reviewed as a difference of the two files. A line of
plans.jsonl has the typed words and either the choices, the values and the numbers that follow from
them, or the keys of the problems. Texts, times and memory are left out. Values are kept by the root
key: those of the default plan are left out, and mappings stand once in nodes.json.
"""

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from rlfactory.config import plan
from rlfactory.config.options import options
from rlfactory.config.overrides import compose
from rlfactory.config.plan import make_plan
from rlfactory.config.problems import PlanError
from rlfactory.config.words import normalise_words
from rlfactory.model.pipelines.families import FAMILIES
from rlfactory.model.pipelines.shipped import PACKAGED
from rlfactory.sweep.jobs import jobs_of, seeds_of
from rlfactory.sweep.sweep_file import read_sheet, sweeps

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "golden"
PLANS, NODES = FOLDER / "plans.jsonl", FOLDER / "nodes.json"
Words = tuple[str, ...]
Record = dict[str, Any]
COUNTS = ("samples", "updates", "micro-batches", "passes", "processes")
"""Rows of the printed plan whose numbers follow from the values alone."""


def cases() -> list[Words]:
    """The words of every plan, each once."""
    sys.path[:0] = [str(ROOT / "tests")]
    from load_script import load_script

    conf = load_script(ROOT / "tests" / "config" / "test_conf.py", "golden_conf")
    found = [()]
    models = [m for m in options("model") if f"model/{m}" not in conf.NOT_INSTALLED]
    found += [_pair(m, a, conf.NEEDS) for m in models for a in options("algo")]
    found += [
        (f"{conf.group_of(p)}={conf.option_of(p)}", *conf._needed(p)) for p in _installed(conf)
    ]
    # a sweep of a model that another package ships resolves where that is installed alone
    files = [path for name, path in sweeps().items() if name.partition("_")[0] not in PACKAGED]
    found += [words for path in files for words in _jobs(path)]
    return [*dict.fromkeys(map(_portable, found))]


EDITING = tuple(family.option for family in FAMILIES if family.pictures)
"""Options of models whose prompts have pictures."""


def _pair(model: str, algorithm: str, needs: Mapping[str, Any]) -> Words:
    """Model and algorithm with what they need beside each other."""
    further = [*needs.get(f"model/{model}", ()), *needs.get(f"algo/{algorithm}", ())]
    if algorithm == "diffusion_dpo_offline" and model in EDITING:
        further.append("prompts.image_column=rejected")
    own = [word for word in further if not word.startswith(("model=", "algo="))]
    return (f"model={model}", f"algo={algorithm}", *own)


def _installed(conf: Any) -> Iterator[Path]:
    """The options' files but those of packages that the tests do without."""
    return (path for path in conf.FILES if conf.name_of(path) not in conf.NOT_INSTALLED)


def _jobs(path: Path) -> Iterator[Words]:
    """The words of one job of each size of a sweep."""
    sheet = read_sheet(path)
    for size in sheet.sizes:
        for job in jobs_of(sheet, size, [], {}, seeds_of(sheet, size))[:1]:
            yield tuple(normalise_words(job.overrides))


def _portable(words: Words) -> Words:
    """The words with this checkout's folder left open."""
    return tuple(word.replace(str(ROOT), "ROOT") for word in words)


@contextmanager
def ground() -> Iterator[None]:
    """An empty folder with the files that the words name; no search for what saves memory, which
    depends on the machine.
    """
    before, notes = Path.cwd(), plan.memory_notes
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("prompts.jsonl").write_text('{"prompt": "a cat", "tests": "pass"}\n')
        Path("judge.py").write_text(
            "def see(images, prompts, metadata): ...\ndef judge(prompts, completions): ...\n"
        )
        plan.memory_notes = lambda *_: ()
        try:
            yield
        finally:
            os.chdir(before)
            plan.memory_notes = notes


def record(words: Words) -> Record:
    """What the words resolve to, with whole values."""
    typed = [word.replace("ROOT", str(ROOT)) for word in words]
    try:
        composed = compose(typed, verify=False)
        plan = make_plan(composed.values, composed.choices, composed.problems, composed.defaults)
    except PlanError as error:
        return {"words": [*words], "refused": sorted({p.key for p in error.problems})}
    here = str(Path.cwd())
    config = json.loads(json.dumps(plan.config).replace(str(ROOT), "ROOT").replace(here, "HERE"))
    counts = {row: plan.derived[row] for row in COUNTS if row in plan.derived}
    notes = " ".join(v for k, v in plan.derived.items() if k.startswith("note "))
    return {
        "words": [*words],
        "choices": dict(plan.choices),
        "config": config,
        "evaluations": round(plan.evaluations, 6),
        "numbers": {row: re.findall(r"\d[\d,.]*\d|\d", text) for row, text in counts.items()},
        "noted": sorted(set(_keys(config)) & set(re.findall(r"[a-z_]+(?:\.[a-z_]+)+", notes))),
    }


def _keys(node: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in node.items():
        yield prefix + name
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{name}.")


def packed(records: list[Record]) -> tuple[list[Record], dict[str, Any]]:
    """Lines and nodes as they are stored."""
    nodes: dict[str, Any] = {}
    default = records[0]["config"]
    lines = []
    for found in records:
        line = {**found}
        if "config" in found:
            config = found["config"]
            line["config"] = {
                key: _name(value, nodes)
                for key, value in config.items()
                # by digest, as 0 == 0.0
                if not lines or key not in default or digest(value) != digest(default[key])
            }
            line["without"] = sorted(default.keys() - config.keys())
            line["sha256"] = digest(config)
        lines.append({key: value for key, value in line.items() if value not in ([], {})})
    return lines, dict(sorted(nodes.items()))


def _name(value: Any, nodes: dict[str, Any]) -> Any:
    """A plain value itself; a mapping's place in the nodes."""
    if not isinstance(value, Mapping):
        return value
    name = f"@{digest(value)[:10]}"
    nodes[name] = value
    return name


def digest(value: Any) -> str:
    """A hash of canonical JSON."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def stored() -> list[Record]:
    """The records as `record` gives them."""
    nodes = json.loads(NODES.read_text())
    lines = [json.loads(line) for line in PLANS.read_text().splitlines()]
    default: dict[str, Any] = {}
    records = []
    for line in lines:
        if "refused" not in line:
            own = {
                key: nodes.get(value, value) if isinstance(value, str) else value
                for key, value in line.get("config", {}).items()
            }
            without = line.pop("without", [])
            line["config"] = {k: v for k, v in (default | own).items() if k not in without}
            default = default or line["config"]
            expected = line.pop("sha256")
            if digest(line["config"]) != expected:
                raise ValueError(f"{PLANS.name} and {NODES.name} do not belong together: {line}")
            line = {"numbers": {}, "noted": [], **line}
        records.append({"words": [], **line})
    return records


def differences(before: Record, after: Record) -> list[str]:
    """Each value that differs, by its dotted key."""
    old, new = dict(_flat(before)), dict(_flat(after))
    return [
        f"{key}: {old.get(key, 'missing')} -> {new.get(key, 'missing')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key, "missing") != new.get(key, "missing")
    ]


def _flat(node: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping) and node:
        for name, value in node.items():
            yield from _flat(value, f"{prefix}.{name}" if prefix else name)
    else:
        yield prefix, json.dumps(node)


def changed() -> Iterator[str]:
    """What differs between the stored plans and those of now."""
    expected = {tuple(found["words"]): found for found in stored()}
    wanted = cases()
    yield from (f"{' '.join(words)}: no longer planned" for words in expected.keys() - {*wanted})
    for words in wanted:
        if words not in expected:
            yield f"{' '.join(words)}: not stored"
        else:
            found = differences(expected[words], record(words))
            yield from (f"{' '.join(words)}: {text}" for text in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    with ground():
        if arguments.check:
            found = [*changed()]
            print("\n".join(found) or "no plan has changed")
            return int(bool(found))
        lines, nodes = packed([record(words) for words in cases()])
    FOLDER.mkdir(parents=True, exist_ok=True)
    PLANS.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    entries = [f"{json.dumps(name)}: {json.dumps(node)}" for name, node in nodes.items()]
    NODES.write_text("{\n" + ",\n".join(entries) + "\n}\n")
    refused = sum("refused" in line for line in lines)
    print(f"{len(lines)} plans, {refused} of them refused")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
