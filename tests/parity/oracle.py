"""PyTorch as the oracle: the same inputs, then the same outputs and the same gradients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.nn.functional.cases import call, cotangent

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


def is_float(value: Any) -> bool:
    """Say whether it is an array of floats, for which there is a gradient."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def to_torch(value: Any, grad: bool = False) -> Any:
    """Turn NumPy arrays into tensors (integers into int64, as PyTorch wants indices)."""
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.tensor(value)
    if tensor.dtype == torch.int32:
        return tensor.long()
    return tensor.requires_grad_() if grad and is_float(value) else tensor


def to_jax(value: Any, dtype: Any = None) -> Any:
    """Turn NumPy arrays into JAX's, floats into ``dtype``."""
    if not isinstance(value, np.ndarray):
        return value
    return jnp.asarray(value, dtype if is_float(value) else None)


def to_numpy(value: Any) -> np.ndarray:
    """Turn any array or tensor into NumPy's, narrow floats into float32."""
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return (value.float() if value.is_floating_point() else value).numpy()
    array = jnp.asarray(value)
    return np.asarray(array.astype(jnp.float32) if array.dtype == jnp.bfloat16 else array)


def tuple_of(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def assert_close(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    """Compare elementwise, with a slack in proportion to the largest element."""
    ours, theirs = to_numpy(ours), to_numpy(theirs)
    assert ours.shape == theirs.shape, what
    finite = np.abs(theirs[np.isfinite(theirs)])
    slack = tolerance * float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=slack + 1e-30, err_msg=what)


def compare(
    ours: Callable[..., Any],
    theirs: Callable[..., Any],
    arguments: dict[str, Any],
    has_gradient: Callable[[str, Any], bool],
    dtype: Any = jnp.float32,
    tolerance: float = 1e-5,
) -> None:
    """Call both with the same NumPy arrays; compare outputs and gradients.

    With a narrower ``dtype``, PyTorch gets the rounded inputs, and computes in float32.

    Args:
        ours: The function of jaxsaw.
        theirs: The function of PyTorch.
        arguments: By position ("0", "1", ...) or name.
        has_gradient: Says of which arguments to compare the gradient.
        dtype: What to turn floats into.
        tolerance: Relative to each element, or to the largest one.
    """
    fixed = {k: to_jax(v, dtype) for k, v in arguments.items()}
    leaves = {k: fixed.pop(k) for k, v in arguments.items() if has_gradient(k, v)}

    def outputs_of(leaves: dict[str, Any]) -> tuple[Any, ...]:
        return tuple_of(call(ours, {**fixed, **leaves}))

    tensors = {}
    for k, v in arguments.items():
        rounded = to_numpy({**fixed, **leaves}[k]) if is_float(v) else v
        tensors[k] = to_torch(rounded, k in leaves)
    # A copy of the leaves: some functions change a tensor in place.
    copied = {k: t.clone() if isinstance(t, torch.Tensor) else t for k, t in tensors.items()}
    expected = tuple_of(call(theirs, {k: copied[k] for k in arguments}))

    got, vjp = jax.vjp(outputs_of, leaves) if leaves else (outputs_of(leaves), None)
    assert len(got) == len(expected)
    floats_in = any(map(is_float, arguments.values()))
    for y, e in zip(got, expected, strict=True):
        if e.is_floating_point():
            assert y.dtype == (dtype if floats_in else jnp.float32), f"dtype {y.dtype}"
        assert not y.weak_type
        assert_close(y, e, tolerance, "output")
    if vjp is None:
        return

    seeds = [cotangent(e.shape) for e in expected]
    pairs = [(e, torch.tensor(s)) for e, s in zip(expected, seeds, strict=True) if e.requires_grad]
    outputs, theirs_seeds = zip(*pairs, strict=True)
    inputs = [tensors[k] for k in leaves]
    wanted = torch.autograd.grad(outputs, inputs, theirs_seeds, allow_unused=True)
    (gradients,) = vjp(
        tuple(
            jnp.asarray(s, y.dtype) if e.requires_grad else np.zeros(y.shape, jax.dtypes.float0)
            for e, s, y in zip(expected, seeds, got, strict=True)
        )
    )
    for k, w in zip(leaves, wanted, strict=True):
        g = gradients[k]
        assert g.dtype == dtype, f"dtype {g.dtype} of the gradient of argument {k}"
        w = torch.zeros(g.shape) if w is None else w
        assert_close(g, w, tolerance, f"gradient of argument {k}")
