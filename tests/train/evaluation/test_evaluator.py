"""The same prompts from the same noise, whenever and however batched."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlfactory.algo.dpo import DPO
from rlfactory.algo.sft import SFT
from rlfactory.dynamics.ode import ODE
from rlfactory.dynamics.schedule import uniform_sigmas
from rlfactory.dynamics.token import Token
from rlfactory.hardware.base import Hardware
from rlfactory.hardware.local import Local
from rlfactory.model.base import ImageModel
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.weight_sets import EMA, REFERENCE
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.shapes import ShapesPrompts
from rlfactory.reward.base import Reward, Samples
from rlfactory.reward.combine import Combine
from rlfactory.reward.jpeg import Compressibility
from rlfactory.rollout import GeneratedSamples
from rlfactory.run.scores import Scores
from rlfactory.train.components import NoProgress
from rlfactory.train.data_parallel import Shard, local_rows
from rlfactory.train.evaluation.evaluator import (
    Evaluation,
    Evaluator,
    GivenEvaluation,
    evaluation_metrics,
)
from rlfactory.train.iteration_metrics import text_measures
from rlfactory.train.sampling.given import GivenSampler
from rlfactory.train.sampling.image_sampler import ImageSampler
from rlfactory.train.scoring.async_scorer import Scorer
from rlfactory.utils.errors import TrainingError


@pytest.fixture
def evaluator(linear: Callable[..., ImageModel]) -> Callable[..., Evaluator]:
    def make(sample_batch: int = 100, seed: int = 0) -> Evaluator:
        model = linear()
        model.weights.add(EMA)
        return Evaluator(
            model=model,
            sampler=ImageSampler(
                model,
                dynamics=ODE(model.forward_process),
                sigmas=uniform_sigmas(4, 3.0),
                evaluation_sigmas=uniform_sigmas(4, 3.0),
                transitions=None,
                batch=sample_batch,
                advance=NoProgress().advance,
            ),
            reward=Compressibility(),
            prompts=ShapesPrompts().held_out(24),
            seed=seed,
            progress=NoProgress(),
            hardware=Local(device="cpu"),
        )

    return make


class Dark(Reward):
    """How dark a picture is, of those that can be told; `dark` counts too."""

    media = "images"
    main = "darkness"

    def __init__(self, failed: int = 0) -> None:
        self.failed = failed

    def score(self, samples: Samples) -> dict[str, torch.Tensor]:
        assert samples.images is not None
        value = -samples.images.float().mean((1, 2, 3))
        value[: self.failed] = torch.nan
        return {"darkness": value, "jpeg_kb": value, "dark": value}


def pictures(evaluation: Evaluation) -> torch.Tensor:
    assert evaluation.samples.images is not None
    return evaluation.samples.images


def test_batching_does_not_matter_and_the_seed_does(evaluator: Callable[..., Evaluator]) -> None:
    one, other = evaluator()("policy"), evaluator(sample_batch=7)("policy")
    torch.testing.assert_close(pictures(one), pictures(other))
    assert one.scores.diversity == pytest.approx(other.scores.diversity)
    assert not torch.equal(pictures(one), pictures(evaluator(seed=1)("policy")))


def test_further_noises_leave_the_first_ones_as_they_are(
    evaluator: Callable[..., Evaluator],
) -> None:
    one, made = evaluator(), evaluator()
    two = replace(made, prompts=made.prompts * 2, noises=2)("policy")
    first = pictures(one("policy"))
    torch.testing.assert_close(pictures(two)[:24], first)
    assert not torch.equal(pictures(two)[24:], first)
    assert two.scores.noises == 2
    assert len(two.scores.by_prompt("jpeg_kb")) == 24


def test_the_weight_set_that_is_named_is_judged(evaluator: Callable[..., Evaluator]) -> None:
    made = evaluator()
    before = pictures(made("policy"))
    made.model.weights.parameters["bias"].data.add_(1.0)
    torch.testing.assert_close(pictures(made(EMA)), before)
    assert not torch.equal(pictures(made("policy")), before)


def test_a_preview_is_the_beginning_of_an_evaluation(evaluator: Callable[..., Evaluator]) -> None:
    made = evaluator()
    torch.testing.assert_close(made.preview(EMA, 5).images, pictures(made(EMA))[:5])


def test_metrics_by_score_and_category(evaluator: Callable[..., Evaluator]) -> None:
    evaluation = evaluator()("policy")
    scores, metrics = evaluation.scores, evaluation_metrics(evaluation)
    categories = set(scores.categories or [])
    for name, values in scores.values.items():
        assert metrics[f"eval/{name}/mean"] == pytest.approx(values.mean())
        found = {key.split("/")[2] for key in metrics if key.startswith(f"eval/{name}/")}
        assert found == {"mean"} | categories
    assert metrics["eval/diversity"] > 0


@pytest.mark.parametrize("background", [True, False])
def test_further_rewards_judge_the_same_samples(
    evaluator: Callable[..., Evaluator], background: bool
) -> None:
    alone = evaluator()("policy").scores.values
    others = {"night": Dark(failed=1), "compressibility": Compressibility(quality=10)}
    made = replace(
        evaluator(), others=others, max_failed=0.05, scorer=Scorer(background=background)
    )
    evaluation = made("policy")
    scores = evaluation.scores
    assert [*scores.values] == [
        *("compressibility", "jpeg_kb", "night", "compressibility_evaluation"),
        *("night_jpeg_kb", "dark", "compressibility_evaluation_jpeg_kb"),
    ]
    for name, values in alone.items():
        assert (scores.values[name] == values).all()
    assert np.isnan(scores.values["night"]).tolist() == [True] + [False] * 23
    assert evaluation_metrics(evaluation)["eval/night/mean"] == pytest.approx(
        np.nanmean(scores.values["night"])
    )


def test_what_is_asked_already_is_not_asked_again(evaluator: Callable[..., Evaluator]) -> None:
    made, dark = evaluator(), Dark()
    same = replace(made, others={"compressibility": made.reward})
    assert [*same("policy").scores.values] == ["compressibility", "jpeg_kb"]
    whole = Combine(of=["dark"], parts={"dark": dark})
    found = replace(made, reward=whole, others={"dark": dark})("policy").scores.values
    assert [*found] == ["combined", "dark", "jpeg_kb", "dark_dark"]


def test_a_further_reward_that_fails_too_often_ends_the_evaluation(
    evaluator: Callable[..., Evaluator],
) -> None:
    made = replace(evaluator(), others={"night": Dark(failed=2)}, max_failed=0.05)
    with pytest.raises(TrainingError, match=r"8\.3% .* night.* max_failed=5\.0%"):
        made("policy")


def test_scores_know_what_is_better_of_them(evaluator: Callable[..., Evaluator]) -> None:
    made = replace(evaluator(), others={"jpeg_kb": Dark(), "new": Dark()})
    assert made("policy").scores.better == {
        "compressibility": "higher",
        "jpeg_kb": "lower",
        "jpeg_kb_evaluation": "higher",
        "new": "higher",
    }


def test_each_prompt_set_has_its_own_prompts_and_rewards(
    evaluator: Callable[..., Evaluator],
) -> None:
    own = evaluator()
    few = replace(own, prompts=own.prompts[:5], reward=None, others={"kb": Compressibility()})
    alone, together = own(EMA), replace(own, sets={"few": few})(EMA)
    score = [*alone.scores.values][0]
    expected = alone.scores.values[score]
    np.testing.assert_array_equal(together.scores.values[score], expected)
    np.testing.assert_array_equal(together.sets["few"].scores.values["kb"], expected[:5])
    metrics = evaluation_metrics(together)
    assert metrics["eval/few/kb/mean"] == together.sets["few"].scores.means()["kb"]
    assert metrics.keys() >= evaluation_metrics(alone).keys()
    assert few.main == "kb"
    assert together.sets["few"].scores.better["kb"] == "higher"


def test_measures_of_texts_are_means_over_texts_and_over_tokens() -> None:
    drawn = GeneratedSamples(
        texts=["so bad so bad so bad", "a fine film indeed"],  # 2 of 4 trigrams repeated, 0 of 2
        reference_log_prob=torch.tensor([-6.0, -12.0]),
        lengths=torch.tensor([6, 3]),
    )
    measured = text_measures(drawn)
    assert measured == {"repetition": 0.25, "reference_log_prob": -2.0}
    scores = Scores(prompts=["a"], values={}, texts=measured)
    metrics = evaluation_metrics(Evaluation(scores, drawn))
    assert metrics["eval/text/reference_log_prob"] == -2.0
    assert text_measures(replace(drawn, reference_log_prob=None)) == {"repetition": 0.25}
    assert text_measures(GeneratedSamples(images=torch.zeros(1, 3, 2, 2))) == {}


def test_measures_of_texts_are_those_of_all_ranks(together: Callable[..., list[Any]]) -> None:
    texts = ["so bad so bad so bad", "a fine film indeed", "no"]
    values, lengths = torch.tensor([-6.0, -12.0, -1.0]), torch.tensor([6, 3, 1])
    drawn = GeneratedSamples(texts=texts, reference_log_prob=values, lengths=lengths)

    def work(hardware: Hardware) -> dict[str, float]:
        rows = local_rows(torch.arange(3), hardware)
        assert rows is not None
        local = GeneratedSamples(
            texts=[texts[i] for i in rows.tolist()],
            reference_log_prob=values[rows],
            lengths=lengths[rows],
        )
        return text_measures(Shard(rows, hardware).all_gather(local))

    assert together(2, work) == [text_measures(drawn)] * 2


ROWS = [
    Prompt("The film:", {"completion": " dull.", "chosen": " good", "rejected": " bad plot"}),
    Prompt("A", {"completion": " good film with a plot", "chosen": " x", "rejected": " y"}),
    Prompt("Plot?", {"completion": " ok", "chosen": " fine", "rejected": " no"}),
]


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    made = CausalLM(torch.device("cpu"), path=str(gpt2_folder))
    made.weights.add(REFERENCE)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.weights.parameters.values():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return made


def evaluation(model: CausalLM, algo: Any, micro_batch: int = 8) -> GivenEvaluation:
    sampler = GivenSampler(
        model,
        completion=algo.completion,
        members=2 if algo.learns_from_pairs else 1,
        dynamics=Token(length=2),
        batch=2,
        advance=lambda count: None,
    )
    hardware = Local(device="cpu")
    components: Any = SimpleNamespace(model=model, algo=algo, sampler=sampler, hardware=hardware)
    return GivenEvaluation(components, seed=0, micro_batch=micro_batch)


@torch.no_grad()
def log_probs(model: CausalLM, prompt: str, completion: str) -> torch.Tensor:
    """Of each token of a completion and its end, by the network itself."""
    end = model.tokenizer.eos_token_id
    given, rest = (model.tokenizer(text).input_ids for text in (prompt, completion))
    ids = torch.tensor([end, *given, *rest, end])
    logits = model.network(ids[None]).logits[0, :-1].log_softmax(-1)
    return logits.gather(-1, ids[1:, None])[len(given) :, 0]


@pytest.mark.parametrize("micro_batch", [1, 8])
def test_the_loss_of_supervised_rows_is_a_mean_over_their_tokens(
    model: CausalLM, micro_batch: int
) -> None:
    given = evaluation(model, SFT(), micro_batch)
    scores = given.finish(given.measure(ROWS, None))
    losses = [-log_probs(model, row.text, row.metadata["completion"]) for row in ROWS]
    assert scores["loss"].mean().item() == pytest.approx(torch.cat(losses).mean().item(), abs=1e-5)
    sums = torch.tensor([loss.sum() for loss in losses])
    assert torch.allclose(scores["loss"].float(), sums * 3 / len(torch.cat(losses)), atol=1e-5)
    assert given.better == {"loss": "lower", "token_accuracy": "higher"}
    assert set(scores) == {"loss", "token_accuracy"}


def test_pairs_have_one_loss_each(model: CausalLM) -> None:
    given = evaluation(model, DPO(beta=0.5))
    scores = given.finish(given.measure(ROWS, None))
    for number, row in enumerate(ROWS):
        ratios = []
        for column in ("chosen", "rejected"):
            tuned = log_probs(model, row.text, row.metadata[column]).sum()
            with model.weights(REFERENCE):
                ratios.append(tuned - log_probs(model, row.text, row.metadata[column]).sum())
        margin = 0.5 * (ratios[0] - ratios[1])
        assert scores["margin"][number].item() == pytest.approx(margin.item(), abs=1e-4)
        loss = -torch.nn.functional.logsigmoid(margin).item()
        assert scores["loss"][number].item() == pytest.approx(loss, abs=1e-4)
        assert scores["preference_accuracy"][number].item() == float(margin > 0)


@pytest.mark.parametrize("algo", [SFT(), DPO()])
def test_a_rank_measures_its_own_rows(model: CausalLM, algo: Any) -> None:
    given = evaluation(model, algo)
    whole = given.measure(ROWS, None)
    part = given.measure(ROWS, torch.tensor([0, 2]))
    for name, values in part.items():
        assert torch.allclose(values, whole[name][[0, 2]], atol=1e-5)
