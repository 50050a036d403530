"""Adapter for causal language models of transformers, with a critic."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from operator import call
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PretrainedConfig

from rlfactory.dynamics.token import Token
from rlfactory.model.base import with_prefix, with_values
from rlfactory.model.lm.attention import (
    GPT2Step,
    RecomputedLayers,
    attention_mask,
    can_continue,
    hidden_states,
    masks_by_layers,
    preallocated_cache,
    response_states,
)
from rlfactory.model.lm.critic import Shape, Start, ValueHead, ValueModel, save_critic
from rlfactory.model.lm.generate import Read, decode, positions_of
from rlfactory.model.lm.loading import begins_with_end, context_of, end_ids, load_language_model
from rlfactory.model.lm.logits import Work, finished, in_chunks
from rlfactory.model.lm.prompt_format import PromptFormat, TextRole
from rlfactory.model.lm.shared_prompts import shared_prompts
from rlfactory.model.lm.tokenized import LongPrompts
from rlfactory.model.lora import Lora, merge_adapters, with_adapters
from rlfactory.model.memory import Memory
from rlfactory.model.pipelines.hub_models import no_bars
from rlfactory.model.pipelines.teacher_files import adapter_folder
from rlfactory.model.precision import Precision
from rlfactory.model.text_base import TextModel
from rlfactory.model.weight_sets import WeightSets
from rlfactory.rollout import Tokens, row_keys
from rlfactory.utils.errors import ModelError
from rlfactory.utils.pytree import require, to_device
from rlfactory.utils.types import LoraTargets, NonNegative, Positive, PositiveInt


class CausalLM(TextModel):
    """An `AutoModelForCausalLM` by `zoo:NAME`, folder or hub id, trained in full or by LoRA.

    Args:
        path: zoo:NAME, a folder, or a hub id.
        finetune: lora | full.
        lora_rank: Rank of the adapters.
        lora_alpha: Adapters are scaled by alpha / rank.
        lora_targets: Module names, or all-linear; null: PEFT's choice for this architecture.
        begin_with_end: true | false: an end-of-text token before each prompt; auto: where
            pretraining had it (GPT-2).
        chat_template: auto | plain | none | FILE: how messages are written; auto: the
            tokenizer's own template.
        system_prompt: System message of each conversation that has none; null: none.
        text_role: none | user: whether a prompt that is a text is given as it is, or as a
            user's message.
        chat_options: Further variables of the template, as {enable_thinking: false}; null:
            none.
        max_prompt_length: Tokens of a prompt; null: as many as leave room for the response.
        long_prompts: refuse | drop | cut: longer prompts are an error, left out, or cut from
            the left.
        value_path: A reward model: initial critic, a separate network; null: a value head on
            this model.
        value_head: mlp | linear: layers of the value head.
        value_start: zero | orthogonal | default: initial weights of the value head.
        value_detach: Keep the value head's gradient out of the language model.
        value_lr: The critic's learning rate; auto: learning_rate.head, or .full with
            value_path; null: the optimizer's.
        value_weight_decay: The critic's weight decay.

    Class attributes (literals):
        auto_class: The class of transformers that loads it.
        model_types, ids: What `config.json` calls the models that this adapter is for, and parts
            of their hub ids, in small letters; empty: all that no other adapter is for.
        frozen_part: A part of the network that stays frozen, by the name of its module.

    Raises:
        ModelError: the model or the critic can't be loaded, or the adapters do not fit it.
    """

    auto_class: ClassVar[str] = "AutoModelForCausalLM"
    model_types: ClassVar[tuple[str, ...]] = ()
    ids: ClassVar[tuple[str, ...]] = ()
    frozen_part: ClassVar[str | None] = None

    def __init__(
        self,
        device: torch.device,
        seed: int = 0,
        precision: Precision | None = None,
        memory: Memory | None = None,
        has_critic: bool = True,
        *,
        path: str,
        finetune: Literal["lora", "full"] = "full",
        lora_rank: PositiveInt = 16,
        lora_alpha: Positive = 32.0,
        lora_targets: LoraTargets = None,
        begin_with_end: bool | Literal["auto"] = "auto",
        chat_template: str = "auto",
        system_prompt: str | None = None,
        text_role: TextRole = "none",
        chat_options: dict[str, Any] | None = None,
        max_prompt_length: PositiveInt | None = None,
        long_prompts: LongPrompts = "refuse",
        value_path: str | None = None,
        value_head: Shape = "mlp",
        value_start: Start = "zero",
        value_detach: bool = True,
        value_lr: Positive | None = None,
        value_weight_decay: NonNegative = 0.0,
    ) -> None:
        self.path, self.precision, memory = path, precision or Precision(), memory or Memory()
        # what is trained stays in float32: updates are smaller than half precision resolves
        dtype = self.precision.weights if finetune == "lora" else torch.float32
        self.network, tokenizer = load_language_model(path, dtype, device, self.auto_class)
        self.network.requires_grad_(False).eval()
        begins = begins_with_end(tokenizer) if begin_with_end == "auto" else begin_with_end
        prompts = PromptFormat(
            tokenizer,
            template=chat_template,
            system_prompt=system_prompt,
            text_role=text_role,
            options=chat_options,
            begin=tokenizer.eos_token if begins else "",
        )
        self.begin_with_end = begins
        config = self.network.config.get_text_config()
        super().__init__(
            device,
            prompts,
            {*end_ids(self.network, tokenizer), prompts.turn_end_id},
            context=context_of(self.network, tokenizer),
            vocabulary=config.vocab_size,
            rows=self.network.get_input_embeddings().weight.shape[0],
            max_prompt_length=max_prompt_length,
            long_prompts=long_prompts,
        )
        head: dict[str, Any] = {"start": value_start, "detach": value_detach, "seed": seed}
        self.critic: ValueHead | ValueModel | None = None
        if has_critic and value_path is None:
            self.critic = ValueHead(config.hidden_size, shape=value_head, **head).to(device)
        elif has_critic:
            self.critic = ValueModel(str(value_path), tokenizer).to(device)
        self.value_options = {"lr": value_lr, "weight_decay": value_weight_decay}
        self.lora: Lora | None = None
        if finetune == "lora":
            given: dict[str, Any] = {"rank": lora_rank, "alpha": lora_alpha, "seed": seed}
            given |= {"device": device, "frozen": self.frozen_part}
            self.lora = Lora(self.network, targets=lora_targets, **given)
        self._prepare_passes(memory)

    def _prepare_passes(self, memory: Memory) -> None:
        """Name what is trained, and note how attention and recomputation are done."""
        # Passes call `base_model` and the output projection, not the network's own forward, which
        # would trigger FSDP's all-gather. So hardware=fsdp2 replaces this by a method of the
        # network within which its parameters are gathered.
        self.inside: Callable[..., Any] = call
        if self.lora is None:
            self.network.requires_grad_(True)
            if self.frozen_part is not None:
                self.network.base_model.get_submodule(self.frozen_part).requires_grad_(False)
        networks = [self.network]
        if isinstance(self.critic, ValueModel):
            networks.append(self.critic.network)
        self._masks_by_layers = any(masks_by_layers(network.config) for network in networks)
        self._can_continue = all(can_continue(network.config) for network in networks)
        recomputed = networks if memory.gradient_checkpointing else []
        self._recomputed = [RecomputedLayers(network) for network in recomputed]
        policy = {n: p for n, p in self.network.named_parameters() if p.requires_grad}
        named = () if self.critic is None else self.critic.named_parameters()
        values = {f"critic.{n}": p for n, p in named}
        self.weights = WeightSets(
            policy, self.lora.off if self.lora else None, values, offload=memory.offload_weights
        )

    def frozen(self, path: str) -> Self:
        """See the contract; its vocabulary is the model's, its size any."""
        adapters, dtype = adapter_folder(path), self.precision.weights
        base = path if adapters is None else self.path
        network, tokenizer = load_language_model(base, dtype, self.device, self.auto_class)
        if tokenizer.get_vocab() != self.tokenizer.get_vocab():
            raise ModelError(
                f"algo.teachers has {path}, whose vocabulary of {len(tokenizer)} tokens is not the"
                f" model's of {len(self.tokenizer)}: both have the same tokenizer"
            )
        if adapters is not None:
            network = with_adapters(network, adapters)
        teacher = copy.copy(self)
        teacher.network = network.requires_grad_(False).eval()
        teacher.lora, teacher.critic = None, None
        teacher.set_vocabulary(network.config.get_text_config().vocab_size, self.device)
        teacher._recomputed, teacher.inside = [], call
        teacher._masks_by_layers = masks_by_layers(network.config)
        teacher._can_continue = can_continue(network.config)
        return teacher

    @property
    def shares_prompts(self) -> bool:
        """See the contract; not where layers are recomputed, which drops caches."""
        return self.may_share_prompts and self._can_continue and not self._recomputed

    def rollout(
        self, prompt: Tensor, prompt_mask: Tensor, dynamics: Token, uniform: Tensor
    ) -> Tokens:
        """Sample on a KV cache that is allocated for the longest response.

        Equal prompts are read once, and the cache is then extended to all rows.
        """
        length = prompt.shape[1] + uniform.shape[1]
        if length > self.context:
            raise ModelError(
                f"dynamics.length={uniform.shape[1]} after prompts of {prompt.shape[1]} tokens is"
                f" more than the model's {self.context}"
            )
        cache = preallocated_cache(self.network.config, length)
        critic = {"critic": self.critic} if isinstance(self.critic, ValueHead) else {}
        # one context for all tokens, within which autocast casts each trained weight once
        with self.precision.sampling(), self.precision.autocast(self.device):
            tokens = decode(
                self._reader(prompt, prompt_mask, uniform.shape[1], cache),
                cache.reorder_cache,  # selects rows of all states; others of keys and values alone
                prompt,
                prompt_mask,
                dynamics,
                uniform,
                stop=to_device(self.stop_ids(dynamics), self.device),
                pad=int(self.tokenizer.pad_token_id),
                stop_texts=self.stop_texts(dynamics),
                positions=partial(self._positions, prompt),
                **critic,
            )
        if isinstance(self.critic, ValueModel):
            with torch.no_grad():
                states = tokens.with_end_state().measured()
                tokens = replace(tokens, value=states.pad(self._model_values(states)))
        return tokens

    def _reader(self, prompt: Tensor, prompt_mask: Tensor, most: int, cache: DynamicCache) -> Read:
        """A reader of prompts, then of each new token, into the cache; see `generate.Read`."""
        keys = [prompt_mask.all(1).long(), row_keys(prompt, prompt_mask)]
        is_whole, keys = torch.stack(keys).cpu()  # the only wait before the first token
        shared = shared_prompts(keys, prompt.shape[1], most)
        is_padded, has_head = not bool(is_whole.all()), isinstance(self.critic, ValueHead)
        step = GPT2Step(self.network, cache) if GPT2Step.fits(self.network, cache) else None

        def last_state(ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
            if step is not None and ids.shape[1] == 1 and prompt.shape[1] > 1:
                self.evaluations.begin_pass()
                return step(ids, mask if is_padded else None, positions)
            rows = shared if mask.shape[1] == prompt.shape[1] else None
            if rows is not None:
                first, number = (to_device(x, self.device) for x in rows)
                ids, mask, positions = ids[first], mask[first], positions[first]
            attention = None
            if is_padded or ids.shape[1] == 1:
                attention = attention_mask(mask, ids.shape[1], by_layers=self._masks_by_layers)
            state = self._hidden(ids, attention, positions, cache)[:, -1]
            if rows is not None:
                cache.reorder_cache(number)
                state = state[number]
            return state

        def read(ids: Tensor, mask: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            hidden = last_state(ids, mask, positions)
            # a value model reads the complete responses in one pass, after all are drawn
            return self._logits(hidden), hidden if has_head else hidden.new_zeros(len(hidden))

        return read

    def measure(
        self, tokens: Tokens, work: Work, *columns: Tensor, value_tokens: Tokens | None = None
    ) -> tuple[tuple[Tensor, ...], Tensor, Tensor]:
        """See the contract; a value model makes a pass of its own."""
        results, states = self.inside(self._measure, tokens, work, *columns)
        if isinstance(self.critic, ValueModel):
            valued = tokens if value_tokens is None else value_tokens
            return results, self._model_values(valued), states
        if value_tokens is not None:
            raise ModelError("the state after the end has a value only with model.value_path=PATH")
        if self.critic is None:
            return results, torch.zeros(len(states), device=states.device), states
        return results, self.critic(states), states

    def measure_states(self, states: Tensor, work: Work, *columns: Tensor) -> tuple[Tensor, ...]:
        return self.inside(self._measure_states, states, work, *columns)

    def states_and_projection(self, tokens: Tokens) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """See the contract; the projection is copied where its weights are trained."""
        states, project = self.inside(self._states_and_projection, tokens)
        return states, lambda states: self._logits(states, project)

    def _measure(
        self, tokens: Tokens, work: Work, *columns: Tensor
    ) -> tuple[tuple[Tensor, ...], Tensor]:
        states = self._response_states(self._hidden, tokens, self.network.config)
        return self._measure_states(states, work, *columns), states

    def _measure_states(self, states: Tensor, work: Work, *columns: Tensor) -> tuple[Tensor, ...]:
        def project_and_work(states: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
            return work(self._logits(states), *columns)

        return in_chunks(project_and_work, self.logits_at_once(len(states)), states, *columns)

    def _states_and_projection(self, tokens: Tokens) -> tuple[Tensor, nn.Module]:
        project: nn.Module = self.network.get_output_embeddings()
        if any(p.requires_grad for p in project.parameters()):
            project = copy.deepcopy(project)
        return self._response_states(self._hidden, tokens, self.network.config), project

    def _model_values(self, tokens: Tokens) -> Tensor:
        """Values `[M]` by the value model."""
        with self.precision.autocast(self.device):
            critic: Any = require(self.critic, "a critic")
            return self._response_states(critic, tokens, critic.network.config)

    def _response_states(
        self, network: Callable[..., Tensor], tokens: Tokens, config: PretrainedConfig
    ) -> Tensor:
        """Outputs of `network` before each real response token, `[M, ...]`."""
        options = {"by_layers": self._masks_by_layers, "shares_prompts": self.shares_prompts}
        states = response_states(network, tokens, config, positions=self._positions, **options)
        return tokens.real(states)

    def _positions(self, prompt: Tensor, mask: Tensor) -> Tensor:
        """Positions `[B, L, ...]` of tokens of which `mask` `[B, L]` marks the real ones; the first
        are `prompt` `[B, P]`.
        """
        return positions_of(mask)

    def _hidden(
        self,
        ids: Tensor,
        mask: Tensor | None,
        positions: Tensor | None,
        cache: DynamicCache | None = None,
    ) -> Tensor:
        self.evaluations.begin_pass()
        for layers in self._recomputed:
            layers.prepare_pass()
        with self.precision.autocast(self.device):
            return self._states(ids, mask, positions, cache)

    def _states(
        self,
        ids: Tensor,
        mask: Tensor | None,
        positions: Tensor | None,
        cache: DynamicCache | None,
    ) -> Tensor:
        """See `attention.hidden_states`."""
        return hidden_states(self.network, ids, mask, positions, cache)

    def _logits(self, hidden: Tensor, project: nn.Module | None = None) -> Tensor:
        project = project or self.network.get_output_embeddings()
        with self.precision.autocast(self.device):
            logits: Tensor = project(hidden)
        # log-softmax over a vocabulary is inexact in half precision
        logits = finished(self.network.config.get_text_config(), logits).float()
        return self.without_unused(logits)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Matrices; gains and biases, without weight decay; the critic, with options of its own."""
        named = self.weights.parameters.items()
        policy = [p for n, p in named if not n.startswith("critic.")]
        critic = [p for n, p in named if n.startswith("critic.")]
        options = {k: v for k, v in self.value_options.items() if v is not None}
        groups: list[dict[str, Any]] = [
            {"params": [p for p in policy if p.ndim > 1]},
            {"params": [p for p in policy if p.ndim <= 1], "weight_decay": 0.0},
            {"params": critic, **options},
        ]
        return [group for group in groups if group["params"]]

    def export(self, folder: Path, values: Mapping[str, Tensor] | None = None) -> None:
        """A transformers folder, or PEFT's with LoRA; also the tokenizer, and the critic if any."""
        self._save(folder, values, self.lora)

    def export_merged(self, folder: Path) -> None:
        """A transformers folder; also holds the tokenizer and the critic."""
        if self.lora is not None:
            merge_adapters(self.network)
        self._save(folder, None, None)

    def _save(self, folder: Path, values: Mapping[str, Tensor] | None, lora: Lora | None) -> None:
        if lora is not None:
            lora.save_for_peft(folder, values)
        else:
            with no_bars():
                with_values(self.network, values).save_pretrained(folder, safe_serialization=True)
        self.tokenizer.save_pretrained(folder)
        if self.critic is not None:
            save_critic(self.critic, folder, with_prefix(values, "critic."))
