"""All that a run imports, for a process to have behind it before it forks."""

import importlib

import torch

torch.set_num_threads(1)  # a thread of ours would be missing after the fork

for name in (
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
    "rlfactory.train.process.worker",
    "transformers.models.gpt2.modeling_gpt2",
):
    importlib.import_module(name)
