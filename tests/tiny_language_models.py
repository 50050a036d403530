"""Random language models of the architectures that people train, with a chat template each."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2VLImageProcessorPil,
)

KINDS = ("llama", "qwen3", "gemma2", "gemma3")

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start|>{{ m['role'] }}<|header|>\n\n"
    "{{ m['content'] | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant<|header|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
TEMPLATES = {"llama": LLAMA, "qwen3": CHATML, "gemma2": GEMMA, "gemma3": GEMMA, "cohere": CHATML}
SPECIAL = {
    "llama": ["<|begin|>", "<|eot|>", "<|start|>", "<|header|>"],
    "qwen3": ["<|endoftext|>", "<|im_end|>", "<|im_start|>"],
    "gemma2": ["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"],
}
SPECIAL |= {"gemma3": SPECIAL["gemma2"], "cohere": SPECIAL["qwen3"]}


def tiny_tokenizer(kind: str = "qwen3") -> PreTrainedTokenizerFast:
    """A tokenizer of bytes with a family's special tokens and template."""
    alphabet = sorted(ByteLevel.alphabet())
    names = SPECIAL[kind]
    vocabulary = {token: i for i, token in enumerate([*alphabet, *names])}
    backend = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    backend.decoder = ByteLevelDecoder()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=None if TEMPLATES[kind] == CHATML else names[0],
        eos_token=names[1],
        additional_special_tokens=names,
    )
    tokenizer.chat_template = TEMPLATES[kind]
    return tokenizer


SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"head_dim": 8},
    "qwen3": {"head_dim": 8, "tie_word_embeddings": True},
    # caps logits, and every second layer sees a window
    "gemma2": {"head_dim": 8, "sliding_window": 16, "final_logit_softcapping": 3.0},
    "gemma3": {
        **{"head_dim": 8, "sliding_window": 16},
        **{"layer_types": ["sliding_attention", "full_attention"]},
    },
    "cohere": {"logit_scale": 0.25},
    "bloom": {"n_layer": 2, "n_head": 4},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 128},
    "openai-gpt": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gpt_oss": {
        **{"head_dim": 8, "sliding_window": 16},
        **{"num_local_experts": 4, "num_experts_per_tok": 2},
    },
    "deepseek_v3": {
        **{"kv_lora_rank": 8, "q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
        **{"v_head_dim": 8, "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 1},
        **{"topk_group": 1, "moe_intermediate_size": 16, "num_experts_per_tok": 2},
    },
    "jamba": {
        **{"attn_layer_period": 2, "attn_layer_offset": 1},
        **{"num_experts": 4, "mamba_d_state": 8},
    },
    "qwen3_next": {
        **{"layer_types": ["linear_attention", "full_attention"], "head_dim": 8},
        **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8},
        **{"linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2},
        **{"moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
    },
    "falcon_h1": {
        **{"mamba_d_ssm": 64, "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8},
        **{"head_dim": 8},
    },
    # their routers are linear layers that return more than a product
    "phimoe": {"num_local_experts": 4},
    "llama4_text": {"head_dim": 8, "num_local_experts": 4, "intermediate_size_mlp": 48},
    "mamba": {"state_size": 8},
    "recurrent_gemma": {
        **{"lru_width": 32, "attention_window_size": 16, "head_dim": 8},
        **{"block_types": ["recurrent", "attention"]},
    },
    "deepseek_v4": {
        **{"head_dim": 16, "num_key_value_heads": 1, "q_lora_rank": 8, "o_lora_rank": 8},
        **{"o_groups": 2, "index_head_dim": 8, "index_n_heads": 2, "sliding_window": 16},
        **{"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16},
        "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"],
    },
}
"""What a small model of a kind has besides what all have."""
REFUSED = ("deepseek_v4", "mamba", "openai-gpt", "recurrent_gemma")
OTHERS = tuple(SHAPES.keys() - {*TEMPLATES, *REFUSED})


SMALLER: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "word_embed_proj_dim"), 32),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "d_ff", "lru_width"), 48),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers"), 2
    ),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("num_key_value_heads", "n_group", "topk_group", "linear_num_key_heads"), 2),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"), 8),
    **dict.fromkeys(
        ("head_dim", "v_head_dim", "mamba_d_state", "mamba_n_heads", "mamba_d_head"), 8
    ),
    **dict.fromkeys(("mamba_num_heads", "mamba_head_dim", "ssm_state_size", "state_size"), 8),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "num_memory_blocks"), 8),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **{"linear_num_value_heads": 4, "num_experts_per_tok": 2, "rotary_dim": 4, "mamba_d_ssm": 64},
    **{"max_position_embeddings": 256, "n_positions": 256, "sliding_window": 64},
    **{"num_kv_shared_layers": 0, "n_shared_experts": 1, "initializer_range": 0.3},
    **{"hidden_size_per_layer_input": 8, "attention_types": [[["global", "local"], 1]]},
}
"""Sizes of a small model by the names that architectures have for them."""
LARGEST = 20e6
"""Parameters above which sizes have other names than these."""


def save_any_language_model(folder: Path, architecture: str) -> None:
    """The same of any architecture of transformers, if `SMALLER` makes it small.

    Any error, of its own or NotImplementedError, where that does not.
    """
    tokenizer = tiny_tokenizer()
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": tokenizer.eos_token_id}
    config = AutoConfig.for_model(architecture).get_text_config()
    known, given = (
        config.to_dict(),
        SMALLER | ids | dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), len(tokenizer)),
    )
    shape = {k: v for k, v in given.items() if k in known or k in config.attribute_map}
    if "kv_lora_rank" in known:
        shape["num_key_value_heads"] = 4
    for name in ("layer_types", "mlp_layer_types", "layers_block_type", "block_types"):
        if kinds := [*dict.fromkeys(known.get(name) or ())]:
            shape[name] = (kinds * 2)[:2]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        small = type(config)(**shape)
        with torch.device("meta"):
            size = AutoModelForCausalLM.from_config(small).num_parameters()
        if size > LARGEST:
            raise NotImplementedError(f"{size:,} parameters")
        network = AutoModelForCausalLM.from_config(small, dtype=torch.float32)
        network.generation_config.eos_token_id = tokenizer.eos_token_id
        network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def save_language_model(folder: Path, kind: str, vocabulary: int | None = None) -> Path:
    """A folder with a random model of 2 layers and its tokenizer.

    Args:
        folder: where it is saved.
        kind: one of `SHAPES`.
        vocabulary: the number of logits; None: that of the tokenizer.
    """
    tokenizer = tiny_tokenizer(kind if kind in TEMPLATES else "qwen3")
    architecture = {"gemma3": "gemma3_text"}.get(kind, kind)
    shape = {
        **{"vocab_size": vocabulary or len(tokenizer), "hidden_size": 32, "intermediate_size": 48},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"max_position_embeddings": 128, "initializer_range": 0.3},
        **{"pad_token_id": 0, "eos_token_id": tokenizer.eos_token_id, **SHAPES[kind]},
    }
    known = AutoConfig.for_model(architecture).to_dict().keys() | SHAPES[kind].keys()
    named = {key: value for key, value in shape.items() if key in known}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **named))
        network.generation_config.eos_token_id = tokenizer.eos_token_id
        network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


VISION = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>", "<|video_pad|>")
"""Special tokens of Qwen2.5-VL that stand for pictures."""


def save_vision_language_model(folder: Path) -> Path:
    """A folder with a random Qwen2.5-VL of 2 layers and a vision tower of 2, its tokenizer and
    image processor; a picture's token is 8 x 8 pixels.
    """
    tokenizer = tiny_tokenizer("qwen3")
    tokenizer.add_special_tokens({"additional_special_tokens": [*VISION]})
    start, image, end, video = tokenizer.convert_tokens_to_ids([*VISION])
    text = {
        **{"vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 48},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
        **{"max_position_embeddings": 256, "initializer_range": 0.3},
        **{"pad_token_id": 0, "bos_token_id": None, "eos_token_id": tokenizer.eos_token_id},
        "rope_parameters": {
            **{"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
        },
    }
    vision = {
        **{"depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2},
        **{"patch_size": 4, "window_size": 16, "fullatt_block_indexes": [1]},
        **{"out_hidden_size": 32, "initializer_range": 0.3},
    }
    ids = {
        **{"image_token_id": image, "video_token_id": video},
        **{"vision_start_token_id": start, "vision_end_token_id": end},
    }
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
        network = AutoModelForImageTextToText.from_config(config)
        network.generation_config.eos_token_id = tokenizer.eos_token_id
        network.save_pretrained(folder)
    size = {"shortest_edge": 256, "longest_edge": 1024}
    Qwen2VLImageProcessorPil(patch_size=4, size=size).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
