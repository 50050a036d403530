"""vLLM in the process of the run; weights are handed over as a folder."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlfactory.engine.base import Completion, Engine, EngineError, SamplingSettings, save_plain
from rlfactory.model.causal_lm import CausalLM
from rlfactory.utils.types import PositiveFraction, PositiveInt

NEVER = -100.0
"""The lowest bias of a logit that vLLM takes."""


class Vllm(Engine):
    """`vllm.LLM` on the model's device. It reads the weights from a folder before each rollout.

    Args:
        memory: Share of the GPU's memory for vLLM's weights and cache.
        context: The most tokens of a prompt and its response; None: the model's context.
        eager: Without CUDA graphs and compilation: it starts sooner and decodes slower.
        folder: Where weights are handed over; None: a temporary folder.
        options: Further arguments of `vllm.LLM`.
    """

    package = "vllm"

    def __init__(
        self,
        *,
        memory: PositiveFraction = 0.3,
        context: PositiveInt | None = None,
        eager: bool = False,
        folder: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        self.options: dict[str, Any] = {
            "gpu_memory_utilization": memory,
            "max_model_len": context,
            "enforce_eager": eager,
            # token ids go in and out, so that no other tokenizer can come between
            "skip_tokenizer_init": True,
            # of the distribution that tokens are drawn from, as the trainer's are
            "logprobs_mode": "processed_logprobs",
            # a cached prefix would be of former weights
            "enable_prefix_caching": False,
            **(options or {}),
        }
        self.folder = folder
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._llm: Any = None

    def open(self, model: CausalLM) -> None:
        """Write the model to the folder, and let vLLM load it from there."""
        # in this process, where the run can free it
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        try:
            from vllm import LLM
        except ImportError as error:
            raise EngineError(f"engine=vllm: vllm can't be imported: {error}") from error
        if self.folder is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="rlfactory_vllm_")
        save_plain(model, self._path)
        dtype = str(model.precision.rollout).removeprefix("torch.")
        try:
            self._llm = LLM(model=str(self._path), **{"dtype": dtype, **self.options})
        except (ValueError, RuntimeError, TypeError) as error:
            self.close()
            raise EngineError(
                f"engine=vllm can't start: {error}; see engine.memory and engine.context"
            ) from error

    @property
    def _path(self) -> Path:
        return Path(self._temporary.name if self._temporary else str(self.folder)).expanduser()

    def load(self, model: CausalLM) -> None:
        """Write the weights in use, and let vLLM read them."""
        save_plain(model, self._path)
        with _explained():
            self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(self._path)})

    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        """Each prompt with its own seed, so that a response does not depend on the others."""
        from vllm import SamplingParams

        parameters = [
            SamplingParams(
                max_tokens=settings.length,
                temperature=settings.temperature,
                seed=seed,
                logprobs=0,  # that of the drawn token alone
                ignore_eos=True,  # `stop_token_ids` has those that count
                stop_token_ids=list(settings.stop),
                logit_bias=dict.fromkeys(settings.unused, NEVER) or None,
                detokenize=False,
            )
            for seed in seeds
        ]
        given = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        with _explained():
            outputs = self._llm.generate(given, parameters, use_tqdm=False)
        return [_completion(output.outputs[0]) for output in outputs]

    def close(self) -> None:
        """Stop vLLM, and remove the temporary folder."""
        self._llm = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


@contextmanager
def _explained() -> Iterator[None]:
    """An error of vLLM in mid-run as an EngineError."""
    try:
        yield
    except Exception as error:
        raise EngineError(
            f"engine=vllm stopped: {error}; the run can be resumed from its last checkpoint"
        ) from error


def _completion(output: Any) -> Completion:
    """One of vLLM's outputs; of each token its log-probability among those returned."""
    ids = list(output.token_ids)
    rows = output.logprobs or []
    return Completion(ids, [row[i].logprob for i, row in zip(ids, rows, strict=False) if i in row])
