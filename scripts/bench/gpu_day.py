"""One stage of the measurements that need a GPU, or the page of all; `gpu_day.sh` runs the stages.

    python scripts/bench/gpu_day.py FOLDER --only first     # the rows of a stage that are missing
    python scripts/bench/gpu_day.py FOLDER --write          # docs/gpu.md from the rows there are

A row is a measurement with a name. It is appended to FOLDER/STAGE.jsonl when it is made, and a row
that is there is not measured again. A row that was begun and never ended (the process was killed,
or the driver failed) counts as an error, so that the next call goes on with the one after it.
"""

import argparse
import gc
import json
import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gpu_stages import STAGES, Result, Row, Setup, Stage

from rlfactory.utils.errors import UserError

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
BEGUN = {"error": "begun, and not ended: the process was stopped or killed"}
HEAD = """# Measurements on a GPU

```bash
scripts/bench/gpu_day.sh FOLDER            # on a CUDA machine: all stages; the same command resumes
scripts/bench/gpu_day.sh FOLDER --pretend  # without a GPU: the same lines with small networks
```

Networks have their published shapes and random weights on the device ([full size](full_size.md)),
so nothing is downloaded. `gpu_day.py --write` generates this page from the rows that a device gave.
"""
EMPTY = "Not measured yet: no GPU has run this stage. With `--pretend`, tests run its code."


class Rows:
    """The results of a stage, by name, in a file of JSON lines."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> dict[str, Result]:
        """All results so far; of a row that was measured twice, the last."""
        if not self.file.exists():
            return {}
        lines = map(json.loads, self.file.read_text(encoding="utf-8").splitlines())
        return {line.pop("row"): line for line in lines}

    def write(self, name: str, result: Result) -> None:
        """Append the result of a row."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps({"row": name, **result}) + "\n")


def measured(row: Row, setup: Setup) -> Result:
    """The result of a row; of an error, its kind and first line."""
    begun = time.perf_counter()
    try:
        result: Result = dict(row.measure(setup))
    # a measurement that fails must not cost those after it
    except (RuntimeError, ValueError, UserError, AssertionError, ImportError, OSError) as error:
        first = next(iter(str(error).strip().splitlines()), "")
        result = {"error": f"{type(error).__name__}: {first}"}
    gc.collect()
    if setup.device.type == "cuda":
        torch.cuda.empty_cache()
    return {**result, "seconds": round(time.perf_counter() - begun, 1)}


def run_stage(stage: Stage, rows: Rows, setup: Setup, minutes: float, retry: bool) -> None:
    """Measure the rows that are missing, while there is time for one more."""
    limit, longest = time.monotonic() + 60 * minutes, 0.0
    for row in stage.rows(setup):
        known = rows.read().get(row.name)
        if known is not None and not (retry and "error" in known):
            continue
        if time.monotonic() + longest > limit:
            print(f"{stage.name}: no time left before {row.name}; the same command resumes here")
            return
        begun = time.monotonic()
        rows.write(row.name, BEGUN)
        result = measured(row, setup)
        rows.write(row.name, result)
        longest = max(longest, time.monotonic() - begun)
        print(f"{stage.name} / {row.name}: {json.dumps(result)}", flush=True)


def page(results: Mapping[str, Mapping[str, Result]], device: str) -> str:
    """The Markdown page: a table for each stage, with a line for each row."""
    parts = [HEAD]
    if results:
        parts.append(f"Device: {device}.\n")
    for stage in STAGES:
        found = results.get(stage.name, {})
        body = table(found) if found else EMPTY
        parts.append(f"## {stage.title}\n\n{stage.about}\n\n{body}\n")
    return "\n".join(parts)


def table(found: Mapping[str, Result]) -> str:
    """Rows by name; a column for each figure that any of them has."""
    columns = [*dict.fromkeys(key for result in found.values() for key in result)]
    lines = [["", *(c.replace("_", " ") for c in columns)], ["---", *["---:"] * len(columns)]]
    lines += [[name, *(cell(r.get(c, "")) for c in columns)] for name, r in found.items()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def cell(value: Any) -> str:
    """A figure with three significant digits, large ones whole; text as it is."""
    if isinstance(value, bool) or not isinstance(value, float):
        return str(value).replace("|", "/")
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def device_text(setup: Setup) -> str:
    """The device and the versions that were used."""
    if setup.pretends:
        return (
            "a CPU with small networks in place of a GPU, so no figure on this page means anything"
        )
    properties = torch.cuda.get_device_properties(setup.device)
    memory = properties.total_memory / 2**30
    return f"{properties.name}, {memory:.0f} GiB, torch {torch.__version__}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--list", action="store_true", help="print the names of the stages")
    parser.add_argument("--only", choices=[s.name for s in STAGES], nargs="+", default=[])
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--pretend", action="store_true", help="small networks, on the CPU")
    parser.add_argument("--retry", action="store_true", help="measure rows with an error again")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--trl-python", type=Path, help="the Python of an environment with TRL")
    return parser.parse_args()


def main() -> None:
    a = arguments()
    if a.list:
        print("\n".join(stage.name for stage in STAGES))
        return
    if a.folder is None:
        sys.exit("name the folder of the results")
    if not (a.pretend or torch.cuda.is_available()):
        sys.exit("torch finds no GPU; type --pretend to run every stage with small networks")
    for library in ("diffusers", "transformers"):
        logging.getLogger(library).setLevel(logging.ERROR)
    setup = Setup(torch.device("cpu" if a.pretend else "cuda"), a.trl_python, a.folder)
    stages = [stage for stage in STAGES if stage.name in a.only]
    for stage in stages:
        run_stage(stage, Rows(a.folder / f"{stage.name}.jsonl"), setup, a.minutes, a.retry)
    if a.write:
        read = {stage.name: Rows(a.folder / f"{stage.name}.jsonl").read() for stage in STAGES}
        found = {name: rows for name, rows in read.items() if rows}
        target = a.folder / "gpu.md" if a.pretend else PAGE
        target.write_text(page(found, device_text(setup)), encoding="utf-8")
        print(f"written: {target}")


if __name__ == "__main__":
    main()
