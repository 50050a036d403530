"""Any causal language model of transformers, with a critic."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from rlfactory.dynamics.token import Token
from rlfactory.model.cache import roomy_cache
from rlfactory.model.decode import decode, positions_of
from rlfactory.model.finetune import merge_into
from rlfactory.model.language import load_language_model
from rlfactory.model.lora import Lora
from rlfactory.model.pipeline import ModelError, no_bars
from rlfactory.model.text import TextModel
from rlfactory.model.value_head import Shape, Start, ValueHead
from rlfactory.model.value_model import ValueModel
from rlfactory.model.weights import Weights
from rlfactory.rollout import Tokens
from rlfactory.types import NonNegative, Positive, PositiveInt

VALUE_HEAD_FILE, VALUE_MODEL_FOLDER = "value_head.safetensors", "value_model"


class CausalLM(TextModel):
    """A `*LMHeadModel` by path or hub id, trained whole or by adapters, dropout off."""

    def __init__(
        self,
        device: torch.device,
        seed: int = 0,
        *,
        path: str,
        finetune: Literal["lora", "full"] = "full",
        lora_rank: PositiveInt = 16,
        lora_alpha: Positive = 32.0,
        lora_targets: list[str] | None = None,
        begin_with_end: bool = True,
        value_path: str | None = None,
        value_head: Shape = "mlp",
        value_start: Start = "zero",
        value_detach: bool = True,
        value_lr: Positive | None = None,
        value_weight_decay: NonNegative = 0.0,
    ) -> None:
        self.device = device
        self.network, self.tokenizer = load_language_model(path)
        self.network.to(device).requires_grad_(False).eval()
        self.inside = _call  # a network that is divided among processes is gathered meanwhile
        self.begin_with_end = begin_with_end
        self.context: int = self.network.config.max_position_embeddings
        self.vocabulary: int = self.network.config.vocab_size
        critic: ValueHead | ValueModel
        if value_path is None:
            width = self.network.config.hidden_size
            critic = ValueHead(
                width, shape=value_head, start=value_start, detach=value_detach, seed=seed
            )
        else:
            critic = ValueModel(value_path, len(self.tokenizer))
        self.critic = critic.to(device)
        self.value_options = {"lr": value_lr, "weight_decay": value_weight_decay}
        self.lora: Lora | None = None
        if finetune == "lora":
            self.lora = Lora(
                self.network, rank=lora_rank, alpha=lora_alpha, targets=lora_targets, seed=seed
            )
        else:
            self.network.requires_grad_(True)
        trained = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        values = {f"critic.{n}": p for n, p in self.critic.named_parameters()}
        self.weights = Weights(trained, self.lora.off if self.lora else None, values)

    def require_room(self, prompts: Sequence[str], length: int) -> None:
        """Count their tokens; the message names the longest."""
        ids = self.tokenizer(self._begun(prompts)).input_ids if prompts else []
        sizes = [len(row) for row in ids]
        if all(size + length <= self.context for size in sizes):
            return
        most = max(sizes)
        longest = prompts[sizes.index(most)]
        raise ModelError(
            f"prompts leave too little room: {longest[:40]!r}... has {most} tokens, and with"
            f" dynamics.length={length} that is more than the model's {self.context}; shorten the"
            " prompts, or dynamics.length"
        )

    def encode(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Prompts behind an end of text, as documents begin in training."""
        encoded = self.tokenizer(self._begun(prompts), return_tensors="pt", padding=True)
        return encoded.input_ids.to(self.device), encoded.attention_mask.bool().to(self.device)

    def _begun(self, prompts: Sequence[str]) -> list[str]:
        begin = self.tokenizer.eos_token if self.begin_with_end else ""
        if not begin and "" in prompts:
            raise ModelError("a prompt is empty; say more, or set model.begin_with_end=true")
        return [begin + prompt for prompt in prompts]

    def rollout(
        self, prompt: Tensor, prompt_mask: Tensor, dynamics: Token, uniform: Tensor
    ) -> Tokens:
        """Decode on a cache with room for all."""
        length = prompt.shape[1] + uniform.shape[1]
        if length > self.context:
            raise ModelError(
                f"dynamics.length={uniform.shape[1]} after prompts of {prompt.shape[1]} tokens is"
                f" more than the model's {self.context}"
            )
        cache = roomy_cache(self.network.config, length)

        def read(ids: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            hidden = self._hidden(ids, mask, positions, cache)[:, -1]
            if isinstance(self.critic, ValueHead):
                return self._logits(hidden), self.critic(hidden)
            # a network of its own reads the whole response at once, afterwards
            return self._logits(hidden), hidden.new_zeros(len(hidden))

        stop = self._stop_ids(dynamics).to(self.device)
        pad = int(self.tokenizer.pad_token_id)
        tokens = decode(read, prompt, prompt_mask, dynamics, uniform, stop=stop, pad=pad)
        if isinstance(self.critic, ValueModel):
            with torch.no_grad():
                tokens.value[tokens.mask] = _before(self.critic(*_read(tokens)), tokens)
        return tokens

    def forward(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """One pass over prompts and responses; with a value model one of its own as well."""
        before, logits = self.inside(self._read_through, tokens)
        if isinstance(self.critic, ValueHead):
            return logits, self.critic(before)
        return logits, _before(self.critic(*_read(tokens)), tokens)

    def logits(self, tokens: Tokens) -> Tensor:
        """`forward` without the critic."""
        logits: Tensor = self.inside(self._read_through, tokens)[1]
        return logits

    def _read_through(self, tokens: Tokens) -> tuple[Tensor, Tensor]:
        """The states before the real tokens of the responses, and what they say of these."""
        before = _before(self._hidden(*_read(tokens), None), tokens)
        return before, self._logits(before)

    def _hidden(
        self, ids: Tensor, mask: Tensor, positions: Tensor, cache: DynamicCache | None
    ) -> Tensor:
        self.evaluations.watch()
        base: PreTrainedModel = self.network.base_model
        if ids.shape[1] == 1:
            # a single query sees all of the mask: given whole, transformers has nothing to build
            mask = mask[:, None, None, :]
        hidden: Tensor = base(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state
        return hidden

    def _logits(self, hidden: Tensor) -> Tensor:
        project: nn.Module = self.network.get_output_embeddings()
        logits: Tensor = project(hidden)
        return logits.float()

    def _stop_ids(self, dynamics: Token) -> Tensor:
        ids = [self.tokenizer.eos_token_id] if dynamics.stop_at_end else []
        for text in dynamics.stop:
            found = self.tokenizer(text, add_special_tokens=False).input_ids
            if len(found) != 1:
                raise ModelError(f"dynamics.stop: {text!r} is {len(found)} tokens; allowed is one")
            ids += found
        return torch.tensor(ids, dtype=torch.int64)

    def texts(self, tokens: Tokens) -> list[str]:
        """Decoded up to the stop token, which stays if it is text."""
        rows = [row[kept].tolist() for row, kept in zip(tokens.response, tokens.mask, strict=True)]
        decoded: list[str] = self.tokenizer.batch_decode(rows, skip_special_tokens=True)
        return decoded

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Matrices, then what is never decayed (gains and biases), then the critic."""
        named = self.weights.parameters.items()
        network = [(n, p) for n, p in named if not n.startswith("critic.")]
        matrices = [p for _, p in network if p.ndim > 1]
        others = [p for _, p in network if p.ndim <= 1]
        options = {k: v for k, v in self.value_options.items() if v is not None}
        critic: dict[str, Any] = {"params": list(self.critic.parameters()), **options}
        groups: list[dict[str, Any]] = [
            {"params": matrices},
            {"params": others, "weight_decay": 0.0},
            critic,
        ]
        return [group for group in groups if group["params"]]

    def export(self, folder: Path) -> None:
        """A transformers folder, or PEFT's with LoRA; the critic in it."""
        if self.lora is None:
            self._save_network(folder)
        else:
            self.lora.save_for_peft(folder)
        self._save_others(folder)

    def export_whole(self, folder: Path) -> None:
        """A transformers folder; the critic in it."""
        if self.lora is not None:
            merge_into(self.network)
        self._save_network(folder)
        self._save_others(folder)

    def _save_network(self, folder: Path) -> None:
        with no_bars():
            self.network.save_pretrained(folder, safe_serialization=True)

    def _save_others(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(folder)
        if isinstance(self.critic, ValueModel):
            with no_bars():
                self.critic.network.save_pretrained(folder / VALUE_MODEL_FOLDER)
        else:
            state = {k: v.detach().cpu().contiguous() for k, v in self.critic.state_dict().items()}
            save_file(state, folder / VALUE_HEAD_FILE)


def _call(work: Callable[[Tokens], Any], tokens: Tokens) -> Any:
    return work(tokens)


def _read(tokens: Tokens) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, mask and positions `[B, P + G - 1]`: the last token's own state is not needed."""
    ids = torch.cat([tokens.prompt, tokens.response[:, :-1]], dim=1)
    mask = torch.cat([tokens.prompt_mask, tokens.mask[:, :-1]], dim=1)
    return ids, mask, positions_of(mask)


def _before(states: Tensor, tokens: Tokens) -> Tensor:
    """What stands `[M, ...]` before each real token of the responses, of `[B, P + G - 1, ...]`."""
    return states[:, tokens.prompt.shape[1] - 1 :][tokens.mask]
