"""Resilient backpropagation."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_not_negative, check_pair
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("maximize")
def rprop_update(
    p: Any,
    g: Any,
    before: Any,
    size: Any,
    *,
    lr: Any,
    first: Any,
    shrink: Any,
    grow: Any,
    least: Any,
    most: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its state after one step of Rprop (Riedmiller and Braun, 1993).

    Args:
        p: The parameter, any shape; ``g``, ``before`` and ``size`` have the same.
        g: Its gradient.
        before: The gradient of the step before.
        size: How long the step before was; at the first one it is ``lr``.
        lr: The learning rate.
        first: One at the first step, else zero.
        shrink: The factor of a step whose gradient has turned.
        grow: The factor of one whose gradient hasn't.
        least: The shortest step.
        most: The longest step.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = rprop_update(
        ...     one, one, one, 0.25 * one, lr=one, first=0 * one, shrink=0.5 * one, grow=2 * one,
        ...     least=0 * one, most=one,
        ... )
        >>> [float(x) for x in new]
        [0.5, 1.0, 0.5]
    """
    g = -g if maximize else g
    turn = g * before
    factor = jnp.where(turn > 0, grow, jnp.where(turn < 0, shrink, 1))
    size = jnp.clip(jnp.where(first > 0, lr, size) * factor, least, most)
    g = jnp.where(turn < 0, 0, g)
    return p - jnp.sign(g) * size, g, size


class Rprop(Optimizer):
    r"""Rprop: steps by the sign of the gradient, of lengths that adapt.

    The length of an element's step grows by :math:`η_+` while its gradient keeps its sign; where
    the gradient turns, it shrinks by :math:`η_-`, and that step is left out.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The length of the first step.
        etas: The factors :math:`η_-` and :math:`η_+`.
        step_sizes: The shortest and the longest step.
        capturable: Accepted for PyTorch's sake, as are ``foreach`` and ``differentiable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.Rprop``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> optimizer = Rprop([w], lr=0.25, etas=(0.5, 2.0))
        >>> for _ in range(2):
        ...     optimizer.step([jnp.full(1, 7.0)])
        >>> w.value
        Array([0.25], dtype=float32)
    """

    _flags = ("maximize",)
    _state_names = ("prev", "step_size")
    _rule = staticmethod(rprop_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        etas: tuple[Any, Any] = (0.5, 1.2),
        step_sizes: tuple[Any, Any] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative("Rprop", lr=lr)
        low, high = check_pair("Rprop", "etas", etas)
        if not (low is None or 0 < low < 1) or not (high is None or high > 1):
            raise ValueError(f"Rprop: etas must be 0 < etas[0] < 1 < etas[1], got {etas}.")
        check_pair("Rprop", "step_sizes", step_sizes)
        super().__init__(
            params,
            {
                "lr": lr,
                "etas": tuple(etas),
                "step_sizes": tuple(step_sizes),
                "foreach": foreach,
                "maximize": bool(maximize),
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        shrink, grow = group["etas"]
        least, most = group["step_sizes"]
        return dict(
            lr=group["lr"].value,
            first=steps == 1,
            shrink=shrink.value,
            grow=grow.value,
            least=least.value,
            most=most.value,
            maximize=group["maximize"],
        )
