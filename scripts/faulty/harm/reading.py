"""The commands that read a folder, and what of it each may change."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faulty.harm.prepared import DONE, PAUSED, SWEEP, sheet, typed

LOCKS = r"\.lock|OWNER"
OF_RUN = "|".join(
    (
        *(LOCKS, r"STATUS", r"log.*\.txt", r"metrics\.jsonl", r"plan\.txt", r"summary\.md"),
        *(r"curves\.png", r"index\.html", r"environment\.json", r"checkpoints/best\.json"),
        *(r"(.*/)?\.[^/]*\.unfinished", r"checkpoints/\.?step_.*", r"evidence/.*"),
        *(r"samples/(pairs|strip)\.(png|md|gif)", r"inputs/moved\.json"),
        r"(prompt_sets/.*/)?(samples|evaluations|samples/strip)/(eval_)?\d{6,}(_\d+)?\.\w+",
    )
)
"""What a run that goes on writes again; `lost` says what of it has to be kept."""


@dataclass(frozen=True)
class Command:
    """A command that reads a folder.

    Attributes:
        folder: the folder that it reads, below those prepared: `image/done`.
        words: what is typed; `{run}` is the damaged folder, `{whole}` one that is not, `{out}` a
            new one.
        changes: a pattern of the files in the folder that it may write again.
        trains: whether it may go on for long, as long as it trains.
    """

    name: str
    folder: str
    words: tuple[str, ...]
    changes: str = LOCKS
    trains: bool = False
    weight: int = 4

    def typed(self, run: Path, whole: Path, out: Path) -> list[str]:
        """The words for these folders."""
        return [w.format(run=run, whole=whole, out=out) for w in self.words]


def commands(prepared: Path) -> list[Command]:
    """All of them, on runs of both kinds and on a sweep."""
    found = [c for kind in ("image", "text") for c in _of_run(kind, typed(kind, prepared))]
    file = str(sheet(prepared))
    folder, place = f"{SWEEP}/{DONE}", "sweep_dir={run}"
    text = "terminal,markdown,csv,latex,json"
    return [
        *found,
        Command("sweep --plan", folder, ("sweep", file, place, "--plan"), weight=4),
        Command("sweep", folder, ("sweep", file, place), rf"{LOCKS}|logs/.*|sweep\.json", weight=4),
        Command(
            "report of a sweep",
            folder,
            ("report", "{run}", "--format", text, "--out", "{out}"),
            weight=5,
        ),
    ]


def _of_run(kind: str, words: Sequence[str]) -> list[Command]:
    done, paused = f"{kind}/{DONE}", f"{kind}/{PAUSED}"
    prompt = ("--prompt", "a red square")
    text, page = "terminal,markdown,csv,latex,json", r"index\.html|" + LOCKS
    escaped = tuple(word.replace("{", "{{").replace("}", "}}") for word in words)
    found = [
        Command("resume", paused, ("resume", "{run}"), OF_RUN, True, 10),
        Command("the same command", paused, ("run_dir={run}", *escaped), OF_RUN, True, 3),
        Command(
            "resume --until",
            done,
            ("resume", "{run}", "--until", "4", "--force"),
            rf"config\.yaml|{OF_RUN}",
            True,
            3,
        ),
        Command("check", paused, ("check", "run_dir={run}", *escaped)),
        Command("evaluate", done, ("evaluate", "{run}"), weight=4),
        Command("sample", done, ("sample", "{run}", *prompt, "--out", "{out}"), weight=4),
        Command("sample --best", done, ("sample", "{run}", *prompt, "--best"), weight=1),
        Command("export", done, ("export", "{run}", "--to", "{out}"), weight=4),
        Command("report", done, ("report", "{run}", "--format", text, "--out", "{out}"), weight=4),
        Command(
            "report --format html",
            done,
            ("report", "{run}", "--format", "html", "--out", "{out}"),
            page,
            weight=3,
        ),
        Command("compare", done, ("compare", "{run}", "{whole}", "--out", "{out}"), weight=4),
        Command("sync", done, ("sync", "{run}"), weight=4),
        Command(
            "begin_from", done, ("check", "begin_from={run}", *escaped, "run_dir={out}"), weight=1
        ),
    ]
    if kind == "text":
        found.append(
            Command("inspect", done, ("inspect", "{run}"), rf"inspect/.*|{LOCKS}", weight=1)
        )
    return found


Snapshot = Mapping[str, tuple[object, ...]]


def snapshot(folder: Path) -> Snapshot:
    """What lies in a folder, so that any change of it shows."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        kind = about.st_mode >> 12
        written = (
            (about.st_mtime_ns, about.st_size) if not path.is_dir() or path.is_symlink() else ()
        )
        found[path.relative_to(folder).as_posix()] = (kind, about.st_ino, *written)
    return found


def lost(before: Snapshot, after: Snapshot, changes: str) -> list[str]:
    """Files that are changed or gone, though the command may not touch them.

    One that was renamed is not lost.
    """
    places = {about[1] for about in after.values()}
    allowed = re.compile(changes)
    wrong = []
    for name, about in before.items():
        if after.get(name) == about or about[1] in places and name not in after:
            continue
        if allowed.fullmatch(name):
            continue
        wrong.append(f"{name} is {'changed' if name in after else 'gone'}")
    return wrong


Kept = Callable[[Path], object]


def kept_lines(run: Path, until: int) -> list[bytes]:
    """The first lines of metrics, which belong to a checkpoint and stay."""
    path = run / "metrics.jsonl"
    return path.read_bytes().split(b"\n")[:until] if path.is_file() else []
