"""HPSv3 against the published forward pass, on a small random Qwen2-VL saved under its names."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_pipelines import chat_tokenizer
from torch import nn
from transformers import AutoTokenizer, Qwen2VLConfig, Qwen2VLForConditionalGeneration

from rlfactory.reward.base import RewardError, Samples, check_scores
from rlfactory.reward.hpsv3 import IMAGE, QUESTION, SCORED, HPSv3
from rlfactory.utils.images import to_pil

CPU = torch.device("cpu")
PROMPTS = ("a red circle", "two blue stars above a {green} square")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, nn.Module]:
    """A folder with processor and file, and the network and head that were saved."""
    folder = tmp_path_factory.mktemp("hpsv3")
    tokenizer = chat_tokenizer()
    marks = ["<|vision_start|>", "<|vision_end|>", IMAGE, "<|video_pad|>"]
    tokenizer.add_tokens(marks, special_tokens=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Qwen2VLConfig(
            text_config={
                "vocab_size": len(tokenizer) + 40,  # rows beyond the tokenizer, as Qwen's
                "hidden_size": 32,
                "intermediate_size": 32,
                "num_hidden_layers": 2,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "initializer_range": 0.3,
                "bos_token_id": 0,
                "eos_token_id": 0,
                "rope_parameters": {
                    "rope_type": "default",
                    "rope_theta": 1e6,
                    "mrope_section": [2, 3, 3],
                },
            },
            vision_config={
                "depth": 1,
                "embed_dim": 32,
                "hidden_size": 32,
                "num_heads": 2,
                "mlp_ratio": 1,
                "patch_size": 14,
            },
            image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
            video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        )
        network = Qwen2VLForConditionalGeneration(config).eval()
        network.resize_token_embeddings(len(tokenizer) + 1)
        head = nn.Sequential(
            *(nn.Linear(32, 24), nn.ReLU(), nn.Dropout(0.05)),
            *(nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 2)),
        ).eval()
    config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    state = {
        name.replace("model.language_model.", "model.").replace("model.visual.", "visual."): t
        for name, t in network.state_dict().items()
    }
    state |= {f"rm_head.{name}": tensor for name, tensor in head.state_dict().items()}
    save_file(
        {name: tensor.clone().contiguous() for name, tensor in state.items()},
        folder / "w.safetensors",
    )
    return folder, network, head


def opened(folder: Path, **options: Any) -> HPSv3:
    given = {"path": str(folder / "w.safetensors"), "processor": str(folder)}
    return HPSv3(CPU, **(given | options))


def drawn(*prompts: str, size: tuple[int, int] = (64, 64)) -> Samples:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (len(prompts), 3, *size), generator=generator)
    return Samples(prompts, [{}] * len(prompts), torch.arange(len(prompts)), images.byte())


def resized(height: int, width: int) -> tuple[int, int]:
    """The size to which the published code resizes an image (`hpsv3/dataset/utils.py`)."""
    wanted = 256 * 28 * 28
    rounded = [max(28, round(length / 28) * 28) for length in (height, width)]
    if math.prod(rounded) > wanted:
        beta = math.sqrt(height * width / wanted)
        return math.floor(height / beta / 28) * 28, math.floor(width / beta / 28) * 28
    beta = math.sqrt(wanted / (height * width))
    return math.ceil(height * beta / 28) * 28, math.ceil(width * beta / 28) * 28


@torch.no_grad()
def theirs(folder: Path, network: Any, head: nn.Module, image: torch.Tensor, prompt: str) -> float:
    """One sample by the published code: embeddings put together by hand, plain positions."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [SCORED]})
    height, width = resized(*image.shape[1:])
    small = to_pil(image).resize((width, height), Image.Resampling.BICUBIC)
    values = torch.tensor([*small.tobytes()]).view(height, width, 3).permute(2, 0, 1) / 255
    mean = torch.tensor([0.48145466, 0.4578275, 0.40821073])[:, None, None]
    std = torch.tensor([0.26862954, 0.26130258, 0.27577711])[:, None, None]
    frames = ((values - mean) / std)[None].repeat(2, 1, 1, 1)
    rows, columns = height // 14, width // 14
    patches = frames.reshape(1, 2, 3, rows // 2, 2, 14, columns // 2, 2, 14)
    patches = patches.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(rows * columns, -1)
    text = QUESTION.replace("{prompt}", prompt).replace(IMAGE, IMAGE * (rows * columns // 4))
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    inner = network.model
    seen = inner.visual(patches, grid_thw=torch.tensor([[1, rows, columns]])).pooler_output
    embedded = inner.language_model.embed_tokens(ids)
    embedded[ids == network.config.image_token_id] = seen
    states = inner.language_model(inputs_embeds=embedded, use_cache=False)[0]
    scored = tokenizer.convert_tokens_to_ids(SCORED)
    return float(head(states[ids == scored])[0, 0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "size", [(64, 64), (480, 832), (768, 768)], ids=["square", "wide", "rounded down"]
)
def test_scores_are_those_of_the_published_code(published: Any, size: tuple[int, int]) -> None:
    folder, network, head = published
    reward, samples = opened(folder), drawn(*PROMPTS, size=size)
    scores = reward.score(samples)
    check_scores(reward, scores, 2)
    assert samples.images is not None
    expected = [
        theirs(folder, network, head, image, prompt)
        for image, prompt in zip(samples.images, PROMPTS, strict=True)
    ]
    assert scores["hpsv3"].tolist() == pytest.approx(expected, rel=1e-4)
    assert abs(expected[0] - expected[1]) > 1e-3
    alone = opened(folder, batch_size=1).score(samples)["hpsv3"]
    torch.testing.assert_close(alone, scores["hpsv3"], rtol=1e-4, atol=1e-5)


def test_new_names_are_read_too(published: Any, tmp_path: Path) -> None:
    folder, network, head = published
    state = {k: v.clone() for k, v in network.state_dict().items()}
    state |= {f"rm_head.{name}": tensor for name, tensor in head.state_dict().items()}
    file = tmp_path / "new.safetensors"
    save_file(state, file)
    samples = drawn("a cat")
    found = opened(folder, path=str(file)).score(samples)["hpsv3"]
    torch.testing.assert_close(found, opened(folder).score(samples)["hpsv3"])


def test_a_prompt_with_the_token_of_the_score_has_none(published: Any) -> None:
    scores = opened(published[0]).score(drawn("a cat", f"a {SCORED} dog", IMAGE))["hpsv3"]
    assert scores.isnan().tolist() == [False, True, True]


@pytest.mark.parametrize("harm", ["head", "layer", "embedding"])
def test_what_is_no_hpsv3_is_refused(published: Any, harm: str, tmp_path: Path) -> None:
    state = load_file(published[0] / "w.safetensors")
    names = {
        "head": "rm_head.3.bias",
        "layer": "model.layers.1.mlp.up_proj.weight",
        "embedding": "model.embed_tokens.weight",
    }
    state.pop(names[harm])
    file = tmp_path / "bad.safetensors"
    save_file(state, file)
    with pytest.raises(RewardError, match="is no HPSv3"):
        opened(published[0], path=str(file))


def test_another_processor_is_refused(published: Any, gpt2_folder: Path) -> None:
    with pytest.raises(RewardError, match=r"reward\.processor=.*it is a gpt2"):
        opened(published[0], processor=str(gpt2_folder))
