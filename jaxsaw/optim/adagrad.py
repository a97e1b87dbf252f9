"""Optimizers that divide by what squared gradients add up to: Adagrad and Adadelta."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_between, check_engine, check_not_negative
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("maximize")
def adagrad_update(
    p: Any, g: Any, total: Any, *, rate: Any, eps: Any, weight_decay: Any, maximize: bool = False
) -> Any:
    """Return the parameter and its sum after one step of Adagrad (Duchi et al., 2011).

    Args:
        p: The parameter, any shape; ``g`` and ``total`` have the same.
        g: Its gradient.
        total: The sum of squared gradients.
        rate: ``lr / (1 + (t - 1) * lr_decay)``.
        eps: Added to the root of the sum.
        weight_decay: Times the parameter, added to the gradient.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = adagrad_update(one, one, 3 * one, rate=one, eps=0 * one, weight_decay=0 * one)
        >>> [float(x) for x in new]
        [0.5, 4.0]
    """
    g = (-g if maximize else g) + weight_decay * p
    total = total + g * g
    return p - rate * (g / (jnp.sqrt(total) + eps)), total


class Adagrad(Optimizer):
    r"""Adagrad: steps by the gradient over the root of the sum of all squared gradients.

    .. math::
        s_t = s_{t-1} + g_t^2 \qquad
        θ_t = θ_{t-1} - \frac{γ}{1 + (t - 1) η} \frac{g_t}{\sqrt{s_t} + ε}

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        lr_decay: How fast the rate falls, η.
        weight_decay: Times the parameter, added to the gradient.
        initial_accumulator_value: What the sums begin with.
        eps: Added to the denominator.
        foreach: Accepted for PyTorch's sake, as are ``differentiable`` and ``fused``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.Adagrad``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> Adagrad([w], lr=0.5).step([jnp.full(1, 3.0)])
        >>> w.value
        Array([0.5], dtype=float32)
    """

    _flags = ("maximize",)
    _static = ("initial_accumulator_value",)
    _begun = True
    _state_names = ("sum",)
    _rule = staticmethod(adagrad_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: Any = 0,
        weight_decay: Any = 0,
        initial_accumulator_value: float = 0,
        eps: Any = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_not_negative(
            "Adagrad",
            lr=lr,
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        check_engine("Adagrad", fused, foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "lr_decay": lr_decay,
                "eps": eps,
                "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value,
                "foreach": foreach,
                "maximize": bool(maximize),
                "differentiable": differentiable,
                "fused": fused,
            },
        )

    def _begin(self, group: ParamGroup, p: Any) -> dict[str, Any]:
        first = group["initial_accumulator_value"]
        if jnp.iscomplexobj(p):
            first = complex(first, first)
        return {"sum": jnp.full_like(p, first)}

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr, decay = group["lr"].value, group["lr_decay"].value
        return dict(
            rate=lr / (1 + (steps - 1).astype(lr.dtype) * decay),
            eps=group["eps"].value,
            weight_decay=group["weight_decay"].value,
            maximize=group["maximize"],
        )


@rule("maximize")
def adadelta_update(
    p: Any,
    g: Any,
    squares: Any,
    deltas: Any,
    *,
    lr: Any,
    rho: Any,
    rest: Any,
    eps: Any,
    weight_decay: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its averages after one step of Adadelta (Zeiler, 2012).

    Args:
        p: The parameter, any shape; ``g``, ``squares`` and ``deltas`` have the same.
        g: Its gradient.
        squares: The moving average of squared gradients.
        deltas: The moving average of squared steps.
        lr: The factor of each step.
        rho: The decay of both averages.
        rest: ``1 - rho``.
        eps: Added to both before their roots are taken.
        weight_decay: Times the parameter, added to the gradient.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = adadelta_update(
        ...     one, one, one, 0 * one, lr=one, rho=one, rest=0 * one, eps=3 * one,
        ...     weight_decay=0 * one,
        ... )
        >>> round(float(new[0]), 3)
        0.134
    """
    g = (-g if maximize else g) + weight_decay * p
    squares = rho * squares + rest * (g * g)
    delta = jnp.sqrt(deltas + eps) / jnp.sqrt(squares + eps) * g
    return p - lr * delta, squares, rho * deltas + rest * (delta * delta)


class Adadelta(Optimizer):
    r"""Adadelta: steps in the unit of the parameter, by two moving averages.

    .. math::
        v_t = ρ v_{t-1} + (1 - ρ) g_t^2 \qquad
        Δ_t = \frac{\sqrt{u_{t-1} + ε}}{\sqrt{v_t + ε}} g_t \\
        u_t = ρ u_{t-1} + (1 - ρ) Δ_t^2 \qquad θ_t = θ_{t-1} - γ Δ_t

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The factor γ of each step.
        rho: The decay ρ of both averages.
        eps: Added under both roots.
        weight_decay: Times the parameter, added to the gradient.
        foreach: Accepted for PyTorch's sake, as are ``capturable`` and ``differentiable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.Adadelta``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> Adadelta([w], lr=1.0, rho=0.0, eps=1.0).step([jnp.zeros(1)])
        >>> w.value
        Array([1.], dtype=float32)
    """

    _flags = ("maximize",)
    _precise = ("rho",)
    _state_names = ("square_avg", "acc_delta")
    _rule = staticmethod(adadelta_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1.0,
        rho: Any = 0.9,
        eps: Any = 1e-6,
        weight_decay: Any = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative("Adadelta", lr=lr, eps=eps, weight_decay=weight_decay)
        check_between("Adadelta", 0, 1, rho=rho)
        super().__init__(
            params,
            {
                "lr": lr,
                "rho": rho,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": bool(maximize),
                "capturable": capturable,
                "foreach": foreach,
                "differentiable": differentiable,
            },
        )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        return dict(
            lr=group["lr"].value,
            rho=group["rho"].value,
            rest=group["rho"].complement(),
            eps=group["eps"].value,
            weight_decay=group["weight_decay"].value,
            maximize=group["maximize"],
        )
