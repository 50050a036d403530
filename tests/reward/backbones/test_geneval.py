import torch
from PIL import Image
from transformers import Mask2FormerForUniversalSegmentation

from rlfactory.prompts.ops.geneval_metadata import COLORS, OBJECTS
from rlfactory.reward.backbones.geneval import ColorNamer, Detector, crop_object, instance

from ..conftest import mask, noise

CPU = torch.device("cpu")


def test_the_detector_finds_instances_in_order(detector_folder):
    detector = Detector(str(detector_folder), CPU, dtype=torch.float32, side=64)
    assert detector.names == ("cat", "dog", "cow")
    found = detector(noise(), 0.0)
    assert len(found) == 2
    for items in found:
        assert 0 < len(items) <= 6
        confidence = [item.confidence for item in items]
        assert confidence == sorted(confidence, reverse=True)
        for item in items:
            assert item.mask.shape == (32, 48)
            left, top, right, bottom = item.box
            assert item.mask.sum() == item.mask[top:bottom, left:right].sum() > 0
            assert item.mask[top].any()
            assert item.mask[:, right - 1].any()
    assert detector(noise(), 0.99) == [[], []]
    alone = detector(noise()[1:], 0.0)[0]
    assert [item.name for item in alone] == [item.name for item in found[1]]


def test_the_published_size_has_coco_s_classes_by_geneval_s_names(detector_folder, monkeypatch):
    folder = str(detector_folder)
    model = Mask2FormerForUniversalSegmentation.from_pretrained(folder)
    model.config.id2label = {i: "tvmonitor" for i in range(80)}
    monkeypatch.setattr(
        "rlfactory.reward.backbones.geneval.load_full_model", lambda *_, **__: model.eval()
    )
    assert Detector(folder, CPU, dtype=torch.float32, side=64).names == OBJECTS


def test_an_object_is_cut_out_on_grey():
    picture = Image.new("RGB", (48, 32), (255, 0, 0))
    cut = crop_object(picture, instance("cat", 0.9, mask(4, 6, 20, 16) & ~mask(4, 6, 8, 8)))
    assert cut.size == (16, 10)
    assert cut.getpixel((0, 0)) == cut.getpixel((3, 1)) == (0x99, 0x99, 0x99)
    assert cut.getpixel((4, 0)) == cut.getpixel((15, 9)) == (255, 0, 0)


def test_the_colour_is_clip_s_nearest(clip_folder):
    """Against CLIP's own similarities, the mean of unit vectors over three phrases."""
    namer = ColorNamer(str(clip_folder), CPU, dtype="float32")
    items = [instance("movie", 0.9, mask(4, 6, 20, 16)), instance("movie", 0.8, mask(0, 0, 48, 32))]
    direction = torch.randn(10, 24, generator=torch.Generator().manual_seed(3))
    namer._classifiers["movie"] = direction
    found = namer(noise()[0], items)
    picture = Image.fromarray(noise()[0].permute(1, 2, 0).numpy())
    for item, color in zip(items, found, strict=True):
        pixels = namer.clip.pixels([crop_object(picture, item)])
        with torch.no_grad():
            seen = namer.clip.model.visual_projection(
                namer.clip.model.vision_model(pixels).pooler_output
            )
        assert color == COLORS[(seen @ direction.T).argmax()]
    assert namer(noise()[0], []) == []


def test_a_colour_s_direction_is_the_mean_of_three_phrases(clip_folder):
    namer = ColorNamer(str(clip_folder), CPU, dtype="float32")
    found = namer._classifier("movie")
    assert found.shape == (10, 24)
    phrases = ["a photo of a blue movie", "a photo of a blue-colored movie"]
    total = torch.zeros(24)
    for phrase in [*phrases, "a photo of a blue object"]:
        tokens = namer.clip.tokenizer(phrase, return_tensors="pt")
        with torch.no_grad():
            pooled = namer.clip.model.text_model(tokens["input_ids"]).pooler_output
            vector = namer.clip.model.text_projection(pooled)[0]
        total += vector / vector.norm()
    torch.testing.assert_close(
        found[COLORS.index("blue")], total / total.norm(), atol=1e-4, rtol=1e-4
    )
