"""The critic of a language model: a value head on its hidden states, or a network of its own; and
how a reward model reads a text, as its configuration records it.

transformers' own classifiers look for the last token that is no padding. Where the end of text
serves as padding, as in GPT-2, that is the token before it; here a mask says where the text ends.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModelForSequenceClassification, DynamicCache, PreTrainedModel

from rlfactory.model.base import with_prefix, with_values
from rlfactory.model.lm.attention import hidden_states
from rlfactory.model.lm.loading import (
    disable_dropout,
    fuse_activations,
    load_tokenizer,
    require_finite_weights,
    skip_padding_check,
)
from rlfactory.model.pipelines.hub_models import explained, no_bars
from rlfactory.model.pipelines.local_models import resolve
from rlfactory.utils.errors import ModelError

KEY = "rlfactory_score"
"""The key of a reward model's config.json that holds its `ScoreFormat`."""


@dataclass(frozen=True)
class ScoreFormat:
    """The record of `rlfactory reward-model`.

    Attributes:
        prefix: the text before each prompt: an end of text where the policy has one there.
        with_end: whether the score is read after the end of text, or after the last token of a
            response without an end; False: after the last token of the text.
        mean: the mean score of reference completions, which is subtracted from every score.
    """

    prefix: str = ""
    with_end: bool = False
    mean: float = 0.0

    @classmethod
    def of(cls, config: Any) -> "ScoreFormat":
        """The format of a transformers configuration; the default where it has none."""
        found = getattr(config, KEY, None)
        return cls(**found) if isinstance(found, Mapping) else cls()

    def record(self, config: Any) -> None:
        """Write it into a transformers configuration."""
        setattr(config, KEY, asdict(self))


def has_state_scores(network: nn.Module) -> bool:
    """Whether a classifier scores each token by a layer `score`, as transformers' causal ones."""
    return isinstance(getattr(network, "score", None), nn.Linear)


def state_scores(network: Any, ids: Tensor, mask: Tensor | None = None, *rest: Any) -> Tensor:
    """Scores `[B, L, labels]` after each of the tokens `ids` `[B, L]`, as `hidden_states`."""
    return network.score(hidden_states(network, ids, mask, *rest))


def end_scores(network: Any, ids: Tensor, mask: Tensor) -> Tensor:
    """Scores `[B, labels]` of texts `[B, L]`, padded on the right, after their last tokens."""
    rows = torch.arange(len(ids), device=ids.device)
    return state_scores(network, ids, mask)[rows, mask.sum(1) - 1]


VALUE_HEAD_FILE, VALUE_MODEL_FOLDER = "value_head.safetensors", "value_model"
Shape = Literal["mlp", "linear"]
Start = Literal["zero", "orthogonal", "default"]


class ValueHead(nn.Module):
    """Values from the policy's final hidden states `[..., d]`.

    Args:
        width: d, the size of a hidden state.
        shape: `linear`, d to 1 (OpenAI, TRL), or `mlp`, d to 4 d, ReLU, to 1 (the walkthrough).
        start: initial weights. `zero`: orthogonal with a last layer of 0, so that the first values
            are 0 and bias no advantage; `orthogonal`: with gains of sqrt 2 and 1; `default`:
            torch's.
        detach: keep the critic's gradient out of the language model.
        seed: of the initial weights.
    """

    def __init__(self, width: int, *, shape: Shape, start: Start, detach: bool, seed: int) -> None:
        super().__init__()
        self.detach = detach
        # layers draw from the global generator, whose state must not depend on this head
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            sizes = [(width, 4 * width), (4 * width, 1)] if shape == "mlp" else [(width, 1)]
            layers = [nn.Linear(*size) for size in sizes]
            if start != "default":
                for layer in layers:
                    nn.init.orthogonal_(layer.weight, 2**0.5 if layer is not layers[-1] else 1.0)
                    nn.init.zeros_(layer.bias)
        if start == "zero":
            nn.init.zeros_(layers[-1].weight)
        between = [nn.ReLU()] if shape == "mlp" else []
        self.layers = nn.Sequential(*layers[:1], *between, *layers[1:])

    def forward(self, hidden: Tensor) -> Tensor:
        """Values `[...]`, float32, of hidden states `[..., d]`."""
        hidden = hidden.detach() if self.detach else hidden
        # in float32 also while the language model computes in half precision
        with torch.autocast(hidden.device.type, enabled=False):
            value: Tensor = self.layers(hidden.float())
        return value[..., 0]


class ValueModel(nn.Module):
    """A separate network as critic, as in TRL: a causal reward model read at every position.

    All of it is trained, dropout off. It reads the policy's token ids, so both need the same
    tokenizer. A language model without a score layer gets one of zeros. ModelError where `path` is
    no causal sequence classifier, knows fewer tokens than the policy, or has a tokenizer in which
    one of the policy's tokens has another id.
    """

    def __init__(self, path: str, tokenizer: Any) -> None:
        super().__init__()
        self.network, missing = load_scorer(path)
        if not has_state_scores(self.network):
            raise ModelError(
                f"model.value_path={path} is a {type(self.network).__name__}, which has no score to"
                " read at each token; name a causal reward model"
            )
        if self.network.config.vocab_size < len(tokenizer):
            raise ModelError(
                f"model.value_path={path} knows {self.network.config.vocab_size} tokens, and the"
                f" policy's tokenizer has {len(tokenizer)}; they must be the same"
            )
        if fault := _token_fault(path, tokenizer):
            raise ModelError(f"model.value_path={path} {fault}")
        if missing:
            nn.init.zeros_(self.network.score.weight)
        require_finite_weights(self.network, path, "model.value_path")
        disable_dropout(self.network)
        fuse_activations(self.network)
        skip_padding_check(self.network)
        self.network.eval().requires_grad_(True)
        self.mean = ScoreFormat.of(self.network.config).mean

    def forward(
        self,
        ids: Tensor,
        mask: Tensor | None,
        positions: Tensor | None,
        cache: DynamicCache | None = None,
    ) -> Tensor:
        """Values `[B, L]`, float32, after each of the tokens `ids` `[B, L]`."""
        return state_scores(self.network, ids, mask, positions, cache)[..., 0].float() - self.mean


def load_scorer(path: str, key: str = "model.value_path") -> tuple[PreTrainedModel, set[str]]:
    """The network in float32, and which weights its folder lacks: the score layer's at most.
    ModelError, which names `key`, where there is no such model.
    """
    with explained(path, "a model with one score", key=key) as locate, no_bars():
        network, info = AutoModelForSequenceClassification.from_pretrained(
            locate(resolve(path, "config.json")),
            num_labels=1,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        missing = {*map(str, info["missing_keys"]), *map(str, info["mismatched_keys"])}
        if others := missing - {"score.weight"}:
            raise ValueError(f"it has no fitting weights for {', '.join(sorted(others)[:4])}")
    return network, missing


def _token_fault(path: str, tokenizer: Any) -> str | None:
    """How the tokenizer beside a value model differs from the policy's; None if it has none."""
    try:
        own = load_tokenizer(path, key="model.value_path").get_vocab()
    except ModelError:
        return None
    wanted = tokenizer.get_vocab()
    # a folder without a vocabulary yields special tokens alone
    if len(own) < len(wanted) // 2 or all(own.get(token) == i for token, i in wanted.items()):
        return None
    token, number = next((t, i) for t, i in wanted.items() if own.get(t) != i)
    place = f"has id {own[token]}" if token in own else "does not exist"
    return (
        f"has another tokenizer than the policy: {token!r}, token {number}, {place} there; train"
        " the reward model from the policy's own base with rlfactory reward-model"
    )


def save_critic(
    critic: ValueHead | ValueModel, folder: Path, values: Mapping[str, Tensor] | None = None
) -> None:
    """Write a value head to a file of a folder, or a value model to a folder below it; `values` in
    the place of its own, by the names of the critic's parameters.
    """
    if isinstance(critic, ValueModel):
        network = with_values(critic.network, with_prefix(values, "network."))
        with no_bars():
            network.save_pretrained(folder / VALUE_MODEL_FOLDER)
        return
    state = with_values(critic, values).state_dict()
    saved = {key: tensor.detach().cpu().contiguous() for key, tensor in state.items()}
    save_file(saved, folder / VALUE_HEAD_FILE)
