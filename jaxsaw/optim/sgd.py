"""Stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_engine, check_not_negative
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("nesterov", "maximize")
def sgd_update(
    p: Any,
    g: Any,
    buffer: Any = None,
    *,
    lr: Any,
    weight_decay: Any,
    momentum: Any,
    gain: Any,
    nesterov: bool = False,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its momentum after one step of gradient descent.

    Args:
        p: The parameter, any shape; ``g`` and ``buffer`` have the same.
        g: Its gradient.
        buffer: The momentum, or None for plain descent.
        lr: The learning rate.
        weight_decay: Times the parameter, added to the gradient.
        momentum: The decay of the momentum.
        gain: How much of the gradient goes into the momentum.
        nesterov: Whether to step by where the momentum will be (Sutskever et al., 2013).
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = sgd_update(one, one, one, lr=0.5 * one, weight_decay=0 * one, momentum=one,
        ...                  gain=one)
        >>> [float(x) for x in new]
        [0.0, 2.0]
    """
    g = (-g if maximize else g) + weight_decay * p
    if buffer is not None:
        buffer = momentum * buffer + gain * g
        g = g + momentum * buffer if nesterov else buffer
    return p - lr * g, buffer


class SGD(Optimizer):
    r"""Stochastic gradient descent, with momentum where asked for.

    .. math::
        b_t = μ b_{t-1} + (1 - τ) g_t \qquad θ_t = θ_{t-1} - γ b_t

    The first momentum of a Parameter is its first gradient.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        momentum: The decay μ. Without it there is no momentum to keep; setting it later makes
            the arrays for it, and compiled functions are compiled again.
        dampening: How little of a gradient goes into the momentum, τ.
        weight_decay: Times the parameter, added to the gradient.
        nesterov: Whether to look ahead along the momentum.
        maximize: Whether to ascend.
        foreach: Accepted for PyTorch's sake, as are ``differentiable`` and ``fused``; they
            change nothing.

    Raises:
        ValueError: If a number is out of range, or ``nesterov`` lacks momentum.

    Source: ``torch.optim.SGD``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> optimizer = SGD([w], lr=0.1, momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.step([jnp.ones(1)])
        >>> w.value
        Array([0.75], dtype=float32)
    """

    _flags = ("nesterov", "maximize")
    _precise = ("dampening",)
    _dormant = ("momentum",)
    _counted = False
    _state_names = ("momentum_buffer",)
    _rule = staticmethod(sgd_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: Any = 0,
        dampening: Any = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_not_negative("SGD", lr=lr, momentum=momentum, weight_decay=weight_decay)
        check_engine("SGD", fused, foreach, differentiable)
        traced = any(isinstance(x, jax.core.Tracer) for x in (momentum, dampening))
        if nesterov and not traced and (momentum <= 0 or dampening != 0):
            raise ValueError(
                "SGD: nesterov needs momentum > 0 and dampening = 0, got "
                f"momentum={momentum} and dampening={dampening}."
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": bool(nesterov),
                "maximize": bool(maximize),
                "foreach": foreach,
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def _slots(self, group: ParamGroup) -> tuple[str, ...]:
        return self._state_names if group.is_boxed("momentum") else ()

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr = group["lr"].value
        momentum = gain = jnp.zeros((), lr.dtype)
        if group.is_boxed("momentum"):
            momentum = group["momentum"].value
            gain = jnp.where(steps == 1, 1, group["dampening"].complement())
        return dict(
            lr=lr,
            weight_decay=group["weight_decay"].value,
            momentum=momentum,
            gain=gain,
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
