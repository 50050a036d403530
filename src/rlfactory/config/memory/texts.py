"""The memory that language models need: tokens, KV cache, logits, critic."""

from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.memory.device_memory import on_gpu
from rlfactory.config.memory.model_parts import Activations, Part, language_model
from rlfactory.config.memory.need import Need, copied_weights, way
from rlfactory.config.memory.sharding import BYTES, shares_of
from rlfactory.config.schema.signature import trait

OTHER_PROMPT_TOKENS = 512
"""Tokens assumed of the longest prompt of a source that does not say it."""
MAX_LOGITS = {False: 2**25, True: 2**28}
"""How many logits are held at once on a CPU and on a GPU (`model.text_base`); of more, a chunk of a
quarter of them."""
LETTERS = 3
"""Letters of a token, of which words have more: an estimate that is not below what is needed."""
LEARNING_LOGITS, SAMPLING_LOGITS = 8, 4
"""Float32 arrays of logits that learning and sampling hold at once."""


def texts_need(config: Config, traits: Traits) -> Need:
    """What one process needs.

    Raises:
        LookupError: a network is not known, or of an architecture without measured activations.
    """
    model = config["model"]
    network, value_path = language_model(model["path"]), model.get("value_path")
    critic = language_model(value_path) if value_path else Part(0, {})
    if network is None or critic is None:
        raise LookupError(model["path"])
    activations, shares = Activations(network), shares_of(config)
    full = model["finetune"] == "full"
    trainable = activations.adapters(model["lora_rank"], model.get("lora_targets"))
    own = max(1, int(config["prompts_per_iteration"] * config["group_size"] * shares.samples))
    prompt = int(trait(config["prompts"], "longest_tokens") or OTHER_PROMPT_TOKENS)
    response = int(config["dynamics"]["length"])
    rows = min(config["sample_batch"], own)
    vocabulary = int(network.config["vocab_size"])
    cache = rows * (prompt + response) * _cached(network, BYTES[config["precision"]["rollout"]])
    copies = copied_weights(config, network.parameters, "rollout")
    prefill = activations.sampling(way(config, "rollout"), 0, rows * prompt)
    return Need(
        network,
        network.parameters if full else trainable,
        # in full in every process: weights and moments in float32
        resident={"critic": 12.0 * critic.parameters},
        gradient=4.0 * critic.parameters,
        sampling={
            "prefilling": cache + prefill + copies,
            "generating": cache + 4.0 * SAMPLING_LOGITS * rows * vocabulary + copies,
        },
        learning=_learning(config, traits, network, activations, own, prompt),
    )


def _cached(network: Part, element_size: int) -> float:
    """Bytes of the KV cache for each token of a row."""
    config = network.config
    hidden, heads = (
        config.get(a) or config[b]
        for a, b in (("hidden_size", "n_embd"), ("num_attention_heads", "n_head"))
    )
    width = config.get("head_dim") or hidden // heads
    kept = int(config.get("num_key_value_heads") or heads) * int(width)
    return 2.0 * network.blocks * kept * element_size


def _learning(
    config: Config, traits: Traits, network: Part, activations: Activations, own: int, prompt: int
) -> float:
    """A micro-batch: what its pass holds, logits of a chunk, and hidden states beside them; what
    the reference's pass holds is less.
    """
    response, rows = int(config["dynamics"]["length"]), min(config["micro_batch"], own)
    vocabulary, limit = int(network.config["vocab_size"]), MAX_LOGITS[on_gpu(config)]
    if (given := _given_tokens(config, traits)) is not None:
        response, rows = given, min(rows, max(1, limit // (given * vocabulary)))
    answered = rows * response
    at_once = answered
    if answered * vocabulary > limit:
        at_once = max(1, limit // 4 // vocabulary)
    hidden = int(network.config.get("hidden_size") or network.config["n_embd"])
    compared = any(True for _ in penalties(config, traits))
    found: float = activations.learning(way(config, "learning"), 0, rows * (prompt + response))
    found += 4.0 * answered * hidden * 2 * (1 + compared)
    found += 4.0 * LEARNING_LOGITS * vocabulary * at_once
    return found + copied_weights(config, network.parameters, "learning")


def _given_tokens(config: Config, traits: Traits) -> int | None:
    """About how many tokens the longest of the known completions of the data has."""
    rows, algo = known_rows(config, traits), config["algo"]
    if traits["algo"].get("samples_from") != "data" or rows is None:
        return None
    columns = [algo[key] for key in traits["algo"].get("columns", ()) if algo.get(key)]
    texts = [str(row.get(column) or "") for row in rows.rows for column in columns]
    longest = max(map(len, texts), default=0) // LETTERS + 1
    return min(longest, algo.get("length") or longest)
