"""Where metrics go besides metrics.jsonl: one file for each service.

The names of the classes here are those that configurations know them by.
"""

from rlfactory.run.loggers.base import Logger, NoLogger
from rlfactory.run.loggers.several import Several
from rlfactory.run.loggers.tensorboard import TensorBoard
from rlfactory.run.loggers.trackio import Trackio
from rlfactory.run.loggers.wandb import Wandb

__all__ = ["Logger", "NoLogger", "Several", "TensorBoard", "Trackio", "Wandb"]
