"""Many rows in one compiled program: outputs, gradients and buffers, as their records have them."""

import copy
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F
from tests.nn.functional.cases import Case, call, cotangent
from tests.nn.layer_cases import Layer

# Half of the time to compile; the programs run once.
QUICKLY = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def outputs_and_gradients(rows: list[Case], dtype: Any = jnp.float32) -> list[list[jax.Array]]:
    """Return, for each row, the outputs and then the gradients of all float arrays.

    Args:
        rows: Calls of ``nn.functional``.
        dtype: What floats are turned into.
    """
    arguments = [row.materialise() for row in rows]
    arrays = [
        {k: _array(v, dtype) for k, v in each.items() if isinstance(v, np.ndarray)}
        for each in arguments
    ]

    def run(arrays: list[dict[str, jax.Array]]) -> list[list[jax.Array]]:
        return [_run(*each) for each in zip(rows, arguments, arrays, strict=True)]

    return jax.jit(run, compiler_options=QUICKLY)(arrays)


def numbers_of_layers(rows: list[Layer]) -> tuple[list[nn.Module], list[list[jax.Array]]]:
    """Return the layers, and the numbers of each.

    They are the outputs, the gradients of parameters and then of all float inputs, and for a norm
    with running statistics also the buffers after two more calls, and the output in evaluation.

    Args:
        rows: Layers, and what to call them with.
    """
    layers = [built(row) for row in rows]
    for row, layer in zip(rows, layers, strict=True):
        layer.load_state_dict(row.state(layer.state_dict()))
    in_evaluation = copy.deepcopy(layers)
    steps = range(3)
    inputs = [
        [[jnp.asarray(a) for a in row.call_arguments(step)[0]] for step in steps] for row in rows
    ]
    for layer in in_evaluation:
        layer.eval()

    def run(layers: Any, in_evaluation: Any, inputs: Any) -> list[list[jax.Array]]:
        return [_run_layer(*each) for each in zip(rows, layers, in_evaluation, inputs, strict=True)]

    return layers, js.jit(run, compiler_options=QUICKLY)(layers, in_evaluation, inputs)


def built(row: Layer) -> nn.Module:
    """Return a layer without drawing its first values, which is one more program for each shape."""
    ones = lambda key, shape, dtype, *_: jnp.asarray(np.ones(shape, dtype))
    with mock.patch.object(jax.random, "uniform", ones):
        return row.build()


def check(found: list[Any], expected: np.ndarray, tolerance: float, what: str) -> None:
    """Compare arrays with their record, each with a slack in proportion to its largest element."""
    assert sum(array.size for array in found) == expected.size, what
    start = 0
    for array in found:
        part = expected[start : start + array.size].reshape(array.shape)
        start += array.size
        scale = float(np.abs(part[np.isfinite(part)]).max(initial=0))
        slack = tolerance * scale + 1e-30
        got = np.asarray(array, np.float32)
        np.testing.assert_allclose(got, part, rtol=tolerance, atol=slack, err_msg=what)


def _array(value: np.ndarray, dtype: Any) -> jax.Array:
    return jnp.asarray(value, dtype if value.dtype.kind == "f" else None)


def _run(row: Case, arguments: dict[str, Any], arrays: dict[str, jax.Array]) -> list[jax.Array]:
    fixed = {**arguments, **arrays}
    leaves = {k: fixed.pop(k) for k, v in arguments.items() if row.has_gradient(k, v)}

    def outputs_of(leaves: dict[str, jax.Array]) -> tuple[jax.Array, ...]:
        y = call(getattr(F, row.function), {**fixed, **leaves})
        return y if isinstance(y, tuple) else (y,)

    if not leaves:
        return list(outputs_of(leaves))
    outputs, vjp = jax.vjp(outputs_of, leaves)
    seeds = tuple(
        jnp.asarray(cotangent(y.shape), y.dtype)
        if jnp.issubdtype(y.dtype, jnp.floating)
        else np.zeros(y.shape, jax.dtypes.float0)
        for y in outputs
    )
    (gradients,) = vjp(seeds)
    return [*outputs, *(gradients[k] for k in leaves)]


def _run_layer(
    row: Layer, layer: nn.Module, in_evaluation: nn.Module, inputs: list[list[jax.Array]]
) -> list[jax.Array]:
    floats = [i for i, a in enumerate(inputs[0]) if jnp.issubdtype(a.dtype, jnp.floating)]

    def outputs_of(layer: nn.Module, args: list[jax.Array]) -> list[jax.Array]:
        out = layer(*args, **row.call)
        return list(out) if isinstance(out, tuple) else [out]

    def loss(layer: nn.Module, *values: jax.Array) -> tuple[jax.Array, list[jax.Array]]:
        args = list(inputs[0])
        for i, value in zip(floats, values, strict=True):
            args[i] = value
        ys = outputs_of(layer, args)
        terms = [
            (y * cotangent(y.shape)).sum() for y in ys if jnp.issubdtype(y.dtype, jnp.floating)
        ]
        return sum(terms, jnp.zeros(())), ys

    if not row.grad:
        return outputs_of(layer, inputs[0])
    run = js.value_and_grad(loss, tuple(range(len(floats) + 1)), has_aux=True)
    (_, found), (grads, *rest) = run(layer, *[inputs[0][i] for i in floats])
    found = [*found, *grads.values(), *rest]
    buffers = dict(layer.named_buffers())
    if row.name.startswith("InstanceNorm"):
        for args in inputs[1:]:
            outputs_of(layer, args)
        found += [box.value for box in buffers.values()]
        for name, box in buffers.items():
            in_evaluation.get_buffer(name).value = box.value
        found += outputs_of(in_evaluation, inputs[0])
    return found
