import numpy as np
import torch

from rlfactory.utils.images import batch_to_pil, to_pil


def test_each_pixel_stays_where_it_is():
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 3, 4, 6), generator=generator, dtype=torch.uint8)
    found = np.stack([np.asarray(picture) for picture in batch_to_pil(images)])
    np.testing.assert_array_equal(found, images.permute(0, 2, 3, 1).numpy())
    assert [to_pil(image).tobytes() for image in images] == [row.tobytes() for row in found]
    assert to_pil(images[0]).size == (6, 4)
