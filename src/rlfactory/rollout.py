"""The data of one iteration: samples, how they were drawn, their rewards and advantages.

Dimensions: B samples (rows of a rollout), T stochastic steps, latents of C x H x W (of videos, of
C x t x H x W), P prompt tokens and G response tokens. Every tensor and list has one row for each
sample, so that `rollout[rows]` selects samples, and `pytree.concat` appends them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import pad

from rlfactory.utils.pytree import SharedRows, concat, index_rows, require, to_device


@dataclass(frozen=True)
class Condition(SharedRows):
    """The encoded prompts of B samples, which a network is conditioned on.

    Attributes:
        tensors: Named tensors `[B, ...]`, a row for each sample; or `[P, ...]`, a row for each of P
            prompts: an embedding of FLUX has 4 MB, and a prompt has a group of samples.
        prompt: Row in them of each sample's prompt, `[B]` on the CPU; None: they are in order.
    """

    tensors: Mapping[str, Tensor]
    prompt: Tensor | None = None

    def rows(self, index: Tensor) -> "Condition":
        """A row for each of the samples `index` `[n]`, which is where `prompt` is."""
        return Condition(
            index_rows(self.tensors, index if self.prompt is None else self.prompt[index])
        )

    def with_prompts_on(self, device: torch.device) -> Self:
        """The same with `prompt` on a device, where `rows` of an index there copies nothing."""
        if self.prompt is None:
            return self
        return replace(self, prompt=to_device(self.prompt, device))

    def select(self, index: Tensor) -> "Condition":
        """The samples `index`; embeddings that samples share stay as they are."""
        if self.prompt is None:
            return self.rows(index)
        return replace(self, prompt=self.prompt[index])

    @classmethod
    def append(cls, parts: Sequence[Self]) -> Self:
        """The samples of all parts; embeddings that the parts share are not copied."""
        first, prompts = parts[0].tensors, [p.prompt for p in parts if p.prompt is not None]
        if prompts and all(part.tensors is first for part in parts):
            return cls(first, torch.cat(prompts))
        tensors = {name: torch.cat([part.tensors[name] for part in parts]) for name in first}
        if not prompts:
            return cls(tensors)
        counts = torch.tensor([len(next(iter(part.tensors.values()))) for part in parts])
        offsets = (counts.cumsum(0) - counts).tolist()
        moved = [rows + offset for rows, offset in zip(prompts, offsets, strict=True)]
        return cls(tensors, torch.cat(moved))


@dataclass(frozen=True)
class Transitions:
    """The stochastic steps of the samples, T each.

    Attributes:
        t: Time before the step, `[B, T]`.
        t_next: Time after it, `[B, T]`.
        x: State before the step, `[B, T, C, H, W]`.
        next: State after it, `[B, T, C, H, W]`.
        log_prob: Log-probability of the step under the behaviour policy, `[B, T]`.
        mean: Mean of the behaviour policy's step, `[B, T, C, H, W]`; only for algorithms with
            `stores_step_mean`.
        pass_rows: Number of samples in the forward pass that drew the step, `[B, T]`; None where
            that is unknown.
    """

    t: Tensor
    t_next: Tensor
    x: Tensor
    next: Tensor
    log_prob: Tensor
    mean: Tensor | None = None
    pass_rows: Tensor | None = None


@dataclass(frozen=True)
class Tree:
    """Where samples lie in the trees that they are the leaves of (branching with `branch_at=tree`).

    Attributes:
        node: The node that a sample descends from, before the first stochastic step and after each
            of the T, `[B, T + 1]` on the CPU: the number of the first sample below it.
        step: Number of the sampling step of each transition, `[B, T]` on the CPU.
        log_prob: Log-probability of each transition under the behaviour policy, `[B, T]`.
        trained: Whether a transition is trained as an item of this sample, `[B, T]` on the CPU; of
            one that several samples share, one trains it. None before advantages are computed.
    """

    node: Tensor
    step: Tensor
    log_prob: Tensor
    trained: Tensor | None = None


@dataclass(frozen=True)
class Tokens:
    """Prompts, padded on the left, and responses, padded on the right.

    Attributes:
        prompt: Token ids, `[B, P]`.
        prompt_mask: True on the prompt's tokens, `[B, P]`.
        response: Token ids, `[B, G]`.
        mask: True on the response's tokens, an end-of-text token included, `[B, G]`.
        ended: Whether the response ended by itself rather than at the length limit, `[B]`.
        log_prob: Log-probability under the behaviour policy, `[B, G]`.
        value: Value of the state before each token, at the rollout, `[B, G]`. By a value model also
            of the state after an end, in the column after it.
        reference_log_prob: Log-probability under the reference policy, `[B, G]`, where a
            regularizer keeps it.
        divergence: The behaviour policy's divergence from the reference, `[B, G]`, where the
            reward is reduced by it.
        engine_log_prob: Log-probability under the distribution that an engine drew the tokens from,
            `[B, G]`, where it was no loop of ours; `log_prob` is then the trainer's own.
        lengths: How many tokens each prompt and each response has, whether it ended (1 or 0), the
            prompt's `row_keys`, and whether `log_prob` has no NaN (1 or 0), `[B, 5]` on the CPU,
            where that was read: shapes and equal prompts then follow without a wait for the device.
    """

    prompt: Tensor
    prompt_mask: Tensor
    response: Tensor
    mask: Tensor
    ended: Tensor
    log_prob: Tensor
    value: Tensor
    reference_log_prob: Tensor | None = None
    divergence: Tensor | None = None
    engine_log_prob: Tensor | None = None
    lengths: Tensor | None = None

    def measured(self) -> "Tokens":
        """The same with `lengths`; waits for the device, once, unless they are known."""
        if self.lengths is not None:
            return self
        columns = [self.prompt_mask.sum(1), self.mask.sum(1), self.ended.long()]
        columns.append(row_keys(self.prompt, self.prompt_mask))
        columns.append((~self.log_prob.isnan().any(1)).long())
        return replace(self, lengths=torch.stack(columns, 1).cpu())

    def with_end_state(self) -> "Tokens":
        """The same whose mask has also the column after the end of each response that ended.

        Its token is padding; the state before it is the one after the end. A response that ended
        with its last possible token has no such column.
        """
        column = torch.arange(self.mask.shape[1], device=self.mask.device)
        is_after = (column == self.mask.sum(1, keepdim=True)) & self.ended[:, None]
        return replace(self, mask=self.mask | is_after, lengths=None)

    def widened(self, width: int) -> "Tokens":
        """The same with `width` columns of prompts, those added padding on the left."""
        added = (width - self.prompt.shape[1], 0)
        prompt, mask = pad(self.prompt, added), pad(self.prompt_mask, added)
        return replace(self, prompt=prompt, prompt_mask=mask)

    def part(self, rows: slice) -> "Tokens":
        """Some rows, without the columns that are padding in all of them. Needs no wait."""
        lengths = self._known_lengths()[rows]
        prompt, response = lengths[:, :2].amax(0).tolist()
        first = self.prompt.shape[1] - prompt
        kept = {"prompt": slice(first, None), "prompt_mask": slice(first, None)}
        columns: dict[str, Any] = {
            f.name: None if value is None else value[rows, kept.get(f.name, slice(response))]
            for f in fields(self)
            if f.name not in ("ended", "lengths")
            for value in [getattr(self, f.name)]
        }
        return Tokens(**columns, ended=self.ended[rows], lengths=lengths)

    @property
    def response_lengths(self) -> Tensor:
        """How many tokens each response has, `[B]`, on the CPU."""
        return self._known_lengths()[:, 1]

    @property
    def total_lengths(self) -> Tensor:
        """How many tokens each prompt has together with its response, `[B]`, on the CPU."""
        return self._known_lengths()[:, :2].sum(1)

    @property
    def ended_on_cpu(self) -> Tensor:
        """`ended`, on the CPU."""
        return self._known_lengths()[:, 2].bool()

    @property
    def prompt_keys(self) -> Tensor:
        """A number for each prompt, equal for equal ones, `[B]`, on the CPU."""
        return self._known_lengths()[:, 3]

    @property
    def has_log_probs(self) -> bool:
        """Whether all log-probabilities are numbers."""
        return bool(self._known_lengths()[:, 4].all())

    @property
    def count(self) -> int:
        """M, the number of real response tokens."""
        return int(self.response_lengths.sum())

    @property
    def prompts_are_padded(self) -> bool:
        """Whether some prompt is shorter than P."""
        return bool((self._known_lengths()[:, 0] < self.prompt.shape[1]).any())

    def real(self, values: Tensor) -> Tensor:
        """The `values` `[B, G, ...]` of the real response tokens, in order, `[M, ...]`."""
        return values.flatten(0, 1).index_select(0, self._positions)

    def pad(self, values: Tensor) -> Tensor:
        """The inverse of `real`: values `[M]` as `[B, G]`, 0 on padding."""
        padded = values.new_zeros(self.mask.numel(), dtype=self.log_prob.dtype)
        return padded.index_copy(0, self._positions, values).view(self.mask.shape)

    @cached_property
    def _positions(self) -> Tensor:
        # a boolean index, or `nonzero`, waits for the device to learn how many there are
        return torch.nonzero_static(self.mask.flatten(), size=self.count)[:, 0]

    def _known_lengths(self) -> Tensor:
        return require(self.measured().lengths, "lengths")


def row_keys(ids: Tensor, mask: Tensor) -> Tensor:
    """A number of 64 bits for each row `[B]`, equal where the token ids that `mask` marks are.

    Computed on the device, so that rows are compared without a wait. That different rows have the
    same one is as unlikely as for random numbers. Padding on the left changes nothing.
    """
    mixed = (ids + 1) * 0x1E3779B97F4A7C15 + mask.cumsum(1) * 0x3F58476D1CE4E5B9  # overflows
    for shift in (31, 29):
        mixed = (mixed ^ (mixed >> shift)) * 0x14D049BB133111EB
    return ((mixed ^ (mixed >> 32)) * mask).sum(1)


class GlobalRollout:
    """All ranks' samples without images, latents, transitions and conditions.

    `padding` is one of this rank's samples with advantage 0, which pads its micro-batches to the
    number that other ranks have. Not a dataclass, so that selecting rows of a rollout leaves it as
    it is.
    """

    def __init__(self, samples: "Rollout", padding: "Rollout | None" = None) -> None:
        self.samples, self.padding = samples, padding


@dataclass(frozen=True)
class Rollout:
    """One iteration's samples, on one rank.

    Attributes:
        prompts: Text of each sample's prompt.
        metadata: The prompt's metadata, for rewards.
        groups: Number of the prompt's group within the iteration, `[B]`.
        index: Number of the sample within the iteration, over all ranks, `[B]`; the key of its
            random draws.
        condition: Encoded prompts; images and videos only.
        latents: Final latents, `[B, C, H, W]`; images and videos only.
        state: Latents before the step `Algorithm.kept_step`, `[B, C, H, W]`; only for algorithms
            that require states.
        images: Decoded uint8 images, `[B, 3, height, width]`, or videos of F frames, `[B, F, 3,
            height, width]`, on the CPU.
        transitions: Stochastic steps; only for algorithms that train on them.
        tokens: Prompts and responses; texts only.
        texts: The decoded responses; texts only.
        rewards: Scores `[B]` by name, NaN where scoring failed.
        penalty: What the regularizer takes off the reward of each token, `[B, G]`.
        penalty_weight: Weight of each sample in the regularizer's penalty, `[B]`; None: 1.
        advantage: `[B]`, `[B, G]` for tokens, or `[B, T]` for the edges of a tree.
        returns: Targets of the value head, `[B, G]`.
        comparison_group: `[B]`; samples with the same number are compared by the advantage, where
            that is fewer than a group (branching at each step).
        tree: Where samples share steps, with `branch_at=tree`.
        old_log_prob: Log-likelihoods of the T training items under the behaviour policy, `[B, T]`,
            computed before the first update: of a surrogate, or of sampling steps in place of
            those recorded while sampling. NaN where the update is on-policy.
        loss_weight: Factor on the mean loss over these samples; below 1 where samples with zero
            loss were left out of a mean over all.
        token_weight: Weight of each response's tokens in an update's mean loss, `[B]`; None: 1.
        all_ranks: The samples of all ranks; None with one rank.
    """

    prompts: list[str]
    metadata: list[Mapping[str, Any]]
    groups: Tensor
    index: Tensor
    condition: Condition | None = None
    latents: Tensor | None = None
    state: Tensor | None = None
    images: Tensor | None = None
    transitions: Transitions | None = None
    tokens: Tokens | None = None
    texts: list[str] | None = None
    rewards: Mapping[str, Tensor] = field(default_factory=dict)
    penalty: Tensor | None = None
    penalty_weight: Tensor | None = None
    advantage: Tensor | None = None
    returns: Tensor | None = None
    comparison_group: Tensor | None = None
    tree: Tree | None = None
    old_log_prob: Tensor | None = None
    loss_weight: float = 1.0
    token_weight: Tensor | None = None
    all_ranks: GlobalRollout | None = None

    def __len__(self) -> int:
        return len(self.groups)

    def __getitem__(self, index: Tensor) -> "Rollout":
        return index_rows(self, index)

    @property
    def mean_length(self) -> float:
        """Mean number of response tokens; 1 for images, 0 without samples."""
        return 1.0 if self.tokens is None else self.tokens.count / max(1, len(self))


def append_rollouts(parts: Sequence[Rollout]) -> Rollout:
    """The samples of several rounds of sampling; prompts are padded to the widest round's width."""
    width = max((p.tokens.prompt.shape[1] for p in parts if p.tokens is not None), default=0)
    return concat([replace(p, tokens=p.tokens and p.tokens.widened(width)) for p in parts])


@dataclass(frozen=True)
class GeneratedSamples:
    """Samples drawn to be evaluated or shown, not to be learned from.

    Attributes:
        images: `[N, 3, H, W]` uint8 on the CPU, of an image model; `[N, F, 3, H, W]` of a video
            model.
        texts: N completions, of a language model.
        kl: `[N]`, `log p - log p_reference` of each completion in nats, whose mean is the KL
            divergence per response; None where no reference is kept.
        reference_log_prob: `[N]`, `log p_reference` of each completion in nats, like `kl`.
        lengths: `[N]`, the number of tokens of each completion.
        ended: `[N]`, whether each completion ended by itself.
        frame_rate: frames per second of videos.
    """

    images: Tensor | None = None
    texts: list[str] | None = None
    kl: Tensor | None = None
    reference_log_prob: Tensor | None = None
    lengths: Tensor | None = None
    ended: Tensor | None = None
    frame_rate: int = 16
