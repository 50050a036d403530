"""The tables of docs/performance.md from the stored figures.

    python scripts/bench/performance_page.py    # writes them into the page

The lines after `<!-- performance: NAME -->` are what the function of that name returns. A cell has
a value of each run. Ratios are medians of the turns'.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import median

import yaml
from performance import DOCS, read
from sides import Side, ratio

PAGE = DOCS / "performance.md"
WAITS = DOCS.parent / "tests" / "device" / "budgets.yaml"
MARK = re.compile(r"(?<=<!-- performance: )(\w+) -->\n.*?(?=\n\n|\n?\Z)", re.DOTALL)
STORED = read()

Ratio = tuple[str, str, str, str]
"""A row's name, its comparison, and two sides."""
ITERATIONS = {
    "`tiny_sd3`, NFT": "nft, iteration",
    "`tiny_sd3`, GRPO": "grpo, iteration",
    "`tiny_sd3`, AWM": "awm, iteration",
    "`tiny_sd`, DDPO": "ddpo, iteration",
    "`tiny_flux`, GRPO": "flux, iteration",
    "`tiny_sd3`, NFT, `precision=bf16`": "nft, bf16, iteration",
    "`tiny_gpt2`, PPO's learning": "tokens, learn",
}
DDPO: dict[str, Ratio] = {
    "small": ("ddpo", "iteration", "TRL", "rlfactory"),
    "12": ("ddpo", "iteration", "TRL, at once", "rlfactory, 12 items"),
    "30": ("ddpo", "iteration", "TRL, at once", "rlfactory, 30 items"),
}
PPO: dict[str, Ratio] = {
    critic: ("ppo", "iteration", "TRL", f"rlfactory, {critic} critic")
    for critic in ("separate", "shared")
}
GRPO: Ratio = ("grpo", "iteration", "TRL", "rlfactory")
SMOLLM2: Ratio = ("smollm2", "iteration", "TRL", "rlfactory")
SHAPES = {"256": "32 tokens after 256", "40": "16 after 40", "64": "64 × 32 after 256"}


def runs(which: Ratio) -> list[tuple[Side, Side]]:
    """The two sides of each run."""
    row, what, one, other = which
    found = [run["comparisons"][what] for run in STORED[row]["runs"]]
    return [(Side(**sides[one]), Side(**sides[other])) for sides in found]


def ratios(which: Ratio, clock: str = "cpu") -> list[float]:
    """How many times as fast the second side is, in each run that measured this clock."""
    return [ratio(*pair, clock) for pair in runs(which) if getattr(pair[0], clock)]


def span(*which: Ratio) -> str:
    """The lowest and the highest ratio of all runs, by the wall where no other is known."""
    values = [value for each in which for value in ratios(each) or ratios(each, "wall")]
    found = [f"{value:.2f}" for value in values]
    return " to ".join(dict.fromkeys((min(found, key=float), max(found, key=float))))


def line(label: str, which: Ratio, memory: bool = True) -> list[str]:
    """The cells of a ratio."""
    pairs = runs(which)
    seconds = [
        ", ".join(f"{median(side.cpu or side.wall):#.3g}" for side in sides)
        for sides in zip(*pairs, strict=True)
    ]
    times = [", ".join(f"{t:.2f}" for t in ratios(which, clock)) for clock in ("cpu", "wall")]
    peaks = [[side.gib for side in sides if side.gib] for sides in zip(*pairs, strict=True)]
    gib = " → ".join(f"{median(found):.2f}" for found in peaks if found)
    loads = [run["machine"].get("load") for run in STORED[which[0]]["runs"]]
    load = ", ".join(str(each) for each in loads if each is not None)
    return [label, *seconds, *times, *([gib] if memory else []), load]


def table(heads: Sequence[str], lines: Iterable[Sequence[str]], kind: str = "---:") -> str:
    """Markdown; the first column is text."""
    rows = [f"| {' | '.join(cells)} |".replace("  ", " ") for cells in (heads, *lines)]
    return "\n".join([rows[0], f"|---|{f'{kind}|' * (len(heads) - 1)}", *rows[1:]])


def machines() -> str:
    """Processors, versions and commits of all commands."""
    found = [run["machine"] for row in STORED.values() for run in row.get("runs", [])]
    known = {
        key: ", ".join(dict.fromkeys(str(m[key]) for m in found if key in m))
        for key in ("processor", "cores", "torch", "commit")
    }
    return (
        f"One thread of {known['processor']} ({known['cores']} cores), no GPU,"
        f" torch {known['torch']}, float32; commits {known['commit']}."
    )


def iterations() -> str:
    """Iterations beside their floors: a ratio is how much longer they take."""
    lines = [
        line(label, ("iteration", name, "itself", "floor"), memory=False)
        for label, name in ITERATIONS.items()
    ]
    return table(["", "iteration, s", "floor, s", "ratio", "by the wall", "load"], lines)


def trl() -> str:
    """Iterations beside TRL's."""
    ddpo = "DDPO, `tiny_sd`, 24 samples, 3 an update; TRL 0.23.1"
    lines = {
        "PPO, GPT-2 of 4 layers, 32 × 75 tokens, separate critic; TRL 1.12": PPO["separate"],
        "shared critic (the default)": PPO["shared"],
        "GRPO, the same, groups of 8; TRL 1.16": GRPO,
        "GRPO, SmolLM2-135M by LoRA, wall seconds; TRL 1.16": SMOLLM2,
        f"{ddpo}, its example's batches": DDPO["small"],
        "all 24 sampled at once, 12 items learned": DDPO["12"],
        "30 items learned": DDPO["30"],
    }
    heads = ["", "TRL, s", "rlfactory, s", "times as fast", "by the wall", "GiB", "load"]
    return table(heads, [line(label, which) for label, which in lines.items()])


def prompts() -> str:
    """Learning with prompts read once, and rollouts beside `generate`."""
    learning, rollout = ("learning", "whole rows", "shared"), ("rollout", "generate", "rlfactory")
    lines = [
        line(f"{sides[0]}, {shape}{', bfloat16' * (kind != '')}", (row + kind, *sides))
        for sides in (learning, rollout)
        for row, shape in SHAPES.items()
        for kind in ("", ", bf16")
        if f"{row}{kind}" in STORED and sides[0] in STORED[f"{row}{kind}"]["runs"][0]["comparisons"]
    ]
    heads = ["", "whole rows or `generate`, s", "shared, s", "times as fast", "by the wall", "GiB"]
    return table([*heads, "load"], lines)


def answers() -> str:
    """The first table: a question, its answer, and the command that gives it."""
    images = [("iteration", name, "itself", "floor") for name in ITERATIONS.values()]
    *most, of_tokens = [round(100 * ratios(each)[0] - 100) for each in images]
    rows = ("rollout", "rollout, ends", "64")
    plain, ends, many = (span((row, "rollout", "generate", "rlfactory")) for row in rows)
    learning = ("256", "learning", "whole rows", "shared")
    whole, shared = runs(learning)[0]
    compiled = ("compiled", "yours", "plain", "compiled")
    longer = STORED["compiled"]["runs"][0]["figures"]["yours"]["first iteration longer by, s"]
    lines = [
        (
            "What does the loop add to the network's own passes?",
            f"at most {max(most)} % for images, {of_tokens} % for PPO's learning on a small GPT-2",
            "`iteration.py`",
        ),
        (
            "How does memory grow?",
            "with batch and length; with the vocabulary up to a limit; not with the number of"
            " sampling steps",
            "`memory_growth.py`",
        ),
        (
            "How fast are text rollouts?",
            f"{plain} times transformers' `generate`, {ends} where responses end early,"
            f" {many} where eight share a prompt of 256",
            "`rollout.py`",
        ),
        (
            "A group's prompt read once?",
            f"learning from 32 tokens after 256, groups of 8: {span(learning)} times as fast,"
            f" {shared.gib / whole.gib:.2f} of the memory",
            "`shared_prompts.py`",
        ),
        (
            "PPO beside TRL 1.12?",
            f"{span(PPO['separate'])} times as fast with a separate critic,"
            f" {span(PPO['shared'])} with a shared one",
            "`trl_ppo.py`",
        ),
        (
            "GRPO beside TRL 1.16?",
            f"{span(GRPO)} times as fast; SmolLM2: {span(SMOLLM2)} by the wall",
            "`trl_ppo.py --algorithm grpo`, `instructions_trl.py`",
        ),
        (
            "DDPO beside TRL 0.23.1?",
            f"{span(DDPO['small'])} times as fast with the same small batches,"
            f" {span(DDPO['12'], DDPO['30'])} with larger ones on both sides",
            "`trl_ddpo.py`",
        ),
        ("How often does the host wait for a GPU?", waits(), "`tests/device/wait_budgets.py`"),
        ("How long does the command take to start?", starts(), "`command.py`"),
        (
            "Does `memory.compile` help?",
            f"{span(compiled)} × on `tiny_sd3`; the first iteration takes {longer} s longer",
            "`compiled.py`",
        ),
    ]
    return table(["question", "answer", "command"], lines, "---")


def waits() -> str:
    """From the table of waits on the pretended device."""
    cases = [*yaml.safe_load(WAITS.read_text(encoding="utf-8")).values()]
    updates = [case["waits"]["update"] for case in cases if "update" in case["waits"]]
    often = max(case["waits"]["step"] for case in cases if "gpt2" not in case["words"])
    return (
        f"{f'{often} times' if often else 'never'} in a sampling step of images, {min(updates)} to"
        f" {max(updates)} times in an update; counted on a pretended device"
    )


def starts() -> str:
    """Medians of CPU seconds over all runs."""
    sides = [run["comparisons"]["start"] for run in STORED["command"]["runs"]]
    names = ("rlfactory --help", "rlfactory check", "import hydra")
    shown, check, least = (median(s for run in sides for s in run[name]["cpu"]) for name in names)
    times = median(ratios(("command", "start", *names[1:])))
    return (
        f"`--help` {shown:.2f}, `check` {check:.2f} s of CPU time: {times:.1f} times"
        f" `import hydra` ({least:.2f} s)"
    )


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made for made in (machines, answers, iterations, trl, prompts)
}


def filled(page: str) -> str:
    """The page with its tables."""
    return MARK.sub(lambda match: f"{match[1]} -->\n{TABLES[match[1]]()}", page)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
