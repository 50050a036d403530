"""Compares a run's two networks, base and tuned, on texts that the base sampled."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.weight_sets import REFERENCE
from rlfactory.prompts.base import Prompt
from rlfactory.report.statistics import Change, paired_change
from rlfactory.reward.base import Reward, RewardError, Samples, score_checked
from rlfactory.tools.inspect.attribution import (
    attribute,
    lens,
    mean_probabilities,
    most_changed,
    token_directions,
)
from rlfactory.tools.inspect.hooked_model import Stream, Texts, boot, streams, texts_of
from rlfactory.train.sampling.base import Sampler
from rlfactory.utils.pytree import concat, index_rows, require

SAMPLES = 8  # of each prompt; the first is analysed token by token, all of them give the direction
_TOKENS = 8


def contrast(states: Tensor, scores: Tensor, groups: Tensor) -> Tensor | None:
    """A direction `[d]` along which good samples lie 1 above bad ones, on average.

    None if no two samples of a prompt differ in score.

    Args:
        states: `[B, d]`.
        scores: `[B]`; good and bad samples score above and below the mean of their prompt, so that
            differences between prompts don't count.
        groups: `[B]`, the number of each sample's prompt.
    """
    if not all(rows.any() for rows in _split(scores, groups)):
        return None
    gap = good_minus_bad(states, scores, groups)
    return gap / gap.square().sum()


def good_minus_bad(values: Tensor, scores: Tensor, groups: Tensor) -> Tensor:
    """The difference `[...]` of good and bad samples' mean `values` `[B, ...]`, each centred."""
    good, bad = _split(scores, groups)
    values = centred(values, groups)
    return values[good].mean(0) - values[bad].mean(0)


def separation(states: Tensor, scores: Tensor, groups: Tensor) -> float:
    """The probability that a good sample lies above a bad one on held-out prompts: the AUC.

    0.5 is chance. Two folds by prompt; NaN if one of them has no good or no bad samples.
    """
    folds = [_held_out(states, scores, groups, groups % 2 == fold) for fold in (0, 1)]
    return sum(folds) / len(folds)


def centred(values: Tensor, groups: Tensor) -> Tensor:
    """`values` `[B, ...]` minus the mean of their group."""
    return values - group_means(values, groups)[groups]


def group_means(values: Tensor, groups: Tensor) -> Tensor:
    """The mean `[G, ...]` of `values` `[B, ...]` in each group; 0 where a group is empty."""
    counts = torch.bincount(groups).clamp(min=1).to(values)
    sums = values.new_zeros(len(counts), *values.shape[1:]).index_add(0, groups, values)
    return sums / counts.view(-1, *[1] * (values.ndim - 1))


def _split(scores: Tensor, groups: Tensor) -> tuple[Tensor, Tensor]:
    """The masks `[B]` of good and of bad samples; those within rounding of the mean are neither."""
    difference = centred(scores.double(), groups)
    tolerance = 1e-6 * scores.abs().max().clamp(min=1e-6)
    return difference > tolerance, difference < -tolerance


def _held_out(states: Tensor, scores: Tensor, groups: Tensor, test: Tensor) -> float:
    direction = contrast(states[~test], scores[~test], groups[~test])
    good, bad = _split(scores[test], groups[test])
    if direction is None or not (good.any() and bad.any()):
        return float("nan")
    along = centred(states[test], groups[test]) @ direction
    pairs = along[good][:, None] - along[bad][None]
    return float(((pairs > 0).double() + 0.5 * (pairs == 0).double()).mean())


@dataclass(frozen=True)
class TokenView:
    """Predictions of one network for K tokens at P positions.

    Attributes:
        lens: `[P, L + 1, K]`, the logit lens: log-probabilities after each of L layers.
        next: `[P, L + 1]`, the same for the token that follows in the text.
        parts: `[P, N, K]`, the contributions of the N parts of the network to the K logits.
        ends: `[P]`, true where a prompt ends.
        sample: `[P]`, the number of the text.
    """

    lens: Tensor
    next: Tensor
    parts: Tensor
    ends: Tensor
    sample: Tensor


@dataclass(frozen=True)
class DirectionView:
    """The direction from bad to good samples, and the contributions of the parts along it.

    Attributes:
        gap: `[N]`, good minus bad samples in the base; it sums to 1.
        shift: `[N]`, tuned minus base on the same texts.
        change: the sum of `shift` over prompts, with its interval.
        separation: how often a held-out good sample lies above a bad one; 0.5 is chance.
        up: `[K]`, the tokens that the direction promotes most.
        down: `[K]`, those that it demotes most.
    """

    gap: Tensor
    shift: Tensor
    change: Change
    separation: float
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Survey:
    """The comparison of both networks on the same texts.

    Attributes:
        texts: the first sample of each prompt.
        scores: their scores by the run's reward.
        ids: `[2 K]`, the K tokens whose mean probability rose most, then the K that fell most.
        probability: `[2, V]`, mean probabilities in the base and in the tuned network.
        direction: None where no two samples of a prompt differ in reward.
    """

    texts: Texts
    scores: Tensor
    ids: Tensor
    probability: Tensor
    base: TokenView
    tuned: TokenView
    direction: DirectionView | None

    @property
    def layers(self) -> int:
        """L."""
        return self.base.lens.shape[1] - 1

    @property
    def heads(self) -> int:
        """H, of a layer."""
        return (self.base.parts.shape[1] - 2) // self.layers - 2

    def attributions(self) -> tuple[Tensor, Tensor]:
        """The contributions `[N, 2 K]` in base and in tuned, averaged over positions.

        The weights are how far a token's probability moved there in the direction in which it
        moved on average; positions where it moved in the other one have weight 0.
        """
        change = self.tuned.lens[:, -1].exp() - self.base.lens[:, -1].exp()
        half = len(self.ids) // 2
        weights = torch.cat([change[:, :half], -change[:, half:]], 1).clamp(min=0)
        weights = weights / weights.sum(0).clamp(min=1e-12)
        base, tuned = ((view.parts * weights[:, None]).sum(0) for view in (self.base, self.tuned))
        return base, tuned


def survey(
    model: CausalLM,
    sampler: Sampler,
    reward: Reward,
    prompts: Sequence[Prompt],
    *,
    weights: str,
    seed: int,
) -> Survey:
    """Compare the weight set `weights` with the reference; `seed` keys the sampled texts."""
    if not reward.gives_scores:
        raise RewardError(
            "inspect compares texts by a reward's score, and this run has none (reward=none);"
            " begin one with a reward, as reward=length"
        )
    with model.weights(REFERENCE):
        groups = torch.arange(len(prompts)).repeat_interleave(SAMPLES)
        rollout = sampler.rollout(prompts, groups, seed=seed, iteration=0)
        base = boot(model.network, model.tokenizer)
    with model.weights(weights):
        tuned = boot(model.network, model.tokenizer)
    samples = Samples(rollout.prompts, rollout.metadata, rollout.groups, texts=rollout.texts)
    scores = score_checked(reward, samples)[reward.main]
    all_texts = texts_of(require(rollout.tokens, "tokens"))
    texts = index_rows(all_texts, torch.arange(0, len(groups), SAMPLES))
    before, after = (mean_probabilities(bridge, texts) for bridge in (base, tuned))
    count = min(_TOKENS, len(before) // 4)
    ids = torch.cat(most_changed(before, after, count))
    return Survey(
        texts=texts,
        scores=scores[::SAMPLES],
        ids=ids,
        probability=torch.stack([before, after]),
        base=_token_view(base, texts, ids),
        tuned=_token_view(tuned, texts, ids),
        direction=_direction_view(base, tuned, all_texts, scores, groups, count),
    )


@torch.no_grad()
def _token_view(bridge: TransformerBridge, texts: Texts, ids: Tensor) -> TokenView:
    views, done = [], 0
    directions, offset = token_directions(bridge, ids)
    for part, stream in streams(bridge, texts):
        view = TokenView(
            lens=lens(bridge, stream, ids.expand(len(stream.start), -1)).cpu(),
            next=lens(bridge, stream, part.next[:, None])[..., 0].cpu(),
            parts=attribute(bridge, stream, directions, offset).cpu(),
            ends=part.ends[part.foretold],
            sample=done + part.foretold.nonzero()[:, 0],
        )
        views.append(view)
        done += len(part.ids)
    return concat(views)


@torch.no_grad()
def _direction_view(
    base: TransformerBridge,
    tuned: TransformerBridge,
    texts: Texts,
    scores: Tensor,
    groups: Tensor,
    count: int,
) -> DirectionView | None:
    scored = (~scores.isnan()).nonzero()[:, 0]
    states = _response_means(base, texts, lambda stream: stream.final)[scored]
    scored_groups, scores = groups[scored], scores[scored]
    direction = contrast(states, scores, scored_groups)
    if direction is None:
        return None
    u = direction.to(base.W_U.device)[None]

    def along(bridge: TransformerBridge, stream: Stream) -> Tensor:
        return attribute(bridge, stream, u, u.new_zeros(1))[..., 0]

    before, after = (_response_means(net, texts, partial(along, net)) for net in (base, tuned))
    by_prompt = [group_means(parts.sum(1), groups).numpy() for parts in (before, after)]
    tokens = base.W_U.detach()
    tokens = tokens - tokens.mean(1, keepdim=True)
    cosines = u[0] @ tokens / (tokens.norm(dim=0) * u.norm()).clamp(min=1e-12)
    order = cosines.cpu().argsort(descending=True)
    return DirectionView(
        gap=good_minus_bad(before[scored], scores, scored_groups),
        shift=(after - before).mean(0),
        change=paired_change(*by_prompt),
        separation=separation(states, scores, scored_groups),
        up=order[:count],
        down=order.flip(0)[:count],
    )


def _response_means(
    bridge: TransformerBridge, texts: Texts, measure: Callable[[Stream], Tensor]
) -> Tensor:
    """The mean `[B, ...]` over each response of what is measured at its positions, `[P, ...]`."""
    found = ((part.foretold.nonzero()[:, 0], measure(own)) for part, own in streams(bridge, texts))
    return torch.cat([group_means(x, rows.to(x.device)).cpu() for rows, x in found])
