import torch
from transformers import Mask2FormerForUniversalSegmentation

from rlfactory.reward.geneval_detector import Detector
from rlfactory.reward.geneval_metadata import OBJECTS

from .conftest import noise

CPU = torch.device("cpu")


def test_the_detector_finds_instances_in_order(detector_folder):
    detector = Detector(str(detector_folder), CPU, dtype=torch.float32, side=64)
    assert detector.names == ("cat", "dog", "cow")
    found = detector(noise(), 0.0)
    assert len(found) == 2
    for items in found:
        assert 0 < len(items) <= 6
        certainty = [item.certainty for item in items]
        assert certainty == sorted(certainty, reverse=True)
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
        "rlfactory.reward.geneval_detector.whole_model", lambda *_, **__: model.eval()
    )
    assert Detector(folder, CPU, dtype=torch.float32, side=64).names == OBJECTS
