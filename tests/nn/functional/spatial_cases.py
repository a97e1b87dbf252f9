"""What is called, with what, of the functions of space: see ``tests/nn/functional/cases.py``.

The rows of a topic run in one compiled program (``tests/nn/together.py``).
"""

from typing import Any

import numpy as np

from tests.nn.functional.cases import A, Case, Draw, I, N, Refusal, U, case, refused

SIZES = {1: (7,), 2: (6, 5), 3: (4, 5, 3)}


def distinct(pixels: int, *shape: int) -> Draw:
    """Return indices below ``pixels`` that differ within an image."""
    rows, places = int(np.prod(shape[:2])), int(np.prod(shape[2:]))
    draw = lambda r: np.stack([r.permutation(pixels)[:places] for _ in range(rows)])
    return Draw(lambda r: draw(r).reshape(shape).astype(np.int32))


def _conv() -> list[Case]:
    rows = []
    for n, size in SIZES.items():
        f, k = f"conv_transpose{n}d", (3, 2, 2)[:n]
        x, w = N(2, 4, *size), N(4, 3, *k)
        rows += [
            case(f, x, w),
            case(f, N(4, *size), w, N(3)),
            case(f, x, w, N(3), 2, 1, 1),
            case(f, x, w, None, 2, (1,) * n, 0, 1, 2),
            case(f, x, N(4, 2, *k), N(4), stride=(2,), groups=2),
        ]
        if n < 3:
            rows += [
                case(f, x, w, stride=1, output_padding=1, dilation=2),
                case(f, x, N(4, 1, *k), N(4), 3, output_padding=2, groups=4, dilation=2),
            ]
    f, x = "conv_transpose2d", N(2, 2, 3, 3)
    return [
        *rows,
        case(f, N(0, 4, 3, 3), N(4, 3, 2, 2), N(3)),
        case(f, N(1, 1, 1, 1), N(1, 1, 1, 1)),
        case(f, x, N(2, 3, 3, 2), N(3), (2, 1), (1, 0), (1, 0), 1, (1, 2)),
        case("conv_tbc", N(6, 2, 3), N(3, 3, 4), N(4)),
        case("conv_tbc", N(6, 2, 3), N(3, 3, 4), N(4), 1),
        refused(f, "(N, C, H, W) or (C, H, W)", N(3, 3), N(2, 2, 1, 1)),
        refused(f, "weight of 4 dimensions (in, out / groups", x, N(2, 3, 2)),
        refused(f, "input with 3 channels", x, N(3, 2, 2, 2)),
        refused(f, "3 input channels don't divide into 2", N(1, 3, 3, 3), N(3, 1, 2, 2), groups=2),
        refused(f, "expected bias (6,), got (3,)", x, N(2, 3, 2, 2), N(3), groups=2),
        refused(f, "output_padding below stride (2, 2)", x, N(2, 3, 2, 2), None, 2, 0, 2),
        refused(f, "padding of at least 0", x, N(2, 3, 2, 2), padding=-1),
        refused(f, "nothing is left of input", x, N(2, 3, 2, 2), padding=3),
        refused(f, "one dtype", x, I(3, 2, 3, 2, 2), _error=TypeError),
        refused("conv_tbc", "(T, N, C) and weight", N(2, 3), N(3, 3, 4), N(4)),
        refused("conv_tbc", "input with 3 channels", N(6, 2, 4), N(3, 3, 4), N(4)),
    ]


def _pooling() -> list[Case]:
    x = N(2, 3, 5, 6, 4)
    rows = [
        case("max_pool3d", x, 2),
        case("max_pool3d", N(3, 5, 6, 4), (2, 3, 1), (1, 2, 2), (1, 1, 0)),
        case("max_pool3d", x, 3, 2, 1, ceil_mode=True, return_indices=True),
        case("max_pool3d", x, 2, 1, 0, 2, return_indices=True),
        case("avg_pool3d", x, 2),
        case("avg_pool3d", N(3, 5, 6, 4), (2, 3, 1), (1, 2, 2), (1, 1, 0)),
        case("avg_pool3d", x, 3, 2, 1, True, False),
        case("avg_pool3d", x, 3, 2, 1, True, divisor_override=5),
        case("adaptive_avg_pool3d", x, 2),
        case("adaptive_avg_pool3d", N(3, 5, 6, 4), (None, 4, 3)),
        case("adaptive_max_pool3d", x, 2),
        case("adaptive_max_pool3d", N(3, 5, 6, 4), (3, None, 5), return_indices=True),
        refused("max_pool3d", "(N, C, D, H, W) or (C, D, H, W)", N(4, 4, 4), 2),
        refused("avg_pool3d", "at most half of kernel_size 2", x, 2, 2, 2),
        refused("avg_pool3d", "divisor_override other than 0", x, 2, divisor_override=0),
        refused("adaptive_max_pool3d", "int or 3 ints", x, (1, 2)),
    ]
    for n, size in SIZES.items():
        f, x = f"lp_pool{n}d", Draw(lambda r, s=size: r.uniform(0.1, 2, (2, 3, *s)).astype("f4"))
        rows += [
            case(f, x, 2, 2),
            case(f, x, 3.0, 3, 1),
            case(f, x, 1.5, 2, 2, True),
            case(f, N(3, *size), 2.0, 2),
            case(f, A(np.zeros((1, 2, *size))), 2, 2, _note="zeros"),
            refused(f, "norm_type other than 0", x, 0, 2, _error=ValueError),
            refused(f, "too small for kernel_size", x, 2, 9),
        ]
    return rows


def _unpooling() -> list[Case]:
    rows: list[Case] = []
    for n in SIZES:
        f, small = f"max_unpool{n}d", (3, 2, 2)[:n]
        pixels = int(np.prod([2 * s for s in small]))
        x, where = N(2, 2, *small), distinct(pixels, 2, 2, *small)
        far = A(np.full((2, 2, *small), 999), int)
        rows += [
            case(f, x, where, 2),
            case(f, x, where, 2, 2, 0, tuple(2 * s + 1 for s in small)),
            case(f, x, where, (3,) * n, 2, output_size=(2, 2, *(2 * s for s in small))),
            refused(f, "less than stride", x, where, 2, output_size=(99,) * n),
            refused(f, "like the input", x, distinct(pixels, 2, 1, *small), 2),
            refused(f, "expected indices in [0", x, far, 2, _values=True),
            refused(f, "integer dtype", x, x, 2, _error=TypeError),
        ]
    x = N(2, 3)
    return [*rows, case("max_unpool1d", x, A([[0, 2, 5], [1, 2, 4]], np.int32), 2)]


def _fractional() -> list[Case]:
    rows: list[Case] = []
    for n, size in ((2, (7, 6)), (3, (5, 7, 6))):
        f, x, u = f"fractional_max_pool{n}d", N(2, 3, *size), U(2, 3, n)
        rows += [
            case(f, x, 2, 3, _random_samples=u),
            case(f, x, 2, 3, None, True, _random_samples=u),
            case(f, N(3, *size), (2, 1, 3)[:n], (1, 4, 2)[:n], _random_samples=U(1, 3, n)),
            case(f, x, 2, output_ratio=(0.5, 0.6, 0.7)[:n], _random_samples=u),
            case(f, x, 2, output_ratio=(0.4,) * n, return_indices=True, _random_samples=u),
            refused(f, "either output_size or output_ratio", x, 2, _random_samples=u),
            refused(f, "pixels are too few", x, 3, 6, _random_samples=u),
            refused(f, "expected _random_samples", x, 2, 2, _random_samples=U(2, 3, 1)),
            refused(f, "output_ratio of", x, 2, None, (0.5,), _random_samples=u),
        ]
    return rows


def _norm() -> list[Case]:
    rows = []
    for n, size in SIZES.items():
        x = N(2, 3, *size, shift=2)
        rows += [
            case("instance_norm", x),
            case("instance_norm", x, None, None, N(3), N(3), eps=0.1),
            case("local_response_norm", x, 3),
            case("local_response_norm", x, 2, 0.1, 0.5, 2.0),
        ]
        if n == 1:
            rows += [
                case("instance_norm", x, N(3), U(3), N(3), N(3), False),
                case("instance_norm", x, N(3), U(3), N(3)),
                case("local_response_norm", x, 7, 0.3),
                case("local_response_norm", N(3, 4, 2), 1, 0.3, 0.7, 0.5),
            ]
    x = N(2, 3, 4)
    return [
        *rows,
        refused("instance_norm", "more than 1 pixel per channel", N(2, 3, 1)),
        refused("instance_norm", "expected weight (3,)", x, weight=N(2)),
        refused("instance_norm", "running_mean and running_var, or", x, use_input_stats=False),
        refused("instance_norm", "running_var (3,)", x, N(3), U(2), use_input_stats=False),
        refused("local_response_norm", "(N, C, *, *), got (2, 3)", N(2, 3), 2),
        refused("local_response_norm", "size of at least 1", x, 0),
    ]


def _resize() -> list[Case]:
    f = "interpolate"
    rows: list[Case] = []
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}
    for n in SIZES:
        x = N(1, 2, *(5, 4, 3)[:n])
        for size in ((7, 3, 5), (10, 8, 1)):
            rows += [case(f, x, size[:n], mode=m) for m in ("nearest", "nearest-exact", "area")]
            rows += [case(f, x, size[:n], mode=linear[n], align_corners=a) for a in (False, True)]
        for scale in (0.7, 1.7, 2, 3):
            rows += [
                case(f, x, scale_factor=scale, mode=m) for m in ("nearest", "nearest-exact", "area")
            ]
            for again in (None, True):
                k = {"scale_factor": scale, "recompute_scale_factor": again}
                rows.append(case(f, x, mode=linear[n], **k))
    x = N(1, 2, 5, 7)
    for size in ((8, 3), (1, 9)):
        rows += [case(f, x, size, mode="bicubic", align_corners=a) for a in (False, True)]
        for mode in ("bilinear", "bicubic", "lanczos"):
            for align in (False, None if mode == "lanczos" else True):
                k = {"mode": mode, "align_corners": align, "antialias": True}
                rows.append(case(f, x, size, **k))
    rows += [
        case(f, x, scale_factor=(1.3, 0.4), mode=m, antialias=True) for m in ("bilinear", "bicubic")
    ]
    v = N(1, 2, 5)
    return [
        *rows,
        case(f, x, scale_factor=1.3, mode="bicubic"),
        case(f, x, (5, 7), mode="bilinear"),
        case(f, x, (5, 7), mode="nearest"),
        case(f, N(1, 1, 33), 100, mode="nearest"),
        case(f, N(1, 1, 100), 37, mode="nearest-exact"),
        case("upsample", x, 3, None, "bilinear", True),
        case("upsample", x, scale_factor=2),
        case("upsample_nearest", x, scale_factor=2),
        case("upsample_bilinear", x, (3, 9)),
        refused(f, "either size or scale_factor, got size=None", v),
        refused(f, "either size or scale_factor, got size=3", v, 3, 2.0),
        refused(f, "a mode for it such as nearest", v, 3, mode="bilinear"),
        refused(f, "got (1, 2) and 'nearest'", N(1, 2), 3),
        refused(f, "takes no align_corners", v, 3, align_corners=False),
        refused(f, "size of 1 ints, got (3, 3)", v, (3, 3)),
        refused(f, "scale_factor of 1 numbers", v, scale_factor=(2.0, 2.0)),
        refused(f, "needs scale_factor, got size=3", v, 3, recompute_scale_factor=True),
        refused(f, "with antialias=True, got 'linear'", v, 3, mode="linear", antialias=True),
        refused(f, "'lanczos' needs antialias=True", x, 3, mode="lanczos"),
        refused(
            f,
            "takes no align_corners",
            x,
            3,
            mode="lanczos",
            align_corners=True,
            antialias=True,
        ),
        refused(f, "nothing is left of (5,)", v, scale_factor=0.1, mode="linear"),
        refused(f, "size of at least 1", v, 0),
        refused(f, "floating dtype", I(9, 1, 2, 5), 3, mode="linear", _error=TypeError),
    ]


def _sample() -> list[Case]:
    f = "grid_sample"
    rows: list[Case] = []
    for padding in ("zeros", "border", "reflection"):
        for align in (False, True):
            for mode in ("bilinear", "nearest", "bicubic"):
                x, grid = N(2, 3, 4, 5), N(2, 3, 4, 2, scale=0.9)
                rows.append(case(f, x, grid, mode, padding, align))
                if mode != "bicubic" and align == (padding == "reflection"):
                    x, grid = N(1, 2, 3, 4, 5), N(1, 2, 3, 2, 3, scale=0.9)
                    rows.append(case(f, x, grid, mode, padding, align))
    x, grid = N(1, 1, 3, 3), N(1, 2, 2, 2)
    rows += [
        case(f, N(1, 2, 1, 1), grid, "bilinear", p, a, _note=f"one pixel, {p}, {a}", _grad=False)
        for p in ("border", "reflection")
        for a in (False, True)
    ]
    return [
        *rows,
        case("affine_grid", N(2, 2, 3), (2, 1, 3, 4), True),
        case("affine_grid", N(2, 2, 3), (2, 1, 3, 4), False),
        case("affine_grid", N(1, 3, 4), (1, 1, 2, 3, 4), True),
        case("affine_grid", N(1, 3, 4), (1, 1, 1, 3, 4), False),
        case("channel_shuffle", N(2, 6, 3), 2),
        case("channel_shuffle", N(1, 6, 2, 2), 3),
        case("native_channel_shuffle", N(2, 6, 3, 1), 3, _grad=False),
        refused(f, "(N, C, H, W) with grid (N, H, W, 2)", x, N(1, 2, 2, 3)),
        refused(f, "(N, C, H, W) with grid", N(1, 3, 3), N(1, 2, 2)),
        refused(f, "of one batch", x, N(2, 2, 2, 2)),
        refused(f, "mode 'bilinear', 'nearest'", x, grid, "cubic"),
        refused(f, "'bicubic', got 'bicubic'", N(1, 1, 3, 3, 3), N(1, 2, 2, 2, 3), "bicubic"),
        refused(f, "padding_mode 'zeros'", x, grid, "nearest", "circular"),
        refused(f, "one dtype", x, A(np.zeros((1, 2, 2, 2)), np.float16), _error=TypeError),
        refused("affine_grid", "size (N, C, H, W)", N(1, 2, 3), (1, 1, 3)),
        refused("affine_grid", "theta (1, 2, 3) for size", N(1, 3, 4), (1, 1, 3, 3)),
        refused("affine_grid", "size of at least 1", N(1, 2, 3), (1, 1, 0, 3)),
        refused(
            "affine_grid", "theta of a floating", I(2, 1, 2, 3), (1, 1, 3, 3), _error=TypeError
        ),
        refused("channel_shuffle", "(N, C * 4, *), got (2, 6, 3)", N(2, 6, 3), 4),
        refused("channel_shuffle", "(N, C * 2, *), got (2, 6)", N(2, 6), 2),
        refused("channel_shuffle", "groups of at least 1", N(2, 6, 3), 0),
    ]


TOPICS: dict[str, list[Any]] = {
    "conv": _conv(),
    "pooling": _pooling(),
    "unpooling": _unpooling(),
    "fractional": _fractional(),
    "norm": _norm(),
    "resize": _resize(),
    "sample": _sample(),
}
CASES = {name: [r for r in rows if not isinstance(r, Refusal)] for name, rows in TOPICS.items()}
REFUSALS = [row for rows in TOPICS.values() for row in rows if isinstance(row, Refusal)]
