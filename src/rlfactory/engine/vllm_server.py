"""A vLLM server: prompts go over its OpenAI protocol, weights through a shared folder."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from rlfactory.engine.base import Completion, Engine, EngineError, SamplingSettings, save_plain
from rlfactory.engine.vllm import NEVER
from rlfactory.model.causal_lm import CausalLM
from rlfactory.utils.types import Positive, PositiveInt

PROBE = "Once upon a time, 2 + 2 = 4."
"""A text that must have the same tokens on both sides."""


class VllmServer(Engine):
    """`vllm serve FOLDER` on this machine, or on one that has the folder under the same path.

    The server must be started with `VLLM_SERVER_DEV_MODE=1`, which lets a client change weights, so
    only where nobody else reaches it, and with `--logprobs-mode processed_logprobs`. A run writes
    the folder before it looks for the server, so that its first start, which fails, leaves a model
    to serve.

    Args:
        url: Its address.
        folder: Where the weights in use are written before each rollout, and read by the server.
        timeout: Seconds for one response, and for one hand-over of weights.
        connections: The most requests at once.
    """

    def __init__(
        self,
        *,
        url: str = "http://127.0.0.1:8000",
        folder: str = "engine_model",
        timeout: Positive = 600.0,
        connections: PositiveInt = 256,
    ) -> None:
        self.url, self.connections = url.rstrip("/"), connections
        self.folder = Path(folder).expanduser().resolve()
        limits = httpx.Limits(max_connections=connections)
        self._http = httpx.Client(timeout=timeout, limits=limits, trust_env=False)
        self._name = ""

    def open(self, model: CausalLM) -> None:
        """Write the model, and check that the server answers and serves it."""
        save_plain(model, self.folder)
        served = self._answer("/v1/models")["data"][0]
        self._name = served["id"]
        root = served.get("root")
        is_ours = root is not None and Path(root).expanduser().resolve() == self.folder
        if model.network.config.tie_word_embeddings and not is_ours:
            raise EngineError(
                f"engine.url={self.url} serves {root}: a model whose output is tied"
                f" to its embedding must be served from {self.folder}, where they are apart, as"
                " vLLM reloads no tied output"
            )
        ids = self._answer(
            "/tokenize", {"model": self._name, "prompt": PROBE, "add_special_tokens": False}
        )["tokens"]
        own = model.tokenizer(PROBE, add_special_tokens=False).input_ids
        if ids != own:
            raise EngineError(
                f"engine.url={self.url}: the server's tokenizer gives {ids[:8]} for {PROBE!r}, the"
                f" model's {own[:8]}; serve the model that is trained, which is in {self.folder}"
            )

    def load(self, model: CausalLM) -> None:
        """Write the weights in use, let the server read them, and drop what it cached."""
        save_plain(model, self.folder)
        self._answer(
            "/collective_rpc",
            {"method": "reload_weights", "kwargs": {"weights_path": str(self.folder)}},
        )
        self._answer("/reset_prefix_cache", {})

    def generate(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], settings: SamplingSettings
    ) -> list[Completion]:
        """One request for each prompt, with its own seed."""

        def ask(prompt: Sequence[int], seed: int) -> Completion:
            body = {
                "model": self._name,
                "prompt": list(prompt),
                "max_tokens": settings.length,
                "temperature": settings.temperature,
                "top_p": 1.0,
                "top_k": -1,
                # unset ones would be those of the model's generation_config.json
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "seed": seed,
                "logprobs": 0,
                "ignore_eos": True,
                "stop_token_ids": list(settings.stop),
                "stop": list(settings.stop_texts.texts) if settings.stop_texts else None,
                "logit_bias": {str(i): NEVER for i in settings.unused} or None,
                "return_token_ids": True,
                "skip_special_tokens": False,
            }
            choice = self._answer("/v1/completions", body)["choices"][0]
            return Completion(choice["token_ids"], choice["logprobs"]["token_logprobs"])

        with ThreadPoolExecutor(min(self.connections, len(prompts))) as threads:
            return list(threads.map(ask, prompts, seeds))

    def close(self) -> None:
        self._http.close()

    def _answer(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The server's answer to GET, or to POST of a body."""
        method = "GET" if body is None else "POST"
        try:
            answer = self._http.request(method, self.url + path, json=body)
        except httpx.HTTPError as error:
            raise EngineError(
                f"engine.url={self.url} does not answer ({type(error).__name__}); start it by"
                f" VLLM_SERVER_DEV_MODE=1 vllm serve {self.folder}"
                " --logprobs-mode processed_logprobs"
            ) from error
        if answer.status_code == 404 and path in ("/collective_rpc", "/reset_prefix_cache"):
            raise EngineError(
                f"engine.url={self.url} takes no weights: it was started without"
                " VLLM_SERVER_DEV_MODE=1"
            )
        if answer.is_error:
            raise EngineError(
                f"engine.url={self.url}{path} answers {answer.status_code}: {answer.text[:200]}"
            )
        return answer.json() if answer.content else None
