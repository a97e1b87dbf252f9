"""Which layers of space are built and called with what: see ``tests/nn/layer_cases.py``.

The rows of a topic run in one compiled program (``tests/nn/together.py``).
"""

from typing import Any

import numpy as np

from tests.nn.functional.cases import I, N, U
from tests.nn.functional.spatial_cases import CASES, SIZES, distinct
from tests.nn.layer_cases import Layer, layer, refused


def _conv() -> list[Layer]:
    rows = []
    for n, size in SIZES.items():
        name, x = f"ConvTranspose{n}d", N(2, 4, *size)
        sizes = tuple(2 * s + 2 for s in size)
        rows += [
            layer(name, 4, 6, 3, to=(x,)),
            layer(name, 4, 6, 3, 2, 1, 1, groups=2, bias=False, to=(N(4, *size),)),
            layer(name, 4, 6, 3, 2, dilation=2 if n < 3 else 1, to=(x,)),
            layer(name, 4, 2, 3, 2, to=(x,), call={"output_size": sizes}),
        ]
    x = N(2, 4, 6, 5)
    return [
        *rows,
        layer("ConvTranspose2d", 4, 2, 2, 2, to=(x,), call={"output_size": (2, 2, 13, 10)}),
        layer("ConvTranspose1d", 4, 2, (2,), stride=(3,), output_padding=(1,), to=(N(4, 3),)),
    ]


def _padding() -> list[Layer]:
    rows = []
    for n, size in SIZES.items():
        x, one, more = N(2, 3, *size), N(3, *size), (1, 2, 0, 1, 2, 1)[: 2 * n]
        for kind in ("Zero", "Reflection", "Replication", "Circular"):
            name = f"{kind}Pad{n}d"
            rows += [layer(name, 2, to=(x,)), layer(name, more, to=(one,))]
        name = f"ConstantPad{n}d"
        rows += [layer(name, 2, 0.5, to=(x,)), layer(name, more, -3, to=(N(*size),))]
    return [*rows, layer("ZeroPad2d", (-1, 2, 0, -2), to=(N(2, 3, 6, 5),))]


def _pooling() -> list[Layer]:
    x3, one = N(2, 3, 5, 6, 4), N(3, 5, 6, 4)
    rows = [
        layer("MaxPool3d", 2, to=(x3,)),
        layer("MaxPool3d", (2, 3, 1), (1, 2, 2), (1, 1, 0), ceil_mode=True, to=(one,)),
        layer("MaxPool3d", 2, 1, dilation=2, return_indices=True, to=(x3,)),
        layer("AvgPool3d", 2, to=(x3,)),
        layer("AvgPool3d", (2, 3, 1), (1, 2, 2), (1, 1, 0), True, False, 5, to=(one,)),
        layer("AdaptiveAvgPool3d", (2, None, 3), to=(x3,)),
        layer("AdaptiveMaxPool3d", 2, to=(x3,)),
        layer("AdaptiveMaxPool3d", (2, None, 3), True, to=(one,)),
    ]
    for n, size in SIZES.items():
        small = (3, 2, 2)[:n]
        where = distinct(int(np.prod([2 * s for s in small])), 2, 2, *small)
        rows += [
            layer(f"LPPool{n}d", 2, 2, to=(N(2, 3, *size),)),
            layer(f"LPPool{n}d", 2.0, 3, stride=1, ceil_mode=True, to=(N(3, *size),)),
            layer(f"MaxUnpool{n}d", 2, to=(N(2, 2, *small), where)),
            layer(
                f"MaxUnpool{n}d",
                (3,) * n,
                2,
                to=(N(2, 2, *small), where),
                call={"output_size": tuple(2 * s for s in small)},
            ),
        ]
    return rows


def _norm() -> list[Layer]:
    rows = []
    for n, size in SIZES.items():
        name, x = f"InstanceNorm{n}d", N(2, 3, *size, scale=2, shift=1)
        rows += [
            layer(name, 3, to=(x,)),
            layer(name, 3, affine=True, eps=0.1, to=(N(3, *size),)),
            layer(name, 3, affine=True, track_running_stats=True, to=(x,)),
        ]
    x = N(2, 3, 4, shift=1)
    image = N(2, 6, 2, 3)
    return [
        *rows,
        layer("InstanceNorm1d", 3, affine=True, bias=False, to=(x,)),
        layer("InstanceNorm1d", 3, momentum=0.3, track_running_stats=True, to=(N(3, 4),)),
        layer("LocalResponseNorm", 3, to=(x,)),
        layer("LocalResponseNorm", 2, 0.1, 0.5, 2.0, to=(image,)),
        # PyTorch's gradient of it isn't that of its output.
        layer("CrossMapLRN2d", 3, 0.3, to=(image,), _grad=False),
        layer("CrossMapLRN2d", 4, 0.1, 0.5, 2.0, to=(image,), _grad=False),
    ]


def _vision() -> list[Layer]:
    x = N(1, 2, 3, 4)
    return [
        layer("Unfold", 2, to=(x,)),
        layer("Unfold", (2, 3), 1, (1, 0), (2, 1), to=(N(2, 3, 4),)),
        layer("Fold", (3, 4), 2, to=(N(1, 8, 6),)),
        layer("Fold", (3, 4), (2, 3), padding=(1, 0), stride=(2, 1), to=(N(12, 4),)),
        layer("Upsample", scale_factor=2, to=(x,)),
        layer("Upsample", (5, 3), mode="bilinear", to=(x,)),
        layer("Upsample", None, (1.5, 2), "bicubic", True, to=(x,)),
        layer("Upsample", scale_factor=1.7, recompute_scale_factor=True, to=(N(1, 2, 5),)),
        layer("Upsample", 4, mode="trilinear", align_corners=True, to=(N(1, 2, 2, 3, 2),)),
        layer("UpsamplingNearest2d", 5, to=(x,)),
        layer("UpsamplingNearest2d", scale_factor=2.0, to=(x,)),
        layer("UpsamplingBilinear2d", (5, 6), to=(x,)),
        layer("UpsamplingBilinear2d", scale_factor=(2, 1.5), to=(x,)),
        layer("PixelShuffle", 2, to=(N(1, 8, 2, 3),)),
        layer("PixelUnshuffle", 2, to=(N(2, 4, 6),)),
        layer("ChannelShuffle", 2, to=(N(1, 4, 3),)),
    ]


TOPICS: dict[str, list[Layer]] = {
    "conv": _conv(),
    "padding": _padding(),
    "pooling": _pooling(),
    "norm": _norm(),
    "vision": _vision(),
}

# What is recorded: the layers, and half of the functions that they don't cover.
GOLDEN: dict[str, list[Any]] = {
    **TOPICS,
    **{f"functions, {name}": CASES[name][::2] for name in ("fractional", "resize", "sample")},
}

# Built in the tests, but not called with the others: the first draws, the second has lanes.
OTHERS = ("FractionalMaxPool2d", "FractionalMaxPool3d", "SyncBatchNorm")
NAMES = sorted({row.name for rows in TOPICS.values() for row in rows} | set(OTHERS))

REFUSED = [
    refused("ConvTranspose1d", "expected groups of at least 1, got 0", 2, 2, 3, groups=0),
    refused("ConvTranspose2d", "in_channels that groups=2 divides, got 3", 3, 2, 3, groups=2),
    refused("ConvTranspose2d", "to be 'zeros', got 'reflect'", 2, 2, 3, padding_mode="reflect"),
    refused("ConvTranspose2d", "padding of ints, got 'same'", 2, 2, 3, padding="same", ours=True),
    refused("ConvTranspose3d", "stride to be an int or 3 ints", 2, 2, 3, (1, 2), ours=True),
    refused("ReflectionPad2d", "padding to be an int or 4 ints", (1, 2), ours=True),
    refused("MaxUnpool2d", "kernel_size to be an int or 2 ints", (1, 2, 3), ours=True),
    refused("FractionalMaxPool2d", "either output_size or output_ratio", 2),
    refused("FractionalMaxPool2d", "either output_size or output_ratio", 2, 3, 0.5),
    refused("FractionalMaxPool3d", "output_ratio between 0 and 1, got 1.5", 2, None, 1.5),
    refused("SyncBatchNorm", "Pass axis_name=", 3, process_group="all", ours=True),
]

# Calls that raise: a constructor's arguments, those of the call, and what the text says.
CALLS_REFUSED = [
    (layer("ConvTranspose1d", 3, 2, 3, to=(N(1, 2, 9),)), "input with 3 channels"),
    (
        layer("ConvTranspose2d", 1, 1, 3, 2, to=(N(1, 1, 4, 4),), call={"output_size": (11, 9)}),
        "expected output_size from [9, 9] to [10, 10]",
    ),
    (
        layer("ConvTranspose2d", 1, 1, 3, 2, to=(N(1, 1, 4, 4),), call={"output_size": (9,)}),
        "expected output_size of 2 ints, or of 4",
    ),
    (layer("ReflectionPad1d", 4, to=(N(1, 2, 4),)), "can't pad an axis of size 4 by 4"),
    (layer("CircularPad2d", 2, to=(N(2, 4),)), "all spatial axes"),
    (layer("MaxPool3d", 9, to=(N(1, 2, 4, 4, 4),)), "too small for kernel_size"),
    (layer("LPPool2d", 2, 9, to=(N(2, 4, 4),)), "too small for kernel_size"),
    (layer("AdaptiveMaxPool3d", (1, 2), to=(N(1, 4, 4, 4),)), "int or 3 ints"),
    (layer("MaxUnpool1d", 2, to=(N(1, 2, 4), I(2, 2, 4))), "like the input"),
    (
        layer("FractionalMaxPool2d", 2, 9, _random_samples=U(1, 2, 2), to=(N(1, 2, 4, 4),)),
        "pixels are too few",
    ),
    (layer("InstanceNorm2d", 3, to=(N(2, 3),)), "expected input (N, C, H, W) or (C, H, W)"),
    (layer("InstanceNorm2d", 3, affine=True, to=(N(1, 2, 4, 4),)), "input with 3 channels"),
    (layer("InstanceNorm1d", 3, to=(N(1, 3, 1),)), "more than 1 pixel per channel"),
    (layer("LocalResponseNorm", 3, to=(N(2, 3),)), "expected input (N, C, *, *)"),
    (layer("CrossMapLRN2d", 3, to=(N(2, 3, 4),)), "expected input (N, C, H, W)"),
    (layer("SyncBatchNorm", 3, to=(N(3),)), "expected input (N, C, *), got (3,)"),
    (layer("Unfold", 5, to=(N(1, 3, 4),)), "too small for kernel_size"),
    (layer("Fold", (3, 3), 2, to=(N(1, 4, 5),)), "expected input (N, C * 4, 4)"),
    (layer("Upsample", to=(N(1, 2, 4),)), "either size or scale_factor"),
    (layer("UpsamplingBilinear2d", 3, to=(N(1, 2, 4),)), "a mode for it such as nearest"),
    (layer("PixelShuffle", 2, to=(N(3, 2, 2),)), "expected input (*, C * 4, H, W)"),
    (layer("PixelUnshuffle", 2, to=(N(3, 3, 2),)), "expected input (*, C, H * 2, W * 2)"),
    (layer("ChannelShuffle", 2, to=(N(1, 3, 2),)), "expected input (N, C * 2, *)"),
]
