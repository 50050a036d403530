"""All that a run imports, and plans, for a process to have behind it before it forks.

What is missing here each forked process imports by itself: that took half of the time of the ranks
of a small run.
"""

import gc
import importlib
import os

import torch

from rlfactory.config.overrides import plan_from_words
from rlfactory.train.build import instantiate_group

torch.set_num_threads(1)  # a thread of ours would be missing after the fork
# a child makes torch's pool anew when it first uses it, and two threads at once would fail
os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))

for name in (
    "diffusers.guiders",
    "diffusers.models.autoencoders",
    "diffusers.models.transformers",
    "diffusers.models.unets",
    "diffusers.pipelines.onnx_utils",  # and onnxruntime, where it is installed
    "diffusers.pipelines.flux.pipeline_flux",
    "diffusers.pipelines.stable_diffusion.pipeline_stable_diffusion",
    "diffusers.pipelines.stable_diffusion_3.pipeline_stable_diffusion_3",
    "diffusers.training_utils",
    "hydra",
    "matplotlib.pyplot",
    "peft",
    "rlfactory.cli.app",
    "rlfactory.model.causal_lm",
    "rlfactory.model.flux",
    "rlfactory.model.sd",
    "rlfactory.model.sd3",
    "rlfactory.cli.run_commands",
    "rlfactory.config.plan",
    "rlfactory.config.overrides",
    "rlfactory.cli.resume",
    "rlfactory.hardware.fsdp",
    "rlfactory.report.results",
    "rlfactory.run.checkpoint.sharded",
    "rlfactory.train.process.worker",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.run",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.gpt2.tokenization_gpt2",
):
    importlib.import_module(name)

# files of options are read, and tables of their grammar and of tensors' names made, once for all
for words in (["algo=grpo"], ["algo=nft"], ["model=tiny_gpt2", "algo=ppo"]):
    config = plan_from_words(*words).config
    if "algo=grpo" not in words:
        instantiate_group(config, "model", device=torch.device("cpu"), seed=0)

# a collection in a forked process would write to, and so copy, each page of what is shared
gc.collect()
gc.freeze()
