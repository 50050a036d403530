import pickle

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor

from rlfactory.config.paths import packaged_folder
from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.imagereward import ImageReward, normalise
from rlfactory.train.build import instantiate_group

CPU = torch.device("cpu")
PROMPTS = ["a good movie", "bad movie times !", "great waste of the"]


@pytest.fixture
def folder(tmp_path, blip_state, bert_tokenizer):
    torch.save(blip_state, tmp_path / "ImageReward.pt")
    bert_tokenizer.save_pretrained(tmp_path / "tokenizer")
    return tmp_path


def load(folder, **options):
    return ImageReward(
        CPU, path=str(folder / "ImageReward.pt"), tokenizer=str(folder / "tokenizer"), **options
    )


def samples(size=(32, 32), prompts=PROMPTS):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (len(prompts), 3, *size), generator=generator)
    count = torch.arange(len(prompts))
    return Samples(prompts, [{}] * len(prompts), count, images.to(torch.uint8))


def score(reward, of) -> Tensor:
    found = reward.score(of)
    check_scores(reward, found, len(of.prompts))
    return found["imagereward"]


def test_normalisation_golden():
    """The published mean and deviation of raw scores."""
    raw = torch.tensor([0.16717362830052426, 0.16717362830052426 + 1.0333394966054072, 0.0])
    assert normalise(raw).tolist() == pytest.approx([0.0, 1.0, -0.16177996], abs=1e-6)


def test_scores_are_those_of_each_sample_alone(folder):
    of = samples()
    together = score(load(folder), of)
    in_pairs = score(load(folder, batch_size=2), of)
    torch.testing.assert_close(in_pairs, together, atol=1e-5, rtol=1e-4)
    assert together.std() > 0.01


def test_pictures_are_prepared_as_published(folder):
    """Shorter side to 32 by Pillow's bicubic, the middle of it, CLIP's mean and deviation."""
    of = samples((40, 80), PROMPTS[:1])
    image = Image.fromarray(of.images[0].permute(1, 2, 0).numpy())
    small = image.resize((64, 32), Image.BICUBIC).crop((16, 0, 48, 32))
    middle = torch.from_numpy(np.array(small))
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])
    deviation = torch.tensor([0.26862954, 0.26130258, 0.27577711])
    expected = ((middle / 255 - mean) / deviation).permute(2, 0, 1)
    reward = load(folder)
    seen: list[tuple[Tensor, ...]] = []

    def forward(*inputs: Tensor) -> Tensor:
        seen.append(inputs)
        return torch.zeros(1)

    reward.model.forward = forward
    score(reward, of)
    torch.testing.assert_close(seen[0][0][0], expected, atol=1e-5, rtol=0)
    assert seen[0][1].shape == (1, 35)


def test_long_prompts_lose_their_end(folder):
    reward = load(folder)
    images = samples().images[:1]
    long, cut = (
        score(reward, Samples(["good " * n], [{}], torch.tensor([0]), images)) for n in (200, 33)
    )
    assert torch.equal(long, cut)


def test_what_float16_can_not_hold_is_no_score(folder, blip_state):
    blip_state["mlp.layers.7.bias"] += torch.inf
    torch.save(blip_state, folder / "ImageReward.pt")
    assert score(load(folder), samples()).isnan().all()


class Malice:
    def __reduce__(self):
        return (print, ("it ran",))


def test_a_file_that_is_more_than_tensors_is_refused(folder, blip_state, capsys):
    (folder / "ImageReward.pt").write_bytes(pickle.dumps({"mlp": Malice()}, protocol=2))
    with pytest.raises(RewardError, match=r"ImageReward\.pt"):
        load(folder)
    torch.save(blip_state | {"x": Malice()}, folder / "ImageReward.pt")
    with pytest.raises(RewardError, match="more than tensors"):
        load(folder)
    assert "it ran" not in capsys.readouterr().out


def without_a_tensor(folder, state):
    del state["mlp.layers.0.weight"]
    torch.save(state, folder / "ImageReward.pt")


def of_something_else(folder, state):
    torch.save({"weight": torch.zeros(2)}, folder / "ImageReward.pt")


def of_no_tensors(folder, state):
    torch.save([1, 2], folder / "ImageReward.pt")


def torn(folder, state):
    (folder / "ImageReward.pt").write_bytes(b"torn")


def without_a_file(folder, state):
    (folder / "ImageReward.pt").unlink()


def without_a_tokenizer(folder, state):
    for file in (folder / "tokenizer").iterdir():
        file.unlink()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (without_a_tensor, r"is no ImageReward: .*mlp\.0\.weight"),
        (of_something_else, "is no ImageReward"),
        (of_no_tensors, "no tensors by name"),
        (torn, r"ImageReward\.pt"),
        (without_a_file, r"there is no such file"),
        (without_a_tokenizer, r"^reward\.tokenizer="),
    ],
)
def test_what_can_not_be_loaded(folder, blip_state, harm, message):
    harm(folder, blip_state)
    with pytest.raises(RewardError, match=f"(?s){message}"):
        load(folder)


def test_a_path_that_leads_nowhere():
    with pytest.raises(RewardError, match=r"^reward\.path=/nonesuch: there is no such file"):
        ImageReward(CPU, path="/nonesuch")


def test_the_option_is_built(folder):
    file = packaged_folder("conf") / "reward" / "imagereward.yaml"
    config = yaml.safe_load(file.read_text())
    config["reward"] |= {
        "path": str(folder / "ImageReward.pt"),
        "tokenizer": str(folder / "tokenizer"),
    }
    assert instantiate_group(config, "reward", device=CPU).device == CPU
