"""LoRA: which parameters are trained, disabling adapters, initial values against PEFT's own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import SD3Transformer2DModel, UNet2DConditionModel
from peft import LoraConfig, PeftModel, inject_adapter_in_model
from tiny_language_models import save_language_model
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, CohereConfig, CohereForCausalLM
from transformers.pytorch_utils import Conv1D

from rlfactory.model.lora import (
    ATTENTION_PROJECTIONS,
    PEFT_TARGETS,
    Lora,
    initial_values,
    merge_adapters,
)
from rlfactory.model.pipelines.local_models import zoo_path
from rlfactory.utils.errors import ModelError

RANK, WIDTH, OUT = 16, 300, 200


def network() -> SD3Transformer2DModel:
    torch.manual_seed(0)
    return SD3Transformer2DModel(
        sample_size=4,
        patch_size=1,
        in_channels=2,
        out_channels=2,
        num_layers=2,
        attention_head_dim=4,
        num_attention_heads=2,
        joint_attention_dim=8,
        caption_projection_dim=8,
        pooled_projection_dim=8,
        pos_embed_max_size=8,
    )


def test_only_the_eight_projections_are_trained_and_b_starts_at_zero() -> None:
    lora = Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    names = lora.parameters()
    # the last joint block has no text output, so it lacks one of the eight
    assert len(names) == 2 * (2 * len(ATTENTION_PROJECTIONS) - 1)
    assert all(p.abs().sum() == 0 for k, p in names.items() if "lora_B" in k)
    assert all(p.abs().sum() > 0 for k, p in names.items() if "lora_A" in k)


def test_the_start_is_the_seeds() -> None:
    starts = [
        Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS, seed=s) for s in (0, 0, 1)
    ]
    first, same, other = (list(lora.parameters().values()) for lora in starts)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def inputs() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    return {
        "hidden_states": torch.randn(1, 2, 4, 4, generator=generator),
        "encoder_hidden_states": torch.randn(1, 3, 8, generator=generator),
        "pooled_projections": torch.randn(1, 8, generator=generator),
        "timestep": torch.tensor([500.0]),
        "return_dict": False,
    }


def tuned_lora(dtype: torch.dtype = torch.float32) -> Lora:
    """Adapters that add something."""
    lora = Lora(network().to(dtype), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    with torch.no_grad():
        for parameter in lora.parameters().values():
            parameter.add_(0.1)
    return lora


def test_disabling_adapters_walks_over_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    lora = tuned_lora()
    monkeypatch.setattr(lora.network, "modules", lambda: pytest.fail("a walk over all modules"))
    with lora.off():
        assert all(layer.disable_adapters for layer in lora.layers)
        assert all(p.requires_grad for p in lora.parameters().values())
    assert not any(layer.disable_adapters for layer in lora.layers)


@torch.no_grad()
def test_merged_adapters_predict_the_same_and_leave_no_trace() -> None:
    lora = tuned_lora()
    before = {name: p.clone() for name, p in lora.network.named_parameters()}
    places = {name: p.data_ptr() for name, p in lora.network.named_parameters()}
    expected = lora.network(**inputs())[0]
    with lora.off():
        plain = lora.network(**inputs())[0]
    with lora.merged():
        assert all(layer.disable_adapters for layer in lora.layers)
        merged = lora.network(**inputs())[0]
    with pytest.raises(KeyError), lora.merged():
        raise KeyError
    torch.testing.assert_close(merged, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(merged, plain, atol=1e-3)
    after = dict(lora.network.named_parameters())
    assert all(torch.equal(after[name], values) for name, values in before.items())
    assert places == {name: p.data_ptr() for name, p in after.items()}
    assert torch.equal(lora.network(**inputs())[0], expected)


@torch.no_grad()
def test_inputs_in_half_precision_are_not_cast_to_float32_and_back() -> None:
    lora = tuned_lora(torch.bfloat16)
    layer = lora.layers[0]
    x = torch.randn(3, 8).bfloat16()
    results, casts = [], []
    for enabled in (True, False):
        layer.cast_input_dtype_enabled = enabled
        profiling = profile(activities=[ProfilerActivity.CPU])
        with profiling as profiled, torch.autocast("cpu", torch.bfloat16):
            results.append(layer(x))
        casts.append(sum(e.count for e in profiled.key_averages() if e.key == "aten::_to_copy"))
    assert torch.equal(*results)
    assert casts[0] - casts[1] == 2
    assert not any(other.cast_input_dtype_enabled for other in lora.layers[1:])


def test_off_is_the_network_without_adapters_also_after_an_error() -> None:
    plain, lora = network(), Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    with torch.no_grad():
        for parameter in lora.parameters().values():
            parameter.add_(0.5)
        expected, tuned = plain(**inputs())[0], lora.network(**inputs())[0]
        assert not torch.allclose(tuned, expected)
        try:
            with lora.off():
                assert torch.equal(lora.network(**inputs())[0], expected)
                raise KeyError
        except KeyError:
            pass
        assert torch.equal(lora.network(**inputs())[0], tuned)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_adapters_are_in_float32_on_whatever_they_adapt(dtype: torch.dtype) -> None:
    start = Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS).parameters()
    lora = Lora(network().to(dtype), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    assert {p.dtype for p in lora.parameters().values()} == {torch.float32}
    assert all(torch.equal(p, start[name]) for name, p in lora.parameters().items())
    frozen = {p.dtype for p in lora.network.parameters() if not p.requires_grad}
    assert frozen == {dtype}


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_adapters_begin_without_effect(init: Any) -> None:
    plain = network()
    tuned = Lora(network(), rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS, init=init).network
    with torch.no_grad():
        torch.testing.assert_close(tuned(**inputs())[0], plain(**inputs())[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (["attn.to_q", "attn.to_g"], "is named attn.to_g; among .*attn.to_q"),
        (["nonesuch"], r"lora_targets=\['nonesuch'\]: no module of SD3Transformer2DModel"),
        (["o_q"], "is named o_q"),
    ],
)
def test_a_target_that_is_nowhere_is_named_beside_some_that_are(
    targets: list[str], said: str
) -> None:
    with pytest.raises(ModelError, match=said):
        Lora(network(), rank=2, alpha=4.0, targets=targets)


def test_names_of_another_kind_of_network_are_not_those_of_this_one() -> None:
    unet = UNet2DConditionModel(
        sample_size=8,
        block_out_channels=(8,),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D",),
        up_block_types=("CrossAttnUpBlock2D",),
        cross_attention_dim=8,
        attention_head_dim=2,
        norm_num_groups=2,
    )
    with pytest.raises(ModelError, match=r"attn\.to_q; among those that are: .*attn1\.to_q"):
        Lora(unet, rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)


@pytest.mark.parametrize("kind", ["qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize("targets", [["embed_tokens"], ["lm_head"], ["q_proj", "embed_tokens"]])
def test_a_shared_weight_is_not_adapted(kind: str, targets: list[str], tmp_path: Path) -> None:
    tied = AutoModelForCausalLM.from_pretrained(save_language_model(tmp_path / kind, kind))
    assert tied.get_output_embeddings().weight is tied.get_input_embeddings().weight
    with pytest.raises(ModelError, match="shares its weight with .*model.lora_targets=all-linear"):
        Lora(tied, rank=2, alpha=4.0, targets=targets)


def test_a_network_of_two_modules_with_one_weight() -> None:
    shared = network()
    first, second = (block.attn.to_q for block in shared.transformer_blocks)
    second.weight = first.weight
    with pytest.raises(ModelError, match=r"0.attn.to_q shares its weight with .*1.attn.to_q"):
        Lora(shared, rank=2, alpha=4.0, targets=ATTENTION_PROJECTIONS)
    shared = network()
    shared.transformer_blocks[1].attn.to_q.weight = shared.transformer_blocks[0].attn.to_q.weight
    Lora(shared, rank=2, alpha=4.0, targets=["attn.to_k"])


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("targets", ["all-linear", ["all-linear"], "All-Linear", "every", "own"])
def test_what_is_adapted_is_exact_in_the_run_merged_and_in_peft(
    kind: str, targets: Any, tmp_path: Path
) -> None:
    folder = zoo_path("tiny_gpt2") if kind == "gpt2" else save_language_model(tmp_path / kind, kind)

    def base() -> Any:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    own, every = base(), r".*(c_attn|c_proj|q_proj|down_proj)"
    if targets == "own":
        if kind != "llama":
            pytest.skip("its weights are shared")
        targets = ["embed_tokens", "lm_head"]
    lora = Lora(own, rank=2, alpha=4.0, targets=every if targets == "every" else targets)
    if "linear" in str(targets).lower():
        linear = [n for n, m in base().named_modules() if isinstance(m, nn.Linear | Conv1D)]
        assert len(lora.layers) == len(linear) - 1, "all but the output projection"
    assert lora.parameters().keys() == {k for k in lora.parameters() if "lora_" in k}
    with torch.no_grad():
        for parameter in lora.parameters().values():
            parameter += 0.1 * torch.randn(parameter.shape)
        ids = torch.randint(3, 200, (2, 9))
        expected = own(ids).logits
        with lora.merged():
            merged = own(ids).logits
        lora.save_for_peft(tmp_path)
        opened = PeftModel.from_pretrained(base(), tmp_path).eval()(ids).logits
        merge_adapters(own)
        near = {"rtol": 1e-3, "atol": 1e-3}
        assert not torch.allclose(base()(ids).logits, expected, **near)
        torch.testing.assert_close(merged, expected, **near)
        torch.testing.assert_close(own(ids).logits, expected, **near)
        torch.testing.assert_close(opened, expected, **near)


def test_adapters_of_an_embedding_are_the_seeds(tmp_path: Path) -> None:
    folder = save_language_model(tmp_path / "llama", "llama")
    for targets in (["embed_tokens"], ["q_proj"]):
        starts = []
        for seed in (0, 0, 1):
            network = AutoModelForCausalLM.from_pretrained(folder)
            lora = Lora(network, rank=2, alpha=4.0, targets=targets, seed=seed)
            starts.append(torch.cat([p.flatten() for p in lora.parameters().values()]))
        assert torch.equal(starts[0], starts[1])
        assert not torch.equal(starts[0], starts[2])


def test_orthogonal_adapters_come_in_pairs() -> None:
    with pytest.raises(ModelError, match="model.lora_rank=3"):
        Lora(network(), rank=3, alpha=4.0, targets=ATTENTION_PROJECTIONS, init="orthogonal")


def initial(init: Any, seed: int = 0, index: int = 0) -> tuple[Tensor, Tensor]:
    return initial_values(init, torch.empty(RANK, WIDTH), torch.empty(OUT, RANK), seed, index)


def peft_initial(init: Any) -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    named = "orthogonal" if init == "orthogonal" else init == "kaiming" or init
    config = LoraConfig(r=RANK, target_modules=["0"], init_lora_weights=named)
    layer: Any = inject_adapter_in_model(config, nn.Sequential(nn.Linear(WIDTH, OUT)))[0]
    return layer.lora_A["default"].weight.detach(), layer.lora_B["default"].weight.detach()


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_they_are_distributed_as_peft_initial(init: str) -> None:
    for mine, theirs in zip(initial(init), peft_initial(init), strict=True):
        assert mine.shape == theirs.shape
        assert mine.mean().item() == pytest.approx(
            theirs.mean().item(), abs=0.1 * float(theirs.std())
        )
        assert mine.std().item() == pytest.approx(theirs.std().item(), rel=0.1)
        largest = theirs.abs().max().item()
        assert mine.abs().max().item() == pytest.approx(largest, rel=0.3)


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_their_product_is_zero(init: str) -> None:
    a, b = initial(init)
    assert a.abs().max() > 0
    torch.testing.assert_close(b @ a, torch.zeros(OUT, WIDTH), rtol=0, atol=1e-6)


def test_orthogonal_ones_are_both_at_work() -> None:
    a, b = initial("orthogonal")
    assert torch.linalg.matrix_rank(a) == torch.linalg.matrix_rank(b) == RANK // 2


@pytest.mark.parametrize("init", ["gaussian", "kaiming", "orthogonal"])
def test_they_are_the_seeds_and_the_layers(init: str) -> None:
    first, same, seed, layer = initial(init), initial(init), initial(init, 1), initial(init, 0, 2)
    assert torch.equal(first[0], same[0])
    assert not torch.equal(first[0], seed[0])
    assert not torch.equal(first[0], layer[0])


def test_convolutions_are_drawn_in_their_own_shape() -> None:
    a, b = torch.empty(4, 3, 3, 3), torch.empty(8, 4, 1, 1)
    for init in ("gaussian", "kaiming", "orthogonal"):
        drawn = initial_values(init, a, b, 0, 0)  # type: ignore[arg-type]
        assert [v.shape for v in drawn] == [a.shape, b.shape]


def test_an_architecture_that_peft_has_no_list_for_is_adapted_in_all_linear_layers() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    ids = {"bos_token_id": 1, "eos_token_id": 2}
    network = CohereForCausalLM(CohereConfig(vocab_size=64, **sizes, **heads, **ids))
    assert network.config.model_type not in PEFT_TARGETS
    lora = Lora(network, rank=2, alpha=2, targets=None)
    assert len(lora.layers) == 7  # four of attention, three of the MLP; not the output projection
