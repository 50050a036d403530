"""Loggers: services that show a run's metrics besides metrics.jsonl; one file for each.

Configurations refer to the classes by the names that this package exports.
"""

from rlfactory.run.loggers.base import Logger, NoLogger
from rlfactory.run.loggers.fault_tolerant import Several
from rlfactory.run.loggers.tensorboard import TensorBoard
from rlfactory.run.loggers.trackers import MLflow, SwanLab
from rlfactory.run.loggers.trackio import Trackio
from rlfactory.run.loggers.wandb import Wandb

__all__ = [
    "Logger",
    "MLflow",
    "NoLogger",
    "Several",
    "SwanLab",
    "TensorBoard",
    "Trackio",
    "Wandb",
]
