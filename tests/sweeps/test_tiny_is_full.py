"""Each job of a sweep passes the check, and its tiny form has the settings of the full one, but for
size and stated reasons.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import pytest

from rlfactory.config.options import packaged_folder
from rlfactory.config.overrides import plan_from_words
from rlfactory.config.problems import PlanError
from rlfactory.config.words import normalise_words
from rlfactory.sweep.jobs import last_words, stages_of
from rlfactory.sweep.sweep_file import Line, SweepFile, read_sheet

FILES = {path.stem: path for path in sorted(packaged_folder("sweeps").glob("*.yaml"))}
OF_SIZE = re.compile(
    r"model\.(?!guidance)|(precision|memory|hardware|prompts|reward|eval_rewards|eval_sets|scoring)\."
    r"|checkpoint\.|evaluation\.(?!policy_fraction)"
    r"|(iterations|prompts_per_iteration|group_size|branches|micro_batch|sample_batch)$"
    r"|(schedule\.steps|dynamics\.(length|stop_after)|advantage\.weights|latent_storage)\b"
    r"|(prompt_cache|seed|search)$"
    r"|learning_rate\.(lora|full|head)$"
)
"""Models, batches, lengths, evaluation, hardware, rewards with their prompts, and the rates that a
model has for each way of training, of which optimizer.lr is the one that is used.

A shipped model's network needs none of the rewards and prompts of the full form.
"""


@cache
def settings(words: tuple[str, ...]) -> dict[str, Any]:
    """The composed settings of a run by dotted key, without those of size."""
    config = plan_from_words(*normalise_words(last_words(words))).config
    return {key: value for key, value in flat(config) if not OF_SIZE.match(key)}


def flat(node: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def words_of(sheet: SweepFile, line: Line, size: str) -> list[tuple[str, ...]]:
    """The overrides of each stage of a row; none where it is not run."""
    own = [*sheet.sizes[size], *(line.overrides or []), *(line.by_size.get(size) or [])]
    return [(*own, *stage) for stage in stages_of(line, size) or []]


def jobs_of(sheet: SweepFile, line: Line, size: str) -> list[dict[str, Any]]:
    """The settings of each stage of a row, all of which pass the check."""
    try:
        return [settings(words) for words in words_of(sheet, line, size)]
    except PlanError as error:
        raise AssertionError(f"{line.name}, {size}: {error}") from error


def differing(sheet: SweepFile, line: Line) -> set[str]:
    """The settings in which the sizes of a row differ."""
    both = [jobs_of(sheet, line, size) for size in ("full", "tiny")]
    found: set[str] = set()
    if not all(both):
        return found
    assert len(both[0]) == len(both[1]), f"{line.name}: stages"
    for a, b in zip(*both, strict=True):
        found |= {key for key in a.keys() | b.keys() if a.get(key) != b.get(key)}
    return found


def stated(key: str, reasons: Mapping[str, str]) -> str | None:
    """The key or the group that a reason is given for."""
    return next((r for r in reasons if key == r or key.startswith(f"{r}.")), None)


@pytest.mark.slow
@pytest.mark.usefixtures("its_model")
@pytest.mark.parametrize("name", FILES)
def test_each_job_would_run_and_each_difference_has_a_reason(name: str) -> None:
    """And each reason a difference."""
    sheet = read_sheet(FILES[name])
    used, wrong = set(), []
    for line in sheet.rows:
        reasons = {**sheet.differs, **line.differs}
        keys = differing(sheet, line)
        found = {key: stated(key, reasons) for key in keys}
        wrong += [f"{line.name}: {key}" for key, reason in sorted(found.items()) if reason is None]
        used |= {reason for reason in found.values() if reason is not None}
        unused = line.differs.keys() - {*found.values()}
        wrong += [f"{line.name}: differs.{key} is no difference" for key in sorted(unused)]
    wrong += [f"differs.{key} is no difference" for key in sorted(sheet.differs.keys() - used)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", FILES)
def test_both_forms_begin_from_the_same_preset(name: str) -> None:
    sheet = read_sheet(FILES[name])
    for line in sheet.rows:
        if "experiment" in {**sheet.differs, **line.differs}:
            continue
        both = [words_of(sheet, line, size) for size in ("full", "tiny")]
        presets = [
            [w for w in ws if w.startswith("experiment=")][-1:] for b in both for ws in b[:1]
        ]
        assert presets[:1] == presets[1:2] or len(presets) < 2, line.name


@pytest.mark.parametrize("name", [n for n in FILES if not n.endswith("_search")])
def test_a_tiny_form_decides(name: str) -> None:
    sheet = read_sheet(FILES[name])
    assert isinstance(sheet.seeds, dict)
    assert len(sheet.seeds["tiny"]) >= 5
    words = sheet.sizes["tiny"]
    if "prompts=digits" in words:  # ten prompts, each of which is drawn ten times
        assert "evaluation.noises=10" in words
    elif "prompts=words" in words:  # 41 are held out
        assert "evaluation.noises=4" in words
    else:
        assert "evaluation.prompts=256" in words
    if "prompts=shapes" in words:
        assert {"evaluation.seed=1000", "evaluation.noises=2"} <= {*words}
