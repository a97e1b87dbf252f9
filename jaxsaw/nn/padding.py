"""Padding of the spatial axes, as layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple
from jaxsaw.nn.module import Module


class _Pad(Module):
    """What all paddings share; subclasses say over how many axes they go, and in which mode."""

    _spatial: ClassVar[int]
    _mode: ClassVar[str]

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        name = type(self).__name__
        self.padding = as_tuple(name, "padding", padding, 2 * self._spatial)

    def forward(self, input: Array) -> Array:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    """Padding with a number."""

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Array) -> Array:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    """Padding with zeros."""

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """Put a number around a line.

    Args:
        padding: How much: one int, or ``(left, right)``. Negative numbers crop.
        value: The number.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: If there are not as many amounts; when called, if ``padding`` crops more than
            there is.

    Source: ``torch.nn.ConstantPad1d``.

    Example:
        >>> nn.ConstantPad1d((1, 2), 0.5)(jnp.ones((1, 2))).tolist()
        [[0.5, 1.0, 1.0, 0.5, 0.5]]
    """

    _spatial = 1


class ConstantPad2d(_ConstantPad):
    """Put a number around images.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom)``. Negative numbers crop.
        value: The number.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if ``padding`` crops more than
            there is.

    Source: ``torch.nn.ConstantPad2d``.

    Example:
        >>> nn.ConstantPad2d(1, 0.5)(jnp.ones((2, 3, 3))).shape
        (2, 5, 5)
    """

    _spatial = 2


class ConstantPad3d(_ConstantPad):
    """Put a number around volumes.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom, front, back)``.
            Negative numbers crop.
        value: The number.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if ``padding`` crops more than
            there is.

    Source: ``torch.nn.ConstantPad3d``.

    Example:
        >>> nn.ConstantPad3d(1, 0.5)(jnp.ones((2, 3, 3, 3))).shape
        (2, 5, 5, 5)
    """

    _spatial = 3


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Put zeros around a line.

    Args:
        padding: How much: one int, or ``(left, right)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: If there are not as many amounts; when called, if ``padding`` crops more than
            there is.

    Source: ``torch.nn.ZeroPad1d``.

    Example:
        >>> nn.ZeroPad1d((1, 2))(jnp.ones((1, 2))).tolist()
        [[0.0, 1.0, 1.0, 0.0, 0.0]]
    """


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Put zeros around images.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if ``padding`` crops more than
            there is.

    Source: ``torch.nn.ZeroPad2d``.

    Example:
        >>> nn.ZeroPad2d(1)(jnp.ones((2, 3, 3))).shape
        (2, 5, 5)
    """


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Put zeros around volumes.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom, front, back)``.
            Negative numbers crop.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if ``padding`` crops more than
            there is.

    Source: ``torch.nn.ZeroPad3d``.

    Example:
        >>> nn.ZeroPad3d(1)(jnp.ones((2, 3, 3, 3))).shape
        (2, 5, 5, 5)
    """


class ReflectionPad1d(_Pad):
    """Continue a line by mirroring it at the outermost pixel.

    Args:
        padding: How much: one int, or ``(left, right)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.ReflectionPad1d``.

    Example:
        >>> nn.ReflectionPad1d(2)(jnp.array([[1.0, 2, 3]])).tolist()
        [[3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]]
    """

    _spatial = 1
    _mode = "reflect"


class ReflectionPad2d(_Pad):
    """Continue images by mirroring them at the outermost pixel.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.ReflectionPad2d``.

    Example:
        >>> nn.ReflectionPad2d(1)(jnp.ones((2, 3, 3))).shape
        (2, 5, 5)
    """

    _spatial = 2
    _mode = "reflect"


class ReflectionPad3d(_Pad):
    """Continue volumes by mirroring them at the outermost pixel.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom, front, back)``.
            Negative numbers crop.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.ReflectionPad3d``.

    Example:
        >>> nn.ReflectionPad3d(1)(jnp.ones((2, 3, 3, 3))).shape
        (2, 5, 5, 5)
    """

    _spatial = 3
    _mode = "reflect"


class ReplicationPad1d(_Pad):
    """Continue a line by repeating the outermost pixel.

    Args:
        padding: How much: one int, or ``(left, right)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.ReplicationPad1d``.

    Example:
        >>> nn.ReplicationPad1d(1)(jnp.array([[1.0, 2, 3]])).tolist()
        [[1.0, 1.0, 2.0, 3.0, 3.0]]
    """

    _spatial = 1
    _mode = "replicate"


class ReplicationPad2d(_Pad):
    """Continue images by repeating the outermost pixel.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.ReplicationPad2d``.

    Example:
        >>> nn.ReplicationPad2d(1)(jnp.ones((2, 3, 3))).shape
        (2, 5, 5)
    """

    _spatial = 2
    _mode = "replicate"


class ReplicationPad3d(_Pad):
    """Continue volumes by repeating the outermost pixel.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom, front, back)``.
            Negative numbers crop.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.ReplicationPad3d``.

    Example:
        >>> nn.ReplicationPad3d(1)(jnp.ones((2, 3, 3, 3))).shape
        (2, 5, 5, 5)
    """

    _spatial = 3
    _mode = "replicate"


class CircularPad1d(_Pad):
    """Continue a line from the other end.

    Args:
        padding: How much: one int, or ``(left, right)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: ``(N, C, L')`` or ``(C, L')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.CircularPad1d``.

    Example:
        >>> nn.CircularPad1d(1)(jnp.array([[1.0, 2, 3]])).tolist()
        [[3.0, 1.0, 2.0, 3.0, 1.0]]
    """

    _spatial = 1
    _mode = "circular"


class CircularPad2d(_Pad):
    """Continue images from the other end.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom)``. Negative numbers crop.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, H', W')`` or ``(C, H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.CircularPad2d``.

    Example:
        >>> nn.CircularPad2d(1)(jnp.ones((2, 3, 3))).shape
        (2, 5, 5)
    """

    _spatial = 2
    _mode = "circular"


class CircularPad3d(_Pad):
    """Continue volumes from the other end.

    Args:
        padding: How much: one int, or ``(left, right, top, bottom, front, back)``.
            Negative numbers crop.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, D', H', W')`` or ``(C, D', H', W')``

    Raises:
        ValueError: If there are not as many amounts; when called, if an axis is too short for it.

    Source: ``torch.nn.CircularPad3d``.

    Example:
        >>> nn.CircularPad3d(1)(jnp.ones((2, 3, 3, 3))).shape
        (2, 5, 5, 5)
    """

    _spatial = 3
    _mode = "circular"
