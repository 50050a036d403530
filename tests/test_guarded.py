"""What is not finite stops a run before anything has moved, through the command."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from rlfactory import cli, worker
from rlfactory.algo.base import Loss
from rlfactory.algo.grpo import GRPO
from rlfactory.algo.ppo import PPO
from rlfactory.batch import Outputs, TokenOutputs
from rlfactory.model.weights import Weights
from rlfactory.parts import Parts
from rlfactory.reward.function import FunctionReward
from rlfactory.reward.shapes import ShapesReward
from rlfactory.run.checkpoint import newest
from rlfactory.run.folder import RunFolder
from rlfactory.session import Session

ALGOS = {"image": GRPO, "token": PPO}
REWARDS = {"image": ShapesReward, "token": FunctionReward}
NAN = float("nan")
