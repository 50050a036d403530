"""Errors that whoever typed the command can do something about."""

from rlfactory.hardware.base import HardwareError
from rlfactory.inspection.errors import InspectionError
from rlfactory.model.pipeline import ModelError
from rlfactory.prompts.base import PromptError
from rlfactory.reward.base import RewardError
from rlfactory.run.folder import RunFolderError
from rlfactory.scoring import TrainingError

MENDABLE = (
    HardwareError,
    InspectionError,
    ModelError,
    PromptError,
    RewardError,
    RunFolderError,
    TrainingError,
    OSError,
)
"""Anything else is a defect of ours and keeps its traceback on the screen."""
