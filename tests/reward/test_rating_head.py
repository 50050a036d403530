import torch

from rlfactory.reward.rating_head import rating_layers


def test_layers_are_named_and_shaped_as_published():
    found = {name: tuple(t.shape) for name, t in rating_layers(768).state_dict().items()}
    sizes = {"0": (1024, 768), "2": (128, 1024), "4": (64, 128), "6": (16, 64), "7": (1, 16)}
    weights = {f"{name}.weight": shape for name, shape in sizes.items()}
    assert found == weights | {f"{name}.bias": shape[:1] for name, shape in sizes.items()}


def test_together_they_are_one_affine_map():
    layers, x = rating_layers(8).double(), torch.randn(3, 8).double()
    with torch.no_grad():
        torch.testing.assert_close(
            layers(x[:1] + x[1:2] - x[2:]),
            layers(x).T @ torch.tensor([[1.0], [1.0], [-1.0]], dtype=torch.float64),
        )
