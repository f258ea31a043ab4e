"""Convolutional networks: the same as a plain torch module, for every layout of pixels."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from torch import nn

from cavalcade.core.errors import StateError
from cavalcade.core.images import ImageLayout, image_layout
from cavalcade.policy.cnn import CnnSpec
from cavalcade.policy.weights import weights_from

LAYOUTS = [
    ImageLayout((84, 84, 3)), ImageLayout((38, 44), frames=4), ImageLayout((4, 40, 36), channels_first=True, frames=2),
    ImageLayout((10, 10, 4), high=1.0), ImageLayout((2, 9, 16), channels_first=True, low=-1.0, high=1.0),
]  # fmt: skip


def reference(spec: CnnSpec, weights: torch.Tensor, pixels: torch.Tensor):
    """Plain torch on (B, C, H, W) pixels of 0 … 1."""
    w = {name: x[0] for name, x in spec.parameters(weights).items()}
    x = pixels
    for i, size in enumerate(spec.convolutions):
        layer = nn.Conv2d(x.shape[1], size.channels, size.kernel, size.stride)
        layer.load_state_dict({"weight": w[f"conv.{i}.weight"], "bias": w[f"conv.{i}.bias"]})
        x = layer(x).relu()
    x = (x.permute(0, 2, 3, 1).flatten(1) @ w["dense.weight"].T + w["dense.bias"]).relu()
    return x @ w["actor.weight"].T + w["actor.bias"], (x @ w["critic.weight"].T + w["critic.bias"])[:, 0]


@pytest.mark.parametrize("image", LAYOUTS, ids=str)
def test_the_outputs_are_those_of_a_plain_module(image):
    spec = CnnSpec(image, 5)
    rng = np.random.default_rng(0)
    weights = spec.initial_weights([3]) + 0.01 * torch.from_numpy(rng.standard_normal((1, spec.size))).float()
    if image.high == 255:
        rows = rng.integers(0, 256, (6, image.size), np.uint8)
    else:
        rows = rng.uniform(image.low, image.high, (6, image.size)).astype(np.float32)
    kept = rows.copy()
    logits, values = spec.forward(weights, torch.from_numpy(rows)[None])
    frames = rows.reshape(6, image.frames, *image.shape).astype(np.float32)
    if len(image.shape) == 2:
        frames = frames[..., None]
    if not image.channels_first:
        frames = np.moveaxis(frames, -1, 2)
    pixels = (frames.reshape(6, -1, image.height, image.width) - image.low) / (image.high - image.low)
    wanted, worth = reference(spec, weights, torch.from_numpy(pixels))
    torch.testing.assert_close(logits[0], wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(values[0], worth, atol=1e-5, rtol=1e-4)
    np.testing.assert_array_equal(rows, kept)


def test_small_images_get_a_small_trunk_and_large_ones_the_large():
    small, large = CnnSpec(ImageLayout((35, 60, 3)), 4), CnnSpec(ImageLayout((36, 36, 3)), 4)
    assert [c.kernel for c in small.convolutions] == [3, 3]
    assert [c.kernel for c in large.convolutions] == [8, 4, 3]
    assert small.shapes["actor.weight"] == (4, 128)
    assert large.shapes["actor.weight"] == (4, 512)
    assert CnnSpec(ImageLayout((8, 8)), 4, features=7).shapes["critic.weight"] == (1, 7)


def test_policies_are_independent():
    spec = CnnSpec(ImageLayout((8, 8, 2)), 3, deviations=3)
    weights = spec.initial_weights([5, 6])
    assert torch.equal(weights[1], spec.initial_weights([6])[0])
    assert not torch.equal(weights[0], weights[1])
    x = torch.randint(0, 256, (2, 4, spec.inputs), dtype=torch.uint8)
    logits, values = spec.forward(weights, x)
    assert logits.shape == (2, 4, 6)  # means and log standard deviations
    alone, worth = spec.forward(weights[1:], x[1:])
    torch.testing.assert_close(logits[1:], alone)
    torch.testing.assert_close(values[1:], worth)


def test_initial_weights_are_orthogonal():
    spec = CnnSpec(ImageLayout((36, 36, 3)), 4)
    named = spec.parameters(spec.initial_weights([0]))
    for name, gain in (("conv.0", 2**0.5), ("dense", 2**0.5), ("actor", 0.01)):
        matrix = named[f"{name}.weight"][0].flatten(1)
        product = matrix @ matrix.T if len(matrix) <= matrix.shape[1] else matrix.T @ matrix
        torch.testing.assert_close(product, gain**2 * torch.eye(len(product)), atol=1e-4, rtol=0)


def test_weights_come_back_by_name_and_others_are_refused():
    spec = CnnSpec(ImageLayout((8, 8)), 3)
    weights = spec.initial_weights([1, 2])
    assert torch.equal(weights_from(spec, spec.parameters(weights), 2, torch.float32), weights)
    with pytest.raises(StateError, match=r"conv\.0\.weight"):
        weights_from(CnnSpec(ImageLayout((8, 8, 3)), 3), spec.parameters(weights), 2, torch.float32)


def test_operations_are_those_of_the_layers():
    spec = CnnSpec(ImageLayout((84, 84, 4)), 6)
    layers = [20 * 20 * 32 * 4 * 64, 9 * 9 * 64 * 32 * 16, 7 * 7 * 64 * 64 * 9, 3136 * 512, 512 * 6, 512]
    assert spec.forward_operations == 2 * sum(layers)
    assert spec.gradient_operations == 6 * sum(layers) - 2 * layers[0]


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (Box(0, 255, (84, 84, 3), np.uint8), (84, 84, 3)), (Box(0, 255, (3, 84, 84), np.uint8), (84, 84, 3)),
        (Box(0, 255, (10, 10), np.uint8), (10, 10, 1)), (Box(0, 1, (10, 10, 7), np.bool_), (10, 10, 7)),
        (Box(-1, 1, (9, 12, 1), np.float32), (9, 12, 1)), (Box(0, 255, (210, 160, 3), np.uint8), (210, 160, 3)),
        (Box(0, 255, (7, 10, 3), np.uint8), None), (Box(0, 255, (84 * 84,), np.uint8), None),
        (Box(-np.inf, np.inf, (84, 84, 3), np.float32), None), (Box(0, 9, (84, 84, 3), np.int32), None),
        (Box(0, 255, (2, 84, 84, 3), np.uint8), None),
    ],
)  # fmt: skip
def test_which_spaces_are_images(space, shape):
    found = image_layout(space)
    assert (found and (found.height, found.width, found.channels)) == shape
