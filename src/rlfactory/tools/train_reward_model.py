"""`rlfactory reward-model`: a reward model from pairs, for `reward.path` and `model.value_path`.

It learns pairs of completions by the Bradley-Terry loss (arXiv 2009.01325, eq. 1). Texts are those
that the policy reads and writes: by the chat template, where there is one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from rlfactory.model.lm.critic import ScoreFormat, end_scores, has_state_scores, load_scorer
from rlfactory.model.lm.loading import (
    begins_with_end,
    context_of,
    disable_dropout,
    load_tokenizer,
    skip_padding_check,
)
from rlfactory.model.lm.prompt_format import PromptFormat
from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.prompts.base import Prompt, PromptError
from rlfactory.prompts.hub import load_prompts
from rlfactory.prompts.ops.chat import reply_text
from rlfactory.prompts.ops.held_out import FEWEST, held_out_texts
from rlfactory.prompts.ops.prompt_list import RowReader
from rlfactory.run.atomic_write import write_json, write_text
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.folder import RunFolder
from rlfactory.utils.errors import ModelError, TrainingError, UserError

REPORT = "reward_model.json"
CARD = """# A reward model

A `{kind}` trained by `rlfactory reward-model` from `{base}`, on {pairs} pairs of completions.
On {held_out} held-out pairs it prefers the chosen one in {accuracy:.1%}; `reward_model.json` has
the course. Scores are read after the end of text, after the text before prompts that config.json
names in `rlfactory_score`, and the `mean` there is subtracted: on reference completions they are
0 on average. transformers alone does neither.

    rlfactory reward=reward_model reward.path=FOLDER model.value_path=FOLDER ...
"""
REFERENCE = "reference"
COLUMNS = ("chosen", "rejected", REFERENCE)
MAX_GRAD_NORM = 1.0
Ids = list[int]


@dataclass(frozen=True)
class RewardModelOptions:
    """How a reward model is trained; see the flags of `rlfactory reward-model`."""

    epochs: int = 1
    lr: float = 1e-5
    batch: int = 64
    micro_batch: int = 16
    seed: int = 0


@dataclass(frozen=True)
class Pair:
    """Two completions of a prompt, of which one was preferred; and a reference, such as a human's,
    whose score counts as 0 on average.
    """

    prompt: str
    chosen: str
    rejected: str
    reference: str


class EncodedPair(NamedTuple):
    """The token ids of a pair: prompt and completion, from the text before to the end of text."""

    chosen: Ids
    rejected: Ids
    reference: Ids

    @property
    def longest(self) -> int:
        """Tokens of the longest of the three."""
        return max(map(len, self))


def reward_model(
    base: str, pairs: str, to: Path, share: float, options: RewardModelOptions
) -> None:
    """Train a reward model and write its folder.

    Args:
        base: the language model, or reward model, to begin from: a run folder, whose newest
            checkpoint is meant, or what `model.path` takes.
        pairs: what `prompts.path` takes: a file, a folder or a hub id.
        share: of the prompts whose pairs are held out.
    """
    training, held_out = split_pairs(read_pairs(pairs), share)
    network, tokenizer, path = _load(base, options.seed)
    prefix = tokenizer.eos_token if begins_with_end(tokenizer) else ""
    form = PromptFormat(tokenizer, text_role="auto", begin=prefix)
    limit = context_of(network, tokenizer)
    encoded = [[encode_pair(form, pair) for pair in part] for part in (training, held_out)]
    fitting = [[pair for pair in part if pair.longest <= limit] for part in encoded]
    dropped = sum(map(len, encoded)) - sum(map(len, fitting))
    if not all(fitting):
        message = f"hardly a pair of {pairs} has at most the {limit} tokens that {base} reads"
        raise UserError(message)
    print(f"{len(fitting[0])} pairs to train on, {len(fitting[1])} held out", flush=True)
    if dropped:
        print(f"{dropped} pairs have more than {limit} tokens and are left out")
    found = _train(network, fitting[0], fitting[1], options)
    _write(to, network, tokenizer, prefix, found | {"base": path, "dropped": dropped})
    print(f"{to}: reward.path={to} model.value_path={to}")


def _load(base: str, seed: int) -> tuple[Any, Any, str]:
    """The network in float32 with a score of each token, its tokenizer, and its path."""
    path, folder = base, RunFolder(Path(base))
    if folder.config.is_file():
        if (checkpoint := newest(folder.checkpoints)) is None:
            raise ModelError(f"{base} holds no checkpoint yet")
        path = str(checkpoint)
    network, missing = load_scorer(path, "BASE")
    tokenizer = load_tokenizer(path, key="BASE")
    if not has_state_scores(network):
        message = f"{base} is a {type(network).__name__}, which has no score to read at each token"
        raise ModelError(f"{message}; name a causal language model")
    if tokenizer.eos_token is None:
        message = "its tokenizer has no end of text, after which scores are read"
        raise ModelError(f"{base}: {message}; set eos_token in its tokenizer_config.json")
    if missing:
        # 1 / sqrt(d + 1), as in OpenAI's code of arXiv 2009.01325
        width = network.score.weight.shape[1]
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(network.score.weight, std=(width + 1) ** -0.5, generator=generator)
    disable_dropout(network)
    skip_padding_check(network)
    pad = tokenizer.pad_token_id
    network.config.get_text_config().pad_token_id = tokenizer.eos_token_id if pad is None else pad
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return network.to(device).eval().requires_grad_(True), tokenizer, path


def _train(
    network: Any,
    pairs: Sequence[EncodedPair],
    held_out: Sequence[EncodedPair],
    options: RewardModelOptions,
) -> dict[str, Any]:
    """Train, print the accuracy and the loss on held-out pairs after each epoch, and return them
    with the statistics of reference completions.
    """
    course: list[dict[str, Any]] = []
    for epoch, loss in enumerate(chain([None], train(network, pairs, options))):
        sides = [[pair.chosen for pair in held_out], [pair.rejected for pair in held_out]]
        chosen, rejected = (scores_of(network, side, options.micro_batch) for side in sides)
        accuracy = float((chosen > rejected).float().mean())
        lost = float(bradley_terry(chosen, rejected).mean())
        trained = "" if loss is None else f"loss {loss:.4f}, "
        found = f"{trained}held-out loss {lost:.4f}, accuracy {accuracy:.3f}"
        print(f"epoch {epoch}/{options.epochs}: {found}", flush=True)
        course.append({"epoch": epoch, "loss": loss, "held_out_loss": lost, "accuracy": accuracy})
    references = scores_of(network, [pair.reference for pair in pairs], options.micro_batch)
    return {
        "pairs": len(pairs),
        "held_out": len(held_out),
        "accuracy": course[-1]["accuracy"],
        "reference_mean": float(references.mean()),
        "reference_std": float(references.std(unbiased=False)),
        "epochs": course,
        "options": asdict(options),
    }


def _write(folder: Path, network: Any, tokenizer: Any, prefix: str, found: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ScoreFormat(prefix, True, found["reference_mean"]).record(network.config)
    with no_bars():
        network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_json(folder / REPORT, found)
    shown = found | {"kind": type(network).__name__, "base": Path(found["base"]).name}
    write_text(folder / "README.md", CARD.format(**shown))


def read_pairs(path: str) -> list[Pair]:
    """The pairs of a data set; without a `reference` the chosen completion is one.

    Raises:
        PromptError: it can't be read, or a row lacks a text or has two equal ones.
    """
    rows = load_prompts(path, "train", RowReader())
    return [_pair(row, f"{path}: pair {n}") for n, row in enumerate(rows, start=1)]


def _pair(row: Prompt, where: str) -> Pair:
    texts: dict[str, str] = {}
    for column in COLUMNS:
        value = row.metadata.get(column)
        if column == REFERENCE and value is None:
            value = texts["chosen"]
        try:
            text = reply_text(value)
        except ValueError as error:
            raise PromptError(f"{where}: `{column}`: {error}") from error
        if not isinstance(text, str) or not text.strip():
            actual = f"it is {text!r}" if column in row.metadata else "there is none"
            keys = ", ".join(["prompt", *row.metadata])
            raise PromptError(f"{where}: `{column}` must be a text, and {actual}; its keys: {keys}")
        texts[column] = text
    if texts["chosen"].strip() == texts["rejected"].strip():
        message = f"`chosen` and `rejected` are equal, {texts['chosen'][:40]!r}"
        raise PromptError(f"{where}: {message}; nothing is preferred, remove the line")
    return Pair(row.text, **texts)


def split_pairs(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs held out; all pairs of a prompt are on one side.

    Raises:
        PromptError: the share holds out too few prompts to measure on, or all of them.
    """
    chosen = held_out_texts((pair.prompt for pair in pairs), share)
    training = [pair for pair in pairs if pair.prompt not in chosen]
    held_out = [pair for pair in pairs if pair.prompt in chosen]
    if not training or not held_out:
        count = len({pair.prompt for pair in pairs})
        raise PromptError(
            f"--held-out {share:g} of {count} different prompts leaves {len(training)} pairs to"
            f" train on and {len(held_out)} to measure the accuracy on, of which at least {FEWEST}"
            " prompts are needed; give more pairs, or another share"
        )
    return training, held_out


def encode_pair(form: PromptFormat, pair: Pair) -> EncodedPair:
    """The token ids that `reward=reward_model` reads."""
    completions = (pair.chosen, pair.rejected, pair.reference)
    texts = [form.answered(pair.prompt, completion, "end") for completion in completions]
    return EncodedPair(*form.tokenizer(texts).input_ids)


def bradley_terry(chosen: Tensor, rejected: Tensor) -> Tensor:
    """`-log sigmoid(r(chosen) - r(rejected))` of each pair, `[B]`."""
    return -logsigmoid(chosen - rejected)


def scores_of(network: Any, texts: Sequence[Ids], batch: int) -> Tensor:
    """Scores `[N]` on the CPU, without gradient, of token ids after their last ones."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found = torch.empty(len(texts))
    with torch.no_grad():
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            found[rows] = _scores(network, [texts[i] for i in rows]).cpu()
    return found


def _scores(network: Any, texts: Sequence[Ids]) -> Tensor:
    """Scores `[B]` in one pass, in float32."""
    width, device = max(map(len, texts)), next(network.parameters()).device
    ids = torch.tensor([row + [0] * (width - len(row)) for row in texts], device=device)
    lengths = torch.tensor([len(row) for row in texts], device=device)
    mask = (torch.arange(width, device=device) < lengths[:, None]).long()
    return end_scores(network, ids, mask)[:, 0].float()


def train(
    network: nn.Module, pairs: Sequence[EncodedPair], options: RewardModelOptions
) -> Iterator[float]:
    """Train all of a network, with AdamW at a rate that falls linearly to 0.

    Yields:
        The mean loss of each epoch, which takes each pair once, in an order keyed by the seed.

    Raises:
        TrainingError: a gradient is not finite.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=options.lr, weight_decay=0.0)
    starts = range(0, len(pairs), options.batch)
    for epoch in range(options.epochs):
        order = np.random.default_rng([options.seed, epoch]).permutation(len(pairs)).tolist()
        total = 0.0
        for step, first in enumerate(starts, start=epoch * len(starts)):
            batch = [pairs[i] for i in order[first : first + options.batch]]
            done = step / (options.epochs * len(starts))
            optimizer.param_groups[0]["lr"] = (1 - done) * options.lr
            total += len(batch) * _step(network, batch, options, optimizer)
        yield total / len(pairs)


def _step(
    network: nn.Module,
    pairs: Sequence[EncodedPair],
    options: RewardModelOptions,
    optimizer: torch.optim.Optimizer,
) -> float:
    """One step on the mean loss of a batch, which is returned."""
    total = 0.0
    for start in range(0, len(pairs), options.micro_batch):
        part = pairs[start : start + options.micro_batch]
        scores = _scores(network, [*(p.chosen for p in part), *(p.rejected for p in part)])
        chosen, rejected = scores[: len(part)], scores[len(part) :]
        loss = bradley_terry(chosen, rejected).sum() / len(pairs)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    parameters = optimizer.param_groups[0]["params"]
    norm = nn.utils.clip_grad_norm_(parameters, MAX_GRAD_NORM)
    if not torch.isfinite(norm):
        message = f"the gradient's norm is {float(norm)}: training diverged; try a smaller --lr"
        raise TrainingError(message)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total
