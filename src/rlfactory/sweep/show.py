"""A sweep in words: its plan before it runs, and what became of it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rlfactory.plan import Plan
from rlfactory.run.format import clock
from rlfactory.sweep.folder import job_output
from rlfactory.sweep.process import command_of
from rlfactory.sweep.source import Sheet
from rlfactory.sweep.status import failure, standing, state_of
from rlfactory.sweep.table import Job, Table

BECAME = {"resume": "interrupted", "retry": "failed", "new": "not begun", "done": "done"}


def plan_lines(
    sheet: Sheet, table: Table, jobs: Sequence[Job], plans: Mapping[str, Plan], folder: Path
) -> Iterator[str]:
    """What the sweep is about, its budget, and each job with its status and its command."""
    about = sheet.about
    yield f"{about.title}: {about.paper}, {about.table}"
    facts = {
        "size": table.size,
        "ran here": about.ran,
        "tolerance": about.tolerance,
        "jobs": _counted(jobs, folder),
        "budget": _budget(table, jobs, plans, folder),
        "folder": str(folder),
    }
    width = max(map(len, facts))
    yield from (f"  {name:<{width}}  {text}" for name, text in facts.items() if text)
    yield ""
    for job in jobs:
        yield f"{state_of(folder / job.folder):<6}  {command_of(job, folder)}"


def _counted(jobs: Sequence[Job], folder: Path) -> str:
    states = [state_of(folder / job.folder) for job in jobs]
    parts = [f"{states.count(s)} {s}" for s in ("done", "resume", "retry", "new") if s in states]
    return f"{len(jobs)}: {', '.join(parts)}"


def _budget(table: Table, jobs: Sequence[Job], plans: Mapping[str, Plan], folder: Path) -> str:
    """What all jobs cost, as far as it is known: evaluations of the network, hours, minutes."""
    known = [plans[job.name] for job in jobs if job.name in plans]
    evaluations = sum(plan.evaluations * plan.config["iterations"] for plan in known)
    parts = [f"{evaluations:,.0f} evaluations of the network"] if evaluations else []
    parts += [f"{sum(plan.config['iterations'] for plan in known):,} iterations"]
    if table.size == "full" and table.about.gpu_hours is not None:
        parts.append(f"about {table.about.gpu_hours:g} GPU-hours")
    found = [standing(folder / job.folder) for job in jobs]
    over = [one.seconds for one in found if one.state == "done" and one.seconds]
    if over and (left := sum(one.state != "done" for one in found)):
        mean = clock(sum(over) / len(over))
        parts.append(f"{mean} a job so far, {clock(sum(over) / len(over) * left)} of jobs left")
    return "; ".join(parts)


def outcome_lines(
    jobs: Sequence[Job], folder: Path, states: Mapping[str, str], score: str
) -> Iterator[str]:
    """Each job and what became of it; below, for those that failed, why."""
    width = max((len(job.name) for job in jobs), default=0)
    for job in jobs:
        found = standing(folder / job.folder, score)
        became = _became(found.state, states.get(job.name))
        place = f"  iteration {found.iteration}" if found.iteration else ""
        yield f"{job.name:<{width}}  {became:<11}{place}".rstrip()
    for job in jobs:
        if states.get(job.name) == "blocked":
            yield f"\n{job.name} begins with the weights of {job.after}, which is not done"
        elif states.get(job.name) == "failed":
            why = failure(folder / job.folder, job_output(folder, job))
            yield "\n".join([f"\n{job.name} failed:", *(f"  {line}" for line in why)])
            yield f"  see {job_output(folder, job)}"


def _became(state: str, ended: str | None) -> str:
    """A job that ended without a word in its folder has failed too."""
    return ended if ended in ("blocked", "failed") else BECAME[state]
