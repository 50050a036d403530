"""The requests to a vLLM server, by a stand-in of its HTTP answers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from rlfactory.engine.base import EngineError, SamplingSettings
from rlfactory.engine.vllm_server import PROBE, VllmServer
from rlfactory.model.causal_lm import CausalLM
from rlfactory.model.lm.generate import StopTexts

SETTINGS = SamplingSettings(length=4, temperature=0.5, stop=(0, 3))


@pytest.fixture
def model(gpt2_folder: Path) -> CausalLM:
    return CausalLM(torch.device("cpu"), path=str(gpt2_folder))


class Server:
    """Answers as `vllm serve` does."""

    def __init__(self, model: CausalLM, folder: Path) -> None:
        self.root = str(folder)
        self.tokens = model.tokenizer(PROBE).input_ids
        self.asked: list[tuple[str, Any]] = []
        self.status = dict[str, int]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body, path = json.loads(request.content or b"{}"), request.url.path
        self.asked.append((path, body))
        if path in self.status:
            return httpx.Response(self.status[path], text="no such thing")
        answers: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "served", "root": self.root}]},
            "/tokenize": {"tokens": self.tokens},
            "/collective_rpc": {"results": [None]},
            "/reset_prefix_cache": {},
        }
        if path == "/v1/completions":
            first = body["prompt"][0]
            choice = {"token_ids": [first, 3], "logprobs": {"token_logprobs": [-1.0, -2.0]}}
            return httpx.Response(200, json={"choices": [choice]})
        return httpx.Response(200, json=answers[path])


def connected(server: Any, folder: Path) -> VllmServer:
    engine = VllmServer(url="http://127.0.0.1:8000/", folder=str(folder))
    engine._http = httpx.Client(transport=httpx.MockTransport(server))
    return engine


def test_a_rollout(model: CausalLM, tmp_path: Path) -> None:
    server = Server(model, tmp_path)
    engine = connected(server, tmp_path)
    engine.open(model)
    engine.load(model)
    path, body = server.asked[2]
    assert path == "/collective_rpc"
    folder = Path(body["kwargs"]["weights_path"])
    assert body["method"] == "reload_weights"
    assert (folder / "model.safetensors").is_file()
    assert server.asked[3][0] == "/reset_prefix_cache"
    drawn = engine.generate([[1, 2], [4]], [7, 8], SETTINGS)
    assert [c.ids for c in drawn] == [[1, 3], [4, 3]]
    assert [c.log_probs for c in drawn] == [[-1.0, -2.0]] * 2
    asked = sorted((body for path, body in server.asked[4:]), key=lambda body: body["seed"])
    assert [body["seed"] for body in asked] == [7, 8]
    assert asked[0]["model"] == "served"
    assert asked[0]["stop_token_ids"] == [0, 3]
    # what is not asked for is filled in from the model's generation_config.json
    whole = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
    assert whole.items() <= asked[0].items()
    assert folder == tmp_path
    assert asked[0]["stop"] is None
    assert asked[0]["logit_bias"] is None
    texts = StopTexts(model.tokenizer, ["\n\n", "END"])
    engine.generate([[1]], [7], replace(SETTINGS, stop_texts=texts, unused=(258, 300)))
    assert server.asked[-1][1]["stop"] == ["\n\n", "END"]
    assert server.asked[-1][1]["logit_bias"] == {"258": -100.0, "300": -100.0}
    engine.close()


def test_another_tokenizer_is_refused(model: CausalLM, tmp_path: Path) -> None:
    server = Server(model, tmp_path)
    server.tokens = [1, 2, 3]
    with pytest.raises(EngineError, match="serve the model that is trained"):
        connected(server, tmp_path).open(model)


def test_a_tied_model_is_served_from_the_folder(model: CausalLM, tmp_path: Path) -> None:
    server = Server(model, tmp_path)
    server.root = "owner/name"
    with pytest.raises(EngineError, match=f"serves owner/name.*must be served from {tmp_path}"):
        connected(server, tmp_path).open(model)
    model.network.config.tie_word_embeddings = False
    connected(server, tmp_path).open(model)


def test_a_server_that_takes_no_weights_is_refused(model: CausalLM, tmp_path: Path) -> None:
    server = Server(model, tmp_path)
    server.status = {"/collective_rpc": 404}
    engine = connected(server, tmp_path)
    engine.open(model)
    with pytest.raises(EngineError, match="VLLM_SERVER_DEV_MODE=1"):
        engine.load(model)
    engine.close()


def test_a_server_that_fails_or_is_gone_is_an_engine_error(model: CausalLM, tmp_path: Path) -> None:
    server = Server(model, tmp_path)
    engine = connected(server, tmp_path)
    engine.open(model)
    server.status = {"/v1/completions": 500}
    with pytest.raises(EngineError, match="answers 500: no such thing"):
        engine.generate([[1]], [7], SETTINGS)

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    engine.close()
    with pytest.raises(EngineError, match=r"does not answer \(ConnectError\)"):
        connected(gone, tmp_path).open(model)
