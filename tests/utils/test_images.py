import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from rlfactory.utils.images import (
    batch_to_pil,
    contact_sheet,
    evenly_spaced,
    picture,
    read_image,
    resize_to_square,
    to_pil,
)


def test_each_pixel_stays_where_it_is():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 3, 4, 6), generator=generator, dtype=torch.uint8)
    found = np.stack([np.asarray(picture) for picture in batch_to_pil(images)])
    np.testing.assert_array_equal(found, images.permute(0, 2, 3, 1).numpy())
    assert [to_pil(image).tobytes() for image in images] == [row.tobytes() for row in found]
    assert to_pil(images[0]).size == (6, 4)


@pytest.mark.parametrize(
    ("total", "count", "expected"),
    [
        (9, 4, [0, 3, 5, 8]),
        (3, 4, [0, 1, 2]),
        (1, 4, [0]),
        (5, 1, [2]),
        (5, 2, [0, 4]),
    ],
)
def test_frames_are_evenly_spaced(total: int, count: int, expected: list[int]) -> None:
    assert evenly_spaced(total, count) == expected


def test_a_contact_sheet_has_frames_in_reading_order() -> None:
    levels = torch.tensor([10, 20, 30, 40], dtype=torch.uint8)
    sheet = contact_sheet(levels[:, None, None, None].expand(4, 3, 2, 5))
    assert sheet.size == (10, 4)
    corners = [(0, 0), (5, 0), (0, 2), (5, 2)]
    assert [sheet.getpixel(place)[0] for place in corners] == [10, 20, 30, 40]


def test_a_video_of_one_frame_is_shown_as_that() -> None:
    image = torch.full((3, 2, 5), 7, dtype=torch.uint8)
    assert picture(image[None]).tobytes() == picture(image).tobytes() == to_pil(image).tobytes()


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "0.png")
    with pytest.raises(OSError, match="is no file"):
        read_image(tmp_path / "0.png")


def test_resizing_is_pillows():
    torch.manual_seed(0)
    image = torch.randint(0, 256, (3, 10, 6), dtype=torch.uint8)
    expected = Image.fromarray(image.permute(1, 2, 0).numpy()).resize((7, 7))
    found = Image.fromarray(resize_to_square(image, 7).permute(1, 2, 0).numpy())
    assert found.tobytes() == expected.tobytes()
    assert resize_to_square(image, None) is image
