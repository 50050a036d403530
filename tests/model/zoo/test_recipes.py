"""The recipes of the small image models: training data, and the models that they build."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from diffusers import AutoencoderKL
from torch import Tensor

from rlfactory.dynamics.ops.forward_process import RectifiedFlow, VariancePreserving
from rlfactory.model.pipelines.shipped import SHARED, WEIGHTS, zoo_path
from rlfactory.prompts.signs import WORDS

Recipes = Callable[[str], ModuleType]


@pytest.fixture(scope="module")
def data(recipes: Recipes) -> object:
    """Twenty captioned latents of two tokenizers; no caption is token 0."""
    generator = torch.Generator().manual_seed(0)
    words = tuple(torch.randint(1, 9, (20, 4), generator=generator) for _ in range(2))
    none = tuple(torch.zeros(1, 4, dtype=torch.long) for _ in range(2))
    return recipes("noising").Captioned(torch.randn(20, 16, 8, 8, generator=generator), words, none)


@pytest.fixture(scope="module")
def lessons(recipes: Recipes) -> object:
    """Of a teacher that says random things."""
    module = recipes("lessons")
    generator = torch.Generator().manual_seed(0)
    time, timestep = module.sample_times(200, generator)
    x, given, none = torch.randn(3, 200, 16, 8, 8, generator=generator)
    return module.Lessons(x, time, timestep, torch.arange(200) % 20, given, none)


def test_batches_depend_on_the_step_alone(recipes: Recipes, data: object) -> None:
    batches = recipes("noising").noisy_batches
    whole = list(batches(data, range(6), 3, 2.0))
    resumed = list(batches(data, range(4, 6), 3, 2.0))
    assert [step for step, _ in resumed] == [4, 5]
    for (_, a), (_, b) in zip(whole[4:], resumed, strict=True):
        assert torch.equal(a.on_the_line, b.on_the_line)
        assert torch.equal(a.words[0], b.words[0])
    assert not torch.equal(whole[0][1].eps, whole[1][1].eps)


def test_a_tenth_of_the_captions_is_dropped_from_all_tokenizers(
    recipes: Recipes, data: object
) -> None:
    _, batch = next(recipes("noising").noisy_batches(data, range(1), 0, 1.0, size=4000))
    first, second = (ids.eq(0).all(1) for ids in batch.words)
    assert torch.equal(first, second)
    assert first.float().mean() == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_times_are_spread_evenly_then_shifted(recipes: Recipes, data: object, shift: float) -> None:
    _, batch = next(recipes("noising").noisy_batches(data, range(1), 0, shift, size=100))
    unshifted = batch.time / (batch.time + shift * (1 - batch.time))
    assert torch.equal((unshifted * 100 - 1e-3).floor().sort().values, torch.arange(100.0))


def test_lesson_times_are_those_of_the_table_and_beyond(lessons: object) -> None:
    within = lessons.timestep >= 0
    assert 0.05 < (~within).float().mean() < 0.15
    alpha, sigma = VariancePreserving.scaled_linear().alpha_sigma(lessons.timestep[within] / 1000)
    torch.testing.assert_close(lessons.time[within], sigma / (alpha + sigma))
    assert (lessons.time[~within] > sigma.max() / (1 + sigma.max())).all()
    assert lessons.time.max() <= 1


def test_guided_lessons(recipes: Recipes, data: object, lessons: object) -> None:
    found = recipes("lessons").lesson(lessons, data, 5, 1, 64)
    dropped = found.dropped[:, 0]
    assert 0 < dropped.sum() < 20
    assert torch.equal(found.words[1].eq(0).all(1), dropped)
    assert torch.equal(found.words[0][~dropped], data.words[0][found.rows.scene][~dropped])
    given, none = found.velocity(torch.ones(64)), found.velocity(torch.zeros(64))
    assert torch.equal(none, found.rows.none)
    torch.testing.assert_close(given[~dropped], found.rows.given[~dropped])
    assert torch.equal(given[dropped], none[dropped])
    torch.testing.assert_close(found.velocity(torch.full((64,), 4.0)), none + 4 * (given - none))


def test_a_flow_s_lesson_is_one_of_noise(recipes: Recipes, lessons: object) -> None:
    known = lessons[lessons.timestep >= 0]
    process = VariancePreserving.scaled_linear()
    noisy = recipes("tiny_sd").taught(known.given, known, process.alphas_cumprod)
    x0 = RectifiedFlow().to_x0(known.x, known.given, known.time)
    t = noisy.timestep / 1000
    torch.testing.assert_close(noisy.eps, RectifiedFlow().to_eps(known.x, known.given, known.time))
    torch.testing.assert_close(noisy.x, process.noise(x0, noisy.eps, t), atol=1e-4, rtol=1e-4)
    assert torch.equal(noisy.abar.flatten(), process.abar(t))


def test_drawn_samples_reach_both_ends_of_the_table(recipes: Recipes) -> None:
    module, process = recipes("tiny_sd"), VariancePreserving.scaled_linear()
    time = torch.tensor([0.0, 1e-4, 0.5, 0.9991, 1.0])
    x0, eps = torch.randn(2, 5, 16, 8, 8)
    noisy = module.drawn(recipes("noising").Batch(x0, eps, time, ()), process.alphas_cumprod)
    assert noisy.timestep.tolist() == [0, 0, 499, 999, 999]
    torch.testing.assert_close(noisy.x, process.noise(x0, eps, noisy.timestep / 1000))
    assert torch.equal(noisy.eps, eps)


@pytest.mark.parametrize("name", ["tiny_sd", "tiny_flux"])
def test_a_pipeline_starts_from_a_plain_guess_and_trained_words(
    recipes: Recipes, name: str
) -> None:
    module = recipes(name)
    parts = recipes("inherited").trained_parts()
    pipe = module.build_pipeline(parts, 0)
    network = pipe.unet if name == "tiny_sd" else pipe.transformer
    assert 2e6 < sum(p.numel() for p in network.parameters()) < 3e6
    x, time = torch.randn(2, 16, 8, 8), torch.tensor([0.3, 0.9])
    text = module.embed(pipe, *module.tokenize(pipe, ["a red star", "two crosses"]))
    with torch.no_grad():
        if name == "tiny_sd":
            output = network(x, (1000 * time).long(), text).sample
        else:
            output = module.velocity(network, x, time, text, torch.ones(2))
    guess = x if name == "tiny_sd" else torch.zeros_like(x)
    assert output.shape == x.shape
    assert (output - guess).abs().mean() < 0.1
    for mine, teacher in zip(pipe.text_encoder.parameters(), _clip(parts), strict=True):
        assert torch.equal(mine, teacher)
        assert mine is not teacher


def _clip(parts: object) -> list[Tensor]:
    return list(parts.teacher.text_encoder.text_model.parameters())


@torch.no_grad()
def test_the_autoencoder_s_shift_moves_into_its_convolutions(recipes: Recipes) -> None:
    vae = recipes("inherited").trained_parts().vae
    vae.register_to_config(shift_factor=0.4)  # its own is too small to see
    plain = recipes("tiny_sd").centred(vae)
    assert plain.config.shift_factor is None
    assert plain.config.scaling_factor == vae.config.scaling_factor
    pictures = recipes("drawing").draw_scenes(2, 0)[0].float() / 127.5 - 1
    latents = vae.encode(pictures).latent_dist
    shifted = plain.encode(pictures).latent_dist
    torch.testing.assert_close(shifted.mean, latents.mean - 0.4)
    torch.testing.assert_close(shifted.logvar, latents.logvar)
    expected = vae.decode(latents.mean).sample
    torch.testing.assert_close(plain.decode(shifted.mean).sample, expected, atol=1e-4, rtol=1e-4)


def test_a_convolution_moves_as_the_matrix_that_it_is(recipes: Recipes) -> None:
    muon = recipes("muon")
    weight = torch.randn(6, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    conv, matrix = (torch.nn.Parameter(w.clone()) for w in (weight, weight.flatten(1)))
    conv.grad, matrix.grad = weight.sin(), weight.sin().flatten(1)
    muon.Muon([conv], lr=0.1).step()
    muon.Muon([matrix], lr=0.1).step()
    torch.testing.assert_close(conv.flatten(1), matrix)
    length = (conv - weight).pow(2).mean().sqrt().item()
    assert length == pytest.approx(0.2 * 0.1, rel=0.3), "as AdamW's"


def test_a_recipe_leaves_out_the_autoencoder_that_it_inherits(
    recipes: Recipes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inherited = recipes("inherited")
    monkeypatch.setattr(inherited, "zoo_folder", lambda name: tmp_path / name)
    for name in ("tiny_sd3", "tiny_sd", "tiny_flux"):
        shutil.copytree(zoo_path(name), tmp_path / name)
    vae = AutoencoderKL.from_pretrained(tmp_path / "tiny_sd" / "vae", dtype=torch.float16)
    shutil.rmtree(tmp_path / "tiny_sd" / "vae")
    vae.save_pretrained(tmp_path / "tiny_sd" / "vae")
    for name in ("tiny_sd", "tiny_flux"):
        inherited.share_autoencoder(tmp_path / name)
        vaes = [(folder / name / "vae").glob("*safetensors*") for folder in (tmp_path, WEIGHTS)]
        made, shipped = ({path.name: path.read_bytes() for path in vae} for vae in vaes)
        assert made == shipped
        shared = [(folder / name / SHARED).read_text() for folder in (tmp_path, WEIGHTS)]
        assert shared[0] == shared[1]
    elsewhere = shutil.copytree(zoo_path("tiny_flux"), tmp_path / "out" / "tiny_flux")
    inherited.share_autoencoder(elsewhere)
    assert not (elsewhere / SHARED).exists()


@pytest.mark.slow
def test_digits_have_disjoint_halves_and_their_own_words(recipes: Recipes, tmp_path: Path) -> None:
    digits, recipe = recipes("digits"), recipes("tiny_digits")
    parts = [digits.part(index) for index in range(3)]
    assert [len(images) for images, _ in parts] == [700, 700, 397]
    images, numbers = digits.scans()
    assert images.shape == (1797, 3, 32, 32)
    for mine, whole in zip(zip(*parts, strict=True), (images, numbers), strict=True):
        assert torch.equal(torch.cat(mine), whole), "together all scans, each once"
    pipe = recipe.build_pipeline(0, ["a", "an", *digits.WORDS], recipe.WIDTH)
    assert sum(p.numel() for p in pipe.transformer.parameters()) < 1e6
    pipe.vae = recipe.build_vae((16, 16, 32, 32), sample_size=digits.SIZE)
    captions = [f"a {digits.WORDS[n]}" for n in numbers[:20]]
    data = recipe.captioned(pipe, images[:20], captions, tmp_path)
    assert data.x0.shape == (20, 16, 4, 4)
    adamw = recipes("muon").adamw
    _train_and_save(recipe, pipe, data, adamw, ["a three", "an eight"], tmp_path)


def _train_and_save(
    recipe: ModuleType,
    pipe: object,
    data: object,
    adamw: Callable[..., torch.optim.AdamW],
    text: list[str],
    folder: Path,
) -> None:
    """Two steps, then the check of the embedding, and the files."""
    part = recipe.flow_parts(pipe)
    leg = recipe.Leg(folder / "flow.pt", part, adamw(part.parameters()), 2, lambda step: 1.0, 1)
    recipe.train_flow(pipe, leg, data).use_average()
    recipe.save(pipe, folder / "out", text)
    assert (folder / "out" / "model_index.json").is_file()


@pytest.mark.slow
def test_signs_have_a_letter_in_each_cell_and_no_word_of_the_prompts(
    recipes: Recipes, tmp_path: Path
) -> None:
    recipe = recipes("tiny_words")
    images, captions = recipe.draw_signs(300, 0)
    assert images.shape == (300, 3, 48, 96)
    words = [caption.strip('"') for caption in captions]
    assert {len(word) for word in words} == {3, 4, 5, 6}
    assert not {*words} & {word.lower() for word in WORDS}
    ink = (images.float() - images[:, :, :1, :1]).abs().amax((1, 2)) > 60
    filled = ink[:, 4:].unfold(1, 8, 16).any(2).sum(1)  # the middle of each cell but its edges
    assert filled.tolist() == [len(word) for word in words]
    assert recipe.pieces(images[:2]).shape == (6, 3, 32, 32)
    assert torch.equal(recipe.pieces(images[:2])[1], images[0, :, 8:40, 32:64])
    pipe = recipe.untrained(0)
    assert sum(p.numel() for p in pipe.transformer.parameters()) < 1.4e6
    data = recipe.captioned(pipe, images[:20], captions[:20], tmp_path)
    assert data.x0.shape == (20, 8, 12, 24)
    assert data.x0.mean().abs() < 1e-5
    assert data.x0.std() == pytest.approx(1, abs=1e-4)
    ids = data.words
    spelled = pipe.tokenizer.convert_ids_to_tokens(ids[0][0])[2 : 2 + len(words[0])]
    assert "".join(spelled).replace("</w>", "") == words[0], "letter by letter"
    _train_and_save(recipe, pipe, data, recipes("muon").adamw, ['"cabin"', '"fox"'], tmp_path)
    capitals = recipes("tiny_sd3").tokenize(pipe, [caption.upper() for caption in captions[:20]])
    assert all(map(torch.equal, capitals, ids)), "as typed, in any case"


def test_a_clip_tokenizer_is_the_same_in_every_process(recipes: Recipes) -> None:
    made = recipes("words").clip_tokenizer(["ab", "abc", "bc"])
    # by hand: "bc" of two words first, then ties by the alphabet
    merges = ["bc</w>", "ab</w>", "abc</w>"]
    tokens = ["<|startoftext|>", "<|endoftext|>", *"abc", "a</w>", "b</w>", "c</w>", *merges]
    assert made.convert_ids_to_tokens(range(len(made))) == tokens
    assert [made(word).input_ids[1:-1] for word in ("ab", "abc", "bc")] == [[9], [10], [8]]


def test_a_judge_s_lesson_moves_scans_and_keeps_their_form(recipes: Recipes) -> None:
    digits = recipes("digits")
    images = digits.part(0)[0][:8]
    varied = digits.varied(images, torch.Generator().manual_seed(0))
    assert (varied.shape, varied.dtype) == (images.shape, torch.uint8)
    assert not torch.equal(varied, images)
    model, look = digits.train("proxy", 2, 0)
    assert digits.logits(model, look, 2).shape == (397, 10)
