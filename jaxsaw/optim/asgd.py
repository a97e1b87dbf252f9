"""Averaged stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_not_negative
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("maximize")
def asgd_update(
    p: Any,
    g: Any,
    eta: Any,
    mu: Any,
    average: Any,
    *,
    lr: Any,
    first: Any,
    lambd: Any,
    weight_decay: Any,
    next_eta: Any,
    next_mu: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its state after one step of ASGD (Polyak and Juditsky, 1992).

    Args:
        p: The parameter, any shape; ``g`` and ``average`` have the same.
        g: Its gradient.
        eta: The rate of this step, a scalar; at the first one it is ``lr``.
        mu: The weight of this step in the average, a scalar; at the first one it is 1.
        average: The average of the parameter.
        lr: The learning rate.
        first: One at the first step, else zero.
        lambd: The decay of the parameter.
        weight_decay: Times the parameter, added to the gradient.
        next_eta: The rate of the next step.
        next_mu: The weight of the next step.
        maximize: Whether to ascend.

    Example:
        >>> one, zero = jnp.ones(()), jnp.zeros(())
        >>> new = asgd_update(
        ...     one, one, zero, zero, zero, lr=0.5 * one, first=one, lambd=zero, weight_decay=zero,
        ...     next_eta=one, next_mu=one,
        ... )
        >>> [float(x) for x in new]
        [0.5, 1.0, 1.0, 0.5]
    """
    g = (-g if maximize else g) + weight_decay * p
    eta = jnp.where(first > 0, lr, eta)
    mu = jnp.where(first > 0, 1, mu)
    p = p * (1 - lambd * eta) - eta * g
    average = jnp.where(mu == 1, p, average + (p - average) * mu)
    return p, next_eta, next_mu, average


class ASGD(Optimizer):
    r"""Averaged stochastic gradient descent: descends, and keeps the mean of the way.

    .. math::
        θ_t = (1 - λ η_t) θ_{t-1} - η_t g_t \qquad η_{t+1} = γ / (1 + λ γ t)^α \\
        a_t = a_{t-1} + μ_t (θ_t - a_{t-1}) \qquad μ_{t+1} = 1 / \max(1, t - t_0)

    The mean is ``optimizer.state[parameter]["ax"]``.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        lambd: The decay λ of parameters.
        alpha: The power by which the rate falls.
        t0: The step at which averaging begins.
        weight_decay: Times the parameter, added to the gradient.
        foreach: Accepted for PyTorch's sake, as are ``differentiable`` and ``capturable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.ASGD``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> optimizer = ASGD([w], lr=0.5, lambd=0.0, t0=0)
        >>> for _ in range(3):
        ...     optimizer.step([jnp.ones(1)])
        >>> w.value, optimizer.state[w]["ax"].value
        (Array([-0.5], dtype=float32), Array([-0.25], dtype=float32))
    """

    _flags = ("maximize",)
    _state_names = ("eta", "mu", "ax")
    _rule = staticmethod(asgd_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: Any = 1e-4,
        alpha: Any = 0.75,
        t0: Any = 1e6,
        weight_decay: Any = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_not_negative("ASGD", lr=lr, weight_decay=weight_decay)
        super().__init__(
            params,
            {
                "lr": lr,
                "lambd": lambd,
                "alpha": alpha,
                "t0": t0,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": bool(maximize),
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _begin(self, group: ParamGroup, p: Any) -> dict[str, Any]:
        scalars = {slot: jnp.zeros((), self._dtype) for slot in ("eta", "mu")}
        return {**super()._begin(group, p), **scalars}

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr, lambd = group["lr"].value, group["lambd"].value
        t = steps.astype(lr.dtype)
        return dict(
            lr=lr,
            first=steps == 1,
            lambd=lambd,
            weight_decay=group["weight_decay"].value,
            next_eta=lr * jnp.exp(-group["alpha"].value * jnp.log1p(lambd * lr * t)),
            next_mu=1 / jnp.maximum(1, t - group["t0"].value),
            maximize=group["maximize"],
        )
