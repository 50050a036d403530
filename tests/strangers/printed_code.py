"""Runs printed code in a process of its own: `printed_code.py JOBS`."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


def main(jobs: list[dict[str, str]]) -> None:
    for job in jobs:
        names: dict[str, Any] = {}
        exec(job["code"], names)
        drawn = []
        if "tokenizer=tokenizer" in job["code"]:
            drawn = [names["tokenizer"]]
        torch.manual_seed(0)
        asked = {"output_scores": True, "return_dict_in_generate": True}
        given = {"tokenizer": names["tokenizer"]} if drawn else {}
        found = names["model"].generate(**names["begun"], **given, **asked)
        scores = torch.stack(found.scores, dim=1)[0]
        save_file(
            {
                "prompt": names["begun"].input_ids.contiguous(),
                "tokens": found.sequences.contiguous(),
                "scores": scores.log_softmax(-1).contiguous(),
            },
            job["out"],
        )
    assert not any(name.split(".")[0] == "rlfactory" for name in sys.modules)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(json.loads(Path(sys.argv[1]).read_text()))
