"""The networks are small and random; what they find is tested with masks made by hand."""

import pytest
import torch
import yaml
from PIL import Image
from transformers import Mask2FormerForUniversalSegmentation

from rlfactory.config.options import packaged_folder
from rlfactory.prompts.base import Prompt
from rlfactory.prompts.ops.prompt_features import COLORS, OBJECTS
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.geneval import (
    ColorNamer,
    Detector,
    GenEval,
    crop_object,
    instance,
    most_confident,
)
from rlfactory.train.build import instantiate_group

from .conftest import mask, noise

CPU = torch.device("cpu")


def load(detector_folder, clip_folder, **options):
    paths = {"path": str(detector_folder), "clip_path": str(clip_folder)}
    return GenEval(CPU, **paths, side=64, **options)


def samples(metadata, images=None):
    count = len(metadata)
    images = noise(count) if images is None else images
    return Samples(["a cat"] * count, metadata, torch.arange(count), images)


def clause(name, count=1, **more):
    return {"class": name, "count": count, **more}


def test_only_the_most_certain_of_a_class():
    items = [
        instance(name, confidence, mask(0, 0, 4, 4))
        for name, confidence in [("dog", 0.4), ("cat", 0.3), ("dog", 0.9), ("dog", 0.5)]
    ]
    kept = most_confident(items, 0.3, 2)
    assert [(item.name, item.confidence) for item in kept] == [("dog", 0.9), ("dog", 0.5)]


@pytest.fixture
def told(detector_folder, clip_folder):
    """The reward, with a detector and names of colours that are told."""

    def make(items, colors=(), **options):
        reward = load(detector_folder, clip_folder, **options)
        names = reward.detect.names

        class Told:
            def __call__(self, images, threshold):
                certain = [item for item in items if item.confidence >= threshold]
                return [certain] * len(images)

        reward.detect = Told()
        reward.detect.names = names
        left = iter(colors)
        reward.name_colors = lambda image, objects: [next(left) for _ in objects]
        return reward

    return make


CAT = instance("cat", 0.95, mask(2, 8, 12, 20))
DOG = instance("dog", 0.5, mask(34, 8, 46, 20))
LEFT = {"tag": "position", "include": [clause("dog"), clause("cat", position=["left of", 0])]}
RIGHT = {"tag": "position", "include": [clause("dog"), clause("cat", position=["right of", 0])]}


def score(reward, *metadata):
    of = samples(list(metadata))
    found = reward.score(of)
    check_scores(reward, found, len(metadata))
    return list(zip(found["geneval"].tolist(), found["geneval_strict"].tolist(), strict=True))


def test_relations_from_masks(told):
    assert score(told([CAT, DOG]), LEFT, RIGHT) == [(1, 1), (pytest.approx(2 / 3), 0)]
    published = told([CAT, DOG], relation_credit="flow_grpo")
    assert score(published, LEFT, RIGHT) == [(1, 1), (0.75, 0)]
    assert score(told([CAT]), LEFT) == [(pytest.approx(1 / 3), 0)]


def test_counting_takes_only_the_very_certain(told):
    items = [CAT, instance("cat", 0.5, mask(20, 8, 30, 20))]
    wanted = {"include": [clause("cat", 2)]}
    found = score(told(items), wanted | {"tag": "counting"}, wanted | {"tag": "single_object"})
    assert found == [(0.5, 0), (1, 1)]
    assert score(told(items, counting_threshold=0.4), wanted | {"tag": "counting"}) == [(1, 1)]


def test_at_most_sixteen_of_a_class_and_no_less_than_zero(told):
    items = [instance("cat", 0.9 - i / 100, mask(i, 0, i + 2, 4)) for i in range(40)]
    one = {"tag": "single_object", "include": [clause("cat", 1)]}
    sixteen = {"tag": "single_object", "include": [clause("cat", 16)]}
    assert score(told(items), one, sixteen) == [(0, 1), (1, 1)]


def test_colours_are_named_where_one_is_asked_for(told):
    wanted = {"tag": "colors", "include": [clause("cat", color="red")]}
    assert score(told([CAT, DOG], ["red"]), wanted) == [(1, 1)]
    assert score(told([CAT, DOG], ["blue"]), wanted) == [(0.5, 0)]
    assert score(told([CAT, DOG]), {"tag": "x", "include": [clause("dog")]}) == [(1, 1)]


def test_exclude_counts_in_the_strict_score_alone(told):
    wanted = {"tag": "x", "include": [clause("cat")], "exclude": [clause("dog", 1)]}
    assert score(told([CAT, DOG]), wanted) == [(1, 0)]


def test_metadata_that_can_not_be_judged(told, caplog):
    reward = told([CAT])
    found = score(reward, {"tag": "x", "include": [clause("unicorn")]}, {}, LEFT)
    assert [value != value for value, _ in found] == [True, True, False]
    assert "knows no 'unicorn'" in caplog.text
    with pytest.raises(RewardError, match="'a unicorn'.*knows no 'unicorn'"):
        reward.check_prompts(
            [
                Prompt("cats", LEFT),
                Prompt("a unicorn", {"tag": "x", "include": [clause("unicorn")]}),
            ]
        )
    with pytest.raises(RewardError, match="metadata lacks tag"):
        reward.check_prompts([Prompt("a cat", {})])
    reward.check_prompts([Prompt("cats", LEFT)])


def test_end_to_end_on_small_networks(detector_folder, clip_folder):
    colored = {"tag": "colors", "include": [clause("cat", color="red"), clause("dog")]}
    options = {"threshold": 0.0, "counting_threshold": 0.0}
    for batch_size in (1, 8):
        reward = load(detector_folder, clip_folder, batch_size=batch_size, **options)
        for soft, strict in score(reward, colored, LEFT, colored):
            assert 0 <= soft <= 1
            assert strict in (0, 1)


@pytest.mark.parametrize("key", ["path", "clip_path"])
def test_a_folder_that_holds_nothing(detector_folder, clip_folder, tmp_path_factory, key):
    empty = tmp_path_factory.mktemp("empty")
    paths = {"path": str(detector_folder), "clip_path": str(clip_folder), key: str(empty)}
    with pytest.raises(RewardError, match=rf"^reward\.{key}={empty} .*no config\.json"):
        GenEval(CPU, **paths)
    paths[key] = str(clip_folder if key == "path" else detector_folder)
    with pytest.raises(RewardError, match=rf"^reward\.{key}=.* it is a (clip|mask2former)"):
        GenEval(CPU, **paths)


def test_the_option_is_built(detector_folder, clip_folder):
    config = yaml.safe_load((packaged_folder("conf") / "reward" / "geneval.yaml").read_text())
    config["reward"] |= {"path": str(detector_folder), "clip_path": str(clip_folder)}
    reward = instantiate_group(config, "reward", device=CPU)
    assert (reward.threshold, reward.counting_threshold, reward.max_objects) == (0.3, 0.9, 16)


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
    monkeypatch.setattr("rlfactory.reward.geneval.load_full_model", lambda *_, **__: model.eval())
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
