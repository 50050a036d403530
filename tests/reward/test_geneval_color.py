import torch
from PIL import Image

from rlfactory.reward.geneval_color import ColorNamer, cut_out
from rlfactory.reward.geneval_detector import instance
from rlfactory.reward.geneval_metadata import COLORS

from .conftest import mask, noise

CPU = torch.device("cpu")


def test_an_object_is_cut_out_on_grey():
    picture = Image.new("RGB", (48, 32), (255, 0, 0))
    cut = cut_out(picture, instance("cat", 0.9, mask(4, 6, 20, 16) & ~mask(4, 6, 8, 8)))
    assert cut.size == (16, 10)
    assert cut.getpixel((0, 0)) == cut.getpixel((3, 1)) == (0x99, 0x99, 0x99)
    assert cut.getpixel((4, 0)) == cut.getpixel((15, 9)) == (255, 0, 0)


def test_the_colour_is_clip_s_nearest(clip_folder):
    """Against CLIP's own similarities, the mean of unit vectors over three phrases."""
    namer = ColorNamer(str(clip_folder), CPU, dtype=torch.float32)
    items = [instance("movie", 0.9, mask(4, 6, 20, 16)), instance("movie", 0.8, mask(0, 0, 48, 32))]
    direction = torch.randn(10, 24, generator=torch.Generator().manual_seed(3))
    namer._known["movie"] = direction
    found = namer(noise()[0], items)
    picture = Image.fromarray(noise()[0].permute(1, 2, 0).numpy())
    for item, color in zip(items, found, strict=True):
        pixels = namer.processor(cut_out(picture, item), return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            seen = namer.model.visual_projection(namer.model.vision_model(pixels).pooler_output)
        assert color == COLORS[(seen @ direction.T).argmax()]
    assert namer(noise()[0], []) == []


def test_a_colour_s_direction_is_the_mean_of_three_phrases(clip_folder):
    namer = ColorNamer(str(clip_folder), CPU, dtype=torch.float32)
    found = namer._colors("movie")
    assert found.shape == (10, 24)
    phrases = ["a photo of a blue movie", "a photo of a blue-colored movie"]
    total = torch.zeros(24)
    for phrase in [*phrases, "a photo of a blue object"]:
        tokens = namer.tokenizer(phrase, return_tensors="pt")
        with torch.no_grad():
            pooled = namer.model.text_model(tokens["input_ids"]).pooler_output
            vector = namer.model.text_projection(pooled)[0]
        total += vector / vector.norm()
    torch.testing.assert_close(
        found[COLORS.index("blue")], total / total.norm(), atol=1e-4, rtol=1e-4
    )
