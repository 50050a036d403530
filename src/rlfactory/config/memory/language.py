"""Peak memory of a run on texts, estimated by phase from its configuration."""

from dataclasses import dataclass, replace

from rlfactory.config.checks.base import Config, Traits, penalties
from rlfactory.config.checks.prompt_files import known_rows
from rlfactory.config.memory.activations import ComputeOptions
from rlfactory.config.memory.device_memory import on_gpu
from rlfactory.config.memory.language_shapes import LanguageShape, language_shape_of
from rlfactory.config.memory.sharding import BYTES, ShardedShares, shares_of
from rlfactory.config.memory.terms import (
    PROGRAM,
    Estimate,
    RewardMemory,
    gradient_bytes,
    host_bytes,
    replicated,
    training_state,
)
from rlfactory.config.schema.signature import trait
from rlfactory.model.pipelines.adapter_files import count_targets

OTHER_PROMPT_TOKENS = 512
"""Tokens assumed of the longest prompt of a source that does not say it."""
MAX_LOGITS = {False: 2**25, True: 2**28}
"""How many logits are held at once on a CPU and on a GPU (`model.text_base`); of more, a chunk of a
quarter of them."""
LETTERS = 3
"""Letters of a token, of which words have more: an estimate that is not below what is needed."""
LEARNING_LOGITS, SAMPLING_LOGITS = 8, 4
"""Float32 arrays of logits that learning and sampling hold at once."""


@dataclass(frozen=True)
class TextBatches:
    """Rows and tokens of the passes of a run on texts.

    Attributes:
        prompt, response: the most tokens of each.
        sampled, learned: responses in one pass while sampling and while learning.
    """

    prompt: int
    response: int
    sampled: int
    learned: int

    @property
    def tokens(self) -> int:
        """Tokens of a response with its prompt."""
        return self.prompt + self.response


def text_batches(config: Config) -> TextBatches:
    """The batches of one process."""
    samples = config["prompts_per_iteration"] * config["group_size"]
    own = max(1, int(samples * shares_of(config).samples))
    return TextBatches(
        prompt=int(trait(config["prompts"], "longest_tokens") or OTHER_PROMPT_TOKENS),
        response=int(config["dynamics"]["length"]),
        sampled=min(config["sample_batch"], own),
        learned=min(config["micro_batch"], own),
    )


def text_options(config: Config, when: str) -> ComputeOptions:
    """What a language model's activations depend on."""
    model = config["model"]
    return ComputeOptions(
        half=BYTES[config["precision"][when]] == 2,
        full=model["finetune"] == "full",
        rank=model["lora_rank"],
        checkpointing=bool(config["memory"]["gradient_checkpointing"]),
    )


def trained_numbers(config: Config, shape: LanguageShape) -> float:
    """The trained parameters of the language model, without the critic's."""
    model = config["model"]
    if model["finetune"] == "full":
        return shape.parameters
    targets = count_targets(model.get("lora_targets"), linear=4 if shape.kind == "gpt2" else 7)
    return shape.adapters(model["lora_rank"], targets)


def logits_at_once(config: Config, shape: LanguageShape, tokens: int) -> int:
    """Tokens whose logits are held together while learning from `tokens` response tokens."""
    limit = MAX_LOGITS[on_gpu(config)]
    if tokens * shape.vocabulary <= limit:
        return tokens
    return max(1, limit // 4 // shape.vocabulary)


def estimate_language(config: Config, traits: Traits) -> Estimate | None:
    """The estimate of a run on texts; None if its network is not known."""
    model = config["model"]
    if not {"finetune", "lora_rank", "path"} <= model.keys():
        return None
    shape = language_shape_of(str(model["path"]))
    critic = language_shape_of(model.get("value_path"))
    if shape is None or (critic is None and model.get("value_path")):
        return None
    full = model["finetune"] == "full"
    shares = shares_of(config)
    trained = trained_numbers(config, shape)
    own = shares if full else replicated(shares)
    state = training_state(config, traits, trained, own)
    frozen = 0.0 if full else shape.parameters * BYTES[config["precision"]["weights"]]
    rewards = RewardMemory.of(config, traits)
    resident = {
        "weights": shares.resident * frozen + state.pop("weights"),
        **state,
        # in full in every process: weights and moments in float32
        "critic": 12.0 * critic.parameters if critic else 0.0,
        "rewards": rewards.resident,
        "the program": 0.0 if on_gpu(config) else PROGRAM,
    }
    gradient, scratch = gradient_bytes(config, trained, own)
    gradient += 4.0 * critic.parameters if critic else 0.0
    blocks = shares.unsharded_blocks(shape.parameters, shape.layers)
    whole = shares.unsharded_network(shape.parameters)
    comparing = whole if not shares.is_sharded else blocks
    phases = {
        "prefilling": whole + _prefilling(config, shape, shares),
        "generating": whole + _generating(config, shape, shares),
        "scoring": rewards.scoring,
        "learning": gradient + comparing + blocks + _learning(config, traits, shape, shares),
        "updating": gradient + scratch,
    }
    return Estimate(resident, phases, trained, host_bytes(config, resident, shares))


def _cache(config: Config, shape: LanguageShape) -> float:
    """Bytes of the KV cache, which is allocated for the longest response of every row."""
    batches = text_batches(config)
    size = BYTES[config["precision"]["rollout"]]
    return batches.sampled * batches.tokens * shape.cached(size)


def _copies(config: Config, shape: LanguageShape, when: str, shares: ShardedShares) -> float:
    """The half-precision copies that autocast makes of float32 weights."""
    stored = "float32" if config["model"]["finetune"] == "full" else config["precision"]["weights"]
    half = BYTES[config["precision"][when]] == 2
    return 2.0 * shape.parameters if half and stored == "float32" and not shares.is_sharded else 0.0


def _prefilling(config: Config, shape: LanguageShape, shares: ShardedShares) -> float:
    batches, size = text_batches(config), BYTES[config["precision"]["rollout"]]
    tokens = batches.sampled * batches.prompt * shape.transient(size)
    return _cache(config, shape) + tokens + _copies(config, shape, "rollout", shares)


def _generating(config: Config, shape: LanguageShape, shares: ShardedShares) -> float:
    logits = 4.0 * SAMPLING_LOGITS * text_batches(config).sampled * shape.vocabulary
    return _cache(config, shape) + logits + _copies(config, shape, "rollout", shares)


def _given_tokens(config: Config, traits: Traits) -> int | None:
    """About how many tokens the longest of the known completions of the data has."""
    rows, algo = known_rows(config, traits), config["algo"]
    if traits["algo"].get("samples_from") != "data" or rows is None:
        return None
    columns = [algo[key] for key in ("column", "chosen", "rejected") if algo.get(key)]
    texts = [str(row.get(column) or "") for row in rows.rows for column in columns]
    longest = max(map(len, texts), default=0) // LETTERS + 1
    return min(longest, algo.get("length") or longest)


def _learning(config: Config, traits: Traits, shape: LanguageShape, shares: ShardedShares) -> float:
    """A micro-batch: what autograd keeps of all layers, or their inputs and one layer; logits of a
    chunk; what the reference's pass holds is less.
    """
    batches, options = text_batches(config), text_options(config, "learning")
    if (response := _given_tokens(config, traits)) is not None:
        fitting = max(1, MAX_LOGITS[on_gpu(config)] // (response * shape.vocabulary))
        batches = replace(batches, response=response, learned=min(batches.learned, fitting))
    rows = batches.learned * batches.tokens
    kept = rows * shape.saved(options)
    transient = rows * shape.transient(options.element_size)
    if options.checkpointing:
        inputs = rows * shape.layers * shape.hidden * options.element_size
        layers = inputs + kept + transient
    else:
        layers = shape.layers * kept + transient
    answered = batches.learned * batches.response
    states = 4.0 * answered * shape.hidden * 2
    logits = 4.0 * LEARNING_LOGITS * shape.vocabulary * logits_at_once(config, shape, answered)
    compared = any(True for _ in penalties(config, traits))
    return layers + states * (1 + compared) + logits + _copies(config, shape, "learning", shares)
