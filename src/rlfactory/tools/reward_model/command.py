"""`rlfactory reward-model`: a reward model from pairs, for `reward.path` and `model.value_path`."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlfactory.model.lm.critic import load_scorer
from rlfactory.model.lm.loading import (
    begins_with_end,
    disable_dropout,
    load_tokenizer,
    skip_padding_check,
)
from rlfactory.model.lm.score_format import ScoreFormat, has_state_scores
from rlfactory.model.pipelines.hub import no_bars
from rlfactory.run.atomic_write import write_text
from rlfactory.run.checkpoint.find import newest
from rlfactory.run.folder import RunFolder
from rlfactory.tools.reward_model.training import (
    EncodedPair,
    RewardModelOptions,
    bradley_terry,
    encode_pair,
    read_pairs,
    scores_of,
    split_pairs,
    train,
)
from rlfactory.utils.console import print_error
from rlfactory.utils.errors import ModelError, UserError

REPORT = "reward_model.json"
CARD = """# A reward model

A `{kind}` trained by `rlfactory reward-model` from `{base}`, on {pairs} pairs of completions.
On {held_out} held-out pairs it prefers the chosen one in {accuracy:.1%}; `reward_model.json` has
the course. Scores are read after the end of text, after the text before prompts that config.json
names in `rlfactory_score`, and the `mean` there is subtracted: on reference completions they are
0 on average. transformers alone does neither.

    rlfactory reward=reward_model reward.path=FOLDER model.value_path=FOLDER ...
"""


def reward_model(
    base: str, pairs: Path, to: Path, share: float, options: RewardModelOptions
) -> int:
    """Train a reward model and write its folder; returns the exit code.

    Args:
        base: the language model, or reward model, to begin from: a run folder, whose newest
            checkpoint is meant, or what `model.path` takes.
        pairs: the file of pairs.
        to: the folder to write.
        share: of the prompts whose pairs are held out.
        options: how it is trained.
    """
    try:
        training, held_out = split_pairs(read_pairs(pairs), share)
        network, tokenizer, path = _load(base, options.seed)
        prefix = tokenizer.eos_token if begins_with_end(tokenizer) else ""
        limit = network.config.max_position_embeddings
        encoded = [
            [encode_pair(tokenizer, pair, prefix) for pair in part] for part in (training, held_out)
        ]
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
    except (UserError, OSError) as error:
        print_error(str(error))
        return 1
    print(f"{to}: reward.path={to} model.value_path={to}")
    return 0


def _load(base: str, seed: int) -> tuple[Any, Any, str]:
    """The network in float32 with a score of each token, its tokenizer, and its path."""
    path, key = base, "BASE"
    if RunFolder(Path(base)).config.is_file():
        checkpoint = newest(RunFolder(Path(base)).checkpoints)
        if checkpoint is None:
            raise ModelError(f"{base} holds no checkpoint yet")
        path = str(checkpoint)
    network, missing = load_scorer(path, key)
    tokenizer = load_tokenizer(path, key=key)
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
    network.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return network.to(device).eval().requires_grad_(True), tokenizer, path


def _train(
    network: Any,
    pairs: Sequence[EncodedPair],
    held_out: Sequence[EncodedPair],
    options: RewardModelOptions,
) -> dict[str, Any]:
    """Train, print the course, and return it with the statistics of reference completions."""
    course = [_measure(network, held_out, options, 0, None)]

    def after_epoch(epoch: int, loss: float) -> None:
        course.append(_measure(network, held_out, options, epoch, loss))

    train(network, pairs, options, after_epoch)
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


def _measure(
    network: Any,
    pairs: Sequence[EncodedPair],
    options: RewardModelOptions,
    epoch: int,
    loss: float | None,
) -> dict[str, float | None]:
    """Accuracy and loss on held-out pairs, printed."""
    chosen, rejected = (
        scores_of(network, [getattr(pair, name) for pair in pairs], options.micro_batch)
        for name in ("chosen", "rejected")
    )
    accuracy = float((chosen > rejected).float().mean())
    held_out_loss = float(bradley_terry(chosen, rejected).mean())
    trained = "" if loss is None else f"loss {loss:.4f}, "
    print(
        f"epoch {epoch}/{options.epochs}: {trained}held-out loss {held_out_loss:.4f},"
        f" accuracy {accuracy:.3f}",
        flush=True,
    )
    return {"epoch": epoch, "loss": loss, "held_out_loss": held_out_loss, "accuracy": accuracy}


def _write(folder: Path, network: Any, tokenizer: Any, prefix: str, found: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ScoreFormat(prefix, True, found["reference_mean"]).record(network.config)
    with no_bars():
        network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_text(folder / REPORT, json.dumps(found, indent=1) + "\n")
    shown = found | {"kind": type(network).__name__, "base": Path(found["base"]).name}
    write_text(folder / "README.md", CARD.format(**shown))
