"""Parameters as one vector, and states for PyTorch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.state.variable import Variable


def parameters_to_vector(parameters: Iterable[Variable]) -> Array:
    """Put parameters one after the other into a vector.

    Args:
        parameters: The parameters, all of one dtype.

    Returns:
        ``(n,)``, where ``n`` is their number of elements.

    Raises:
        TypeError: If the dtypes differ.

    Source: ``torch.nn.utils.parameters_to_vector``.

    Example:
        >>> layer = nn.Linear(3, 2, rngs=js.Rngs(params=0))
        >>> parameters_to_vector(layer.parameters()).shape
        (8,)
    """
    arrays = [jnp.asarray(parameter) for parameter in parameters]
    if len({array.dtype for array in arrays}) > 1:
        came = ", ".join(str(array.dtype) for array in arrays)
        raise TypeError(f"parameters_to_vector: expected parameters of one dtype, got {came}.")
    return jnp.concatenate([array.reshape(-1) for array in arrays]) if arrays else jnp.zeros(0)


def vector_to_parameters(vec: Array, parameters: Iterable[Variable]) -> None:
    """Write the parts of a vector into parameters, the reverse of :func:`parameters_to_vector`.

    Args:
        vec: ``(n,)``, where ``n`` is the parameters' number of elements.
        parameters: The parameters; each keeps its dtype.

    Raises:
        ValueError: If the vector's shape doesn't fit; nothing has changed then.

    Source: ``torch.nn.utils.vector_to_parameters``.

    Example:
        >>> layer = nn.Linear(1, 2, rngs=js.Rngs(params=0))
        >>> vector_to_parameters(jnp.array([1.0, 2.0, 3.0, 4.0]), layer.parameters())
        >>> layer.bias.tolist()
        [3.0, 4.0]
    """
    boxes, vector = list(parameters), jnp.asarray(vec)
    total = sum(box.size for box in boxes)
    if vector.shape != (total,):
        raise ValueError(f"vector_to_parameters: expected vec ({total},), got {vector.shape}.")
    start = 0
    for box in boxes:
        part = vector[start : start + box.size]
        box.value = part.reshape(box.shape).astype(box.dtype)
        start += box.size


def to_torch(state_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Turn a state into PyTorch tensors, for ``load_state_dict`` of a PyTorch module.

    Args:
        state_dict: Arrays by name. What isn't an array is kept as it is.

    Returns:
        Tensors by name, on the CPU, that share no memory with the arrays.

    Raises:
        ImportError: If PyTorch isn't installed.

    Example:
        >>> to_torch({"weight": jnp.ones(2)})  # doctest: +SKIP
        OrderedDict([('weight', tensor([1., 1.]))])
    """
    try:
        import torch
    except ImportError:
        raise ImportError("to_torch() needs PyTorch: pip install torch") from None

    def convert(value: Any) -> Any:
        if not hasattr(value, "dtype") or isinstance(value, torch.Tensor):
            return value
        array = np.array(value)
        name = array.dtype.name
        if name == "bfloat16" or name.startswith("float8"):  # which PyTorch takes as bits only
            bits = array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize])
            return torch.from_numpy(bits).view(getattr(torch, name))
        return torch.from_numpy(array)

    return OrderedDict((name, convert(value)) for name, value in state_dict.items())
