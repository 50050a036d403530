"""Opens exports with other libraries, in a separate process without rlfactory.

`fresh.py JOBS` reads a list of jobs (how to load, what to predict from, where to write), and writes
each network's output and the latents that the printed code draws.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

Inputs = dict[str, Tensor]


@torch.no_grad()
def predict(network: Any, inputs: Inputs) -> Tensor:
    """A network's output, `inputs` being what its family takes."""
    if "guidance" not in inputs and "pooled" not in inputs:
        return network(inputs["x"], inputs["t"].long(), inputs["sequence"], return_dict=False)[0]
    text = {
        "encoder_hidden_states": inputs["sequence"],
        "pooled_projections": inputs["pooled"],
        "return_dict": False,
    }
    if "guidance" not in inputs:
        return network(hidden_states=inputs["x"], timestep=inputs["t"], **text)[0]
    return network(
        hidden_states=inputs["x"],
        timestep=inputs["t"],
        guidance=inputs["guidance"],
        txt_ids=inputs["txt_ids"],
        img_ids=inputs["img_ids"],
        **text,
    )[0]


def network_of(pipe: Any) -> Any:
    return getattr(pipe, "transformer", None) or pipe.unet


def drawn(code: str, start: Tensor) -> tuple[Any, Tensor]:
    """The pipeline of the printed code, and the latents that it draws from a known start."""
    names: dict[str, Any] = {"start": start}
    exec(code, names)
    assert names["image"].size == (64, 64)
    asked = code.splitlines()[-1].removesuffix(").images[0]")
    exec(f"{asked}, latents=start.clone(), output_type='latent').images", names)
    return names["pipe"], names["image"]


def main(jobs: list[dict[str, str]]) -> None:
    for job in jobs:
        # as they lie in the file, some processors' kernels round them differently
        inputs = {name: tensor.clone() for name, tensor in load_file(job["inputs"]).items()}
        found: dict[str, Tensor] = {}
        pipe, found["latents"] = drawn(job["code"], inputs.pop("start"))
        assert network_of(pipe).dtype == torch.float32
        found["output"] = predict(network_of(pipe), inputs)
        if "peft" in job:
            from peft import PeftModel

            pipe.unload_lora_weights()
            adapted = PeftModel.from_pretrained(network_of(pipe), job["peft"]).eval()
            found["peft"] = predict(adapted, inputs)
        save_file({name: tensor.contiguous() for name, tensor in found.items()}, job["out"])
    assert not any(name.split(".")[0] == "rlfactory" for name in sys.modules)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(json.loads(Path(sys.argv[1]).read_text()))
