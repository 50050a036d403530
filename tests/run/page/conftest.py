"""A run folder as a short training leaves it; nothing is trained."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rlfactory.run.environment import Environment, record_environment
from rlfactory.run.folder import RunFolder
from rlfactory.run.loggers.base import sample_table
from rlfactory.run.samples import image_file
from rlfactory.run.scores import Scores

PROMPTS = ["a <b>red</b> circle", "two squares", "一个红色的圆形", "a cat 🐱", "fifth"]


def make_run(path: Path, *, texts: bool) -> RunFolder:
    """A run of four iterations with two evaluations."""
    folder = RunFolder.create(path)
    lines = []
    for iteration in range(5):
        values = {"reward/main/mean": 0.1 * iteration, "grad/norm": 1.0 / (1 + iteration)}
        lines.append({"iteration": iteration, "time": 10.0 * iteration, **values})
    for iteration in (0, 4):
        main = np.array([0.2, 0.5, 0.1, 0.9, 0.5]) + 0.1 * iteration * np.array([1, -1, 1, 0, 0])
        values = {"main": main, "cost": -main}
        scores = Scores(PROMPTS, values, ["x", "x", "y", "y", "y"], better={"main": "higher"})
        scores.save(folder.evaluation(iteration))
        words = [f"</script> text {i} of {iteration}" for i in range(5)] if texts else None
        columns = {name: column.tolist() for name, column in values.items()}
        table = sample_table("t", PROMPTS, words, columns)
        table.save(folder.samples / f"eval_{iteration:06d}.json")
        lines.append({"iteration": iteration, "eval/main/mean": float(main.mean())})
        for row in () if texts else range(5):
            file = image_file(folder.samples, iteration, row)
            file.parent.mkdir(exist_ok=True)
            Image.new("RGB", (16, 16), (50 * row, 60 * iteration, 90)).save(file)
    folder.metrics.write_text("".join(json.dumps({"time": 9.0, **line}) + "\n" for line in lines))
    choices = "{model: tiny_sd3, algo: nft, reward: shapes}"
    folder.config.write_text(f"seed: 7\niterations: 4\ngroup_size: 3\nchoices: {choices}\n")
    folder.command.write_text("rlfactory prompts='a & b'\n")
    folder.curves.write_bytes(b"")
    folder.set_status("done")
    environment = Environment("NVIDIA H200", 2, {"torch": "2.13"}, "0123456789ab+")
    record_environment(folder.environment, environment)
    return folder


@pytest.fixture
def images(tmp_path: Path) -> RunFolder:
    """A run that makes images."""
    return make_run(tmp_path / "my run", texts=False)


@pytest.fixture
def texts(tmp_path: Path) -> RunFolder:
    """A run that makes texts."""
    return make_run(tmp_path / "my run", texts=True)
