"""Muon, for the matrices of hidden layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_not_negative, check_real
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("nesterov", "iterations", "adjust")
def muon_update(
    p: Any,
    g: Any,
    buffer: Any,
    *,
    lr: Any,
    weight_decay: Any,
    momentum: Any,
    rest: Any,
    a: Any,
    b: Any,
    c: Any,
    eps: Any,
    nesterov: bool = True,
    iterations: int = 5,
    adjust: str | None = None,
) -> Any:
    """Return the parameter and its momentum after one step of Muon (Jordan et al., 2024).

    Args:
        p: The parameter, (A, B); ``g`` and ``buffer`` have the same shape.
        g: Its gradient.
        buffer: The moving average of gradients.
        lr: The learning rate.
        weight_decay: The decay of the parameter, times ``lr``.
        momentum: The decay of the average.
        rest: ``1 - momentum``.
        a: The first coefficient of :func:`orthogonal`; ``b`` and ``c`` are the others.
        b: See there.
        c: See there.
        eps: The least norm to divide by.
        nesterov: Whether to step by where the average will be.
        iterations: See :func:`orthogonal`.
        adjust: How the rate depends on the shape, see :class:`Muon`.

    Example:
        >>> one = jnp.ones(())
        >>> new = muon_update(
        ...     jnp.zeros((2, 2)), jnp.eye(2), jnp.eye(2), lr=one, weight_decay=0 * one,
        ...     momentum=0 * one, rest=one, a=3.4445 * one, b=-4.775 * one, c=2.0315 * one,
        ...     eps=1e-7 * one,
        ... )
        >>> new[0].shape
        (2, 2)
    """
    buffer = momentum * buffer + rest * g
    step = rest * g + momentum * buffer if nesterov else buffer
    rows, columns = p.shape
    ratio = max(1, rows / columns) ** 0.5
    if adjust == "match_rms_adamw":
        ratio = 0.2 * max(rows, columns) ** 0.5
    step = orthogonal(step, a, b, c, eps, iterations).astype(p.dtype)
    return p * (1 - weight_decay) - lr * ratio * step, buffer


def orthogonal(x: Any, a: Any, b: Any, c: Any, eps: Any, iterations: int) -> Any:
    """Return a matrix with about the singular vectors of ``x`` and singular values near one.

    A few steps of Newton and Schulz's iteration in bfloat16, whose odd polynomial of degree 5
    brings singular values from (0, 1] to about one.

    Args:
        x: A matrix.
        a: The coefficient of the polynomial's linear term.
        b: That of its cubic term.
        c: That of its term of degree five.
        eps: The least norm to divide by.
        iterations: How many steps.

    Example:
        >>> coefficients = map(jnp.float32, (3.4445, -4.775, 2.0315, 1e-7))
        >>> y = orthogonal(jnp.diag(jnp.array([1.0, 4.0])), *coefficients, 5)
        >>> y.dtype, bool((jnp.abs(jnp.diag(y) - 1) < 0.5).all())
        (dtype(bfloat16), True)
    """
    low, wide = jnp.bfloat16, jnp.float32
    is_tall = x.shape[0] > x.shape[1]
    y = x.astype(low).T if is_tall else x.astype(low)
    norm = jnp.sqrt(jnp.square(y.astype(wide)).sum()).astype(low)
    y = y / jnp.maximum(norm, eps.astype(low))
    a, b, c = (k.astype(wide) for k in (a, b, c))
    for _ in range(iterations):
        gram = jnp.matmul(y, y.T, preferred_element_type=wide).astype(low)
        square = jnp.matmul(gram, gram, preferred_element_type=wide)
        factor = (b * gram.astype(wide) + c * square).astype(low)
        product = jnp.matmul(factor, y, preferred_element_type=wide)
        y = (a * y.astype(wide) + product).astype(low)
    return y.T if is_tall else y


class Muon(Optimizer):
    """Muon: momentum whose matrix is made orthogonal, then a step with decoupled decay.

    It is for the weights of hidden layers; give biases, embeddings and the like to another
    optimizer. As in PyTorch, the iteration runs in bfloat16, so the last digits of a step depend
    on the machine.

    Args:
        params: Parameters with two axes, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate.
        weight_decay: The decay.
        momentum: The decay of the average of gradients.
        nesterov: Whether to step by where the average will be.
        ns_coefficients: The coefficients of the iteration's polynomial.
        eps: The least norm to divide by.
        ns_steps: How many iterations there are.
        adjust_lr_fn: How the rate of a matrix (A, B) is scaled: by ``sqrt(max(1, A / B))``
            (``"original"``, or None) or by ``0.2 * sqrt(max(A, B))`` (``"match_rms_adamw"``).

    Raises:
        ValueError: If a number is out of range, or a Parameter hasn't two axes.

    Source: ``torch.optim.Muon``.

    Example:
        >>> w = nn.Parameter(jnp.zeros((2, 3)))
        >>> Muon([w], lr=0.1).step([jnp.ones((2, 3))])
        >>> bool((w.value < 0).all())
        True
    """

    _flags = ("nesterov", "ns_steps", "adjust_lr_fn")
    _static = ("ns_steps",)
    _precise = ("momentum",)
    _counted = False
    _state_names = ("momentum_buffer",)
    _rule = staticmethod(muon_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        weight_decay: Any = 0.1,
        momentum: Any = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[Any, Any, Any] = (3.4445, -4.775, 2.0315),
        eps: Any = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_not_negative("Muon", lr=lr, momentum=momentum, weight_decay=weight_decay)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(
                "Muon: adjust_lr_fn must be 'original', 'match_rms_adamw' or None, got "
                f"{adjust_lr_fn!r}."
            )
        if ns_steps >= 100:
            raise ValueError(f"Muon: ns_steps must be below 100, got {ns_steps}.")
        if len(ns_coefficients) != 3:
            raise ValueError(f"Muon: expected three ns_coefficients, got {ns_coefficients}.")
        super().__init__(
            params,
            {
                "lr": lr,
                "weight_decay": weight_decay,
                "momentum": momentum,
                "nesterov": bool(nesterov),
                "ns_coefficients": tuple(ns_coefficients),
                "eps": eps,
                "ns_steps": ns_steps,
                "adjust_lr_fn": adjust_lr_fn,
            },
        )

    def _check(self, name: str, p: Any) -> None:
        check_real("Muon", name, p)
        if p.ndim != 2:
            raise ValueError(
                f"Muon: only Parameters with two axes can be trained, {name} has shape {p.shape}. "
                "Give it to another optimizer, such as AdamW."
            )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr = group["lr"].value
        a, b, c = (box.value for box in group["ns_coefficients"])
        return dict(
            lr=lr,
            weight_decay=lr * group["weight_decay"].value,
            momentum=group["momentum"].value,
            rest=group["momentum"].complement(),
            a=a,
            b=b,
            c=c,
            eps=group["eps"].value,
            nesterov=group["nesterov"],
            iterations=group["ns_steps"],
            adjust=group["adjust_lr_fn"],
        )
