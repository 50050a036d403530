"""Everything that is measured inside a run's two networks, on texts that the base wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge

from rlfactory.inspection.attribution import (
    Attribution,
    Readout,
    attribute,
    readout,
    require_complete,
    token_directions,
)
from rlfactory.inspection.bridge import boot, streams
from rlfactory.inspection.direction import contrast, good_less_bad, group_means, separation
from rlfactory.inspection.lens import lens, mean_probabilities, most_changed
from rlfactory.inspection.texts import Texts, texts_of
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.weights import REFERENCE
from rlfactory.nest import join, present, take
from rlfactory.prompts.base import Prompt
from rlfactory.reward.base import Reward, Samples, judge
from rlfactory.rollout import Rollout
from rlfactory.run.statistics import Change, paired_change
from rlfactory.sampler.base import Sampler

SAMPLES = 8  # of each prompt; the first is read token by token, all of them give the direction
_TOKENS = 8


@dataclass(frozen=True)
class TokenView:
    """What a network makes of K tokens at P foretold positions.

    `lens` is `[P, L + 1, K]`, `next` `[P, L + 1]` the same of the token that came, `parts` the
    attribution of the logits. `ends` `[P]` is true where a prompt ends, `sample` `[P]` the text.
    """

    lens: Tensor
    next: Tensor
    parts: Attribution
    ends: Tensor
    sample: Tensor


@dataclass(frozen=True)
class DirectionView:
    """The direction from bad to good samples, and what the parts write along it, in one row each.

    `gap` is good less bad samples in the base, which makes 1, `shift` tuned less base on the same
    texts; `change` is that of its sum, over prompts. `up` and `down` `[K]` are the tokens that the
    direction speaks for and against.
    """

    gap: Attribution
    shift: Attribution
    change: Change
    separation: float
    up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Survey:
    """Both networks on the same texts; `ids` `[2 K]` are K tokens that rose, then K that fell.

    `probability` `[2, V]` is the mean of each token, base and tuned. `direction` is None where the
    reward tells no two samples of a prompt apart.
    """

    texts: Texts
    scores: Tensor
    ids: Tensor
    probability: Tensor
    base: TokenView
    tuned: TokenView
    direction: DirectionView | None

    def attributions(self) -> tuple[Attribution, Attribution]:
        """Base and tuned, one row: each token's where its probability moved as it did overall."""
        moved = self.tuned.lens[:, -1].exp() - self.base.lens[:, -1].exp()
        rose = torch.ones(len(self.ids))
        rose[len(self.ids) // 2 :] = -1
        weights = (moved * rose).clamp(min=0)
        return self.base.parts.weighted(weights), self.tuned.parts.weighted(weights)


def survey(
    model: CausalLM,
    sampler: Sampler,
    reward: Reward,
    prompts: Sequence[Prompt],
    *,
    weights: str,
    seed: int,
) -> Survey:
    """Compare the weight set `weights` with the reference."""
    with model.weights(REFERENCE):
        groups = torch.arange(len(prompts)).repeat_interleave(SAMPLES)
        rollout = sampler.rollout(prompts, groups, seed=seed, iteration=0)
        base = boot(model.network, model.tokenizer)
    with model.weights(weights):
        tuned = boot(model.network, model.tokenizer)
    scores = _scores(reward, rollout)
    everything = texts_of(present(rollout.tokens, "tokens"))
    texts = take(everything, torch.arange(0, len(groups), SAMPLES))
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
        direction=_direction_view(base, tuned, everything, scores, groups, count),
    )


def _scores(reward: Reward, rollout: Rollout) -> Tensor:
    samples = Samples(rollout.prompts, rollout.metadata, rollout.groups, texts=rollout.texts)
    return judge(reward, samples)[reward.main]


@torch.no_grad()
def _token_view(bridge: TransformerBridge, texts: Texts, ids: Tensor) -> TokenView:
    fixed, views, done = readout(bridge), [], 0
    directions, offset = token_directions(fixed, ids, centred=True)
    for part, stream in streams(bridge, texts):
        found = attribute(stream, fixed, directions, offset)
        require_complete(found, stream, directions, offset)
        view = TokenView(
            lens=lens(bridge, stream, ids.expand(len(stream.start), -1)).cpu(),
            next=lens(bridge, stream, part.next[:, None])[..., 0].cpu(),
            parts=found.map(Tensor.cpu),
            ends=part.ends[part.foretold],
            sample=done + part.foretold.nonzero()[:, 0],
        )
        views.append(view)
        done += len(part.ids)
    return join(views)


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
    states, own, scores = _states(base, texts)[scored], groups[scored], scores[scored]
    direction = contrast(states, scores, own)
    if direction is None:
        return None
    before, after = (_along(bridge, texts, direction) for bridge in (base, tuned))
    by_prompt = [group_means(a.total()[:, 0], groups).numpy() for a in (before, after)]
    order = _spoken_for(readout(base), direction).argsort(descending=True)
    return DirectionView(
        gap=before.map(lambda x: good_less_bad(x[scored], scores, own)[None]),
        shift=_mean_difference(before, after),
        change=paired_change(*by_prompt),
        separation=separation(states, scores, own),
        up=order[:count],
        down=order.flip(0)[:count],
    )


def _states(bridge: TransformerBridge, texts: Texts) -> Tensor:
    """The mean final state `[B, d]` of each response."""
    means = [
        group_means(stream.final, part.foretold.nonzero()[:, 0].to(stream.final.device)).cpu()
        for part, stream in streams(bridge, texts)
    ]
    return torch.cat(means)


def _along(bridge: TransformerBridge, texts: Texts, direction: Tensor) -> Attribution:
    """Contributions to the direction, the mean of each response."""
    fixed, means = readout(bridge), []
    u = direction.to(fixed.gain.device)[None]
    for part, stream in streams(bridge, texts):
        found = attribute(stream, fixed, u, u.new_zeros(1))
        require_complete(found, stream, u, u.new_zeros(1))
        rows = part.foretold.nonzero()[:, 0].to(u.device)
        means.append(found.map(partial(group_means, groups=rows)).map(Tensor.cpu))
    return join(means)


def _mean_difference(before: Attribution, after: Attribution) -> Attribution:
    """One row."""
    means = [found.map(lambda x: x.mean(0, keepdim=True)) for found in (before, after)]
    return join(means).map(lambda x: x[1:] - x[:1])


def _spoken_for(fixed: Readout, direction: Tensor) -> Tensor:
    """The cosine `[V]` of the direction with each token's, less the vocabulary's mean."""
    own = fixed.unembed - fixed.unembed.mean(1, keepdim=True)
    u = direction.to(own.device)
    cosine: Tensor = u @ own / (own.norm(dim=0) * u.norm()).clamp(min=1e-12)
    return cosine.cpu()
