"""What is written is read by TensorBoard's own reader."""

from pathlib import Path
from typing import Any

from rlfactory.run.loggers.tensorboard import TensorBoard
from rlfactory.run.samples import SampleTable


def events(run_dir: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run_dir / "tensorboard"))
    found.Reload()
    return found


def points(run_dir: Path, name: str) -> list[tuple[int, float]]:
    return [(e.step, e.value) for e in events(run_dir).Scalars(name)]


def test_scalars_pictures_and_tables(tmp_path: Path, picture: Path, table: SampleTable) -> None:
    logger = TensorBoard()
    logger.start(tmp_path, {"seed": 7})
    for i in range(3):
        logger.log(i, {"reward/shapes/mean": i / 2})
    logger.images(2, "eval/samples", picture, "caption")
    logger.table(2, "eval/table", table)
    logger.finish()
    logger.finish()
    assert points(tmp_path, "reward/shapes/mean") == [(0, 0.0), (1, 0.5), (2, 1.0)]
    found = events(tmp_path)
    (image,) = found.Images("eval/samples")
    assert (image.step, image.width, image.height) == (2, 8, 4)
    texts = {
        tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode()
        for tag in found.Tags()["tensors"]
    }
    assert "seed: 7" in texts["config/text_summary"]
    assert "| a \\| cat | 1" in texts["eval/table/text_summary"]


def test_what_was_logged_after_a_checkpoint_is_replaced(tmp_path: Path) -> None:
    for attempt in range(2):
        logger = TensorBoard()
        if attempt:
            logger.resume({}, 1)
        logger.start(tmp_path, {})
        for i in range(2 if attempt else 0, 3):
            logger.log(i, {"x": float(attempt)})
        logger.finish()
    assert points(tmp_path, "x") == [(0, 0.0), (1, 0.0), (2, 1.0)]


def test_anew_nothing_is_left_of_before(tmp_path: Path) -> None:
    for value in (1.0, 2.0):
        logger = TensorBoard()
        logger.restart(tmp_path)
        logger.start(tmp_path, {})
        logger.log(0, {"x": value})
        logger.finish()
    assert points(tmp_path, "x") == [(0, 2.0)]
