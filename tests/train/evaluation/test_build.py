"""The evaluator of an experiment: its prompts, noises and prompt sets."""

import weakref
from pathlib import Path
from typing import Any

import datasets
import pytest

from rlfactory.config.overrides import plan_from_words
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.prompt_list import RowReader
from rlfactory.train.build import build
from rlfactory.train.components import NoProgress
from rlfactory.train.evaluation.build import build_evaluator
from rlfactory.train.evaluation.evaluator import evaluation_metrics


def config(*words: str) -> dict[str, Any]:
    return dict(plan_from_words("hardware=cpu", *words).config)


def test_an_evaluation_has_its_noises_and_its_own_seed() -> None:
    few = ("evaluation.prompts=6", "seed=3")
    made = config(*few)
    one = build_evaluator(made, build(made), NoProgress())
    assert (one.seed, one.noises, len(one.prompts)) == (3, 1, 6)
    made = config(*few, "evaluation.noises=2", "evaluation.seed=7")
    two = build_evaluator(made, build(made), NoProgress())
    assert (two.seed, two.noises, two.prompts) == (7, 2, one.prompts * 2)


def test_texts_are_evaluated_on_several_prompt_sets() -> None:
    words = ["model=tiny_gpt2", "reward=length", "evaluation.prompts=2", "dynamics.length=4"]
    sets = ["eval_sets.of=[movies,randomwalks]", "eval_sets.rewards.movies=[length]"]
    planned = config(*words, *sets)
    evaluator = build_evaluator(planned, build(planned), NoProgress())
    metrics = evaluation_metrics(evaluator("policy"))
    assert len(evaluator.sets["randomwalks"].prompts) == 2
    for name in ("movies", "randomwalks"):
        assert {f"eval/{name}/length/mean", f"eval/{name}/text/repetition"} <= metrics.keys()


def test_a_set_that_is_trained_on_in_other_letters_is_not_held_out(tmp_path: Path) -> None:
    for name, text in (("train", "A film\n"), ("same", "a  film\n"), ("other", "a book\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    data = ["prompts=file", f"prompts.path={tmp_path}/train.txt", "dynamics.length=4"]
    for name, separate in (("same", False), ("other", True)):
        sets = ["eval_sets.of=[file]", f"eval_sets.parts.file.path={tmp_path}/{name}.txt"]
        planned = config("model=tiny_gpt2", "reward=length", "evaluation.prompts=1", *data, *sets)
        assert (
            build_evaluator(planned, build(planned), NoProgress()).sets["file"].separate is separate
        )


def takes_extra(completions: list[str], extra: list[str]) -> list[float]:
    return [1.0] * len(completions)


@pytest.mark.parametrize("reward", ["[length,repetition]", f"{__file__}:takes_extra"])
def test_not_all_rows_of_a_data_set_are_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reward: str
) -> None:
    """Rows of pictures may be larger than the memory."""
    rows = {"prompt": [f"a {i}" for i in range(50)], "extra": ["x"] * 50}
    datasets.Dataset.from_dict(rows).save_to_disk(tmp_path / "data")
    whole: list[weakref.ref[Prompt]] = []
    read = RowReader.read

    def counted(self: RowReader, where: str, row: Any) -> Prompt:
        prompt = read(self, where, row)
        if "extra" in row:
            whole.append(weakref.ref(prompt))
            assert sum(ref() is not None for ref in whole) < 8
        return prompt

    monkeypatch.setattr(RowReader, "read", counted)
    data = ["prompts=datasets", f"prompts.path={tmp_path}/data", "evaluation.prompts=2"]
    build(config("model=tiny_gpt2", f"reward={reward}", *data, "dynamics.length=4"))
    assert len(whole) < 10 or "takes_extra" in reward
