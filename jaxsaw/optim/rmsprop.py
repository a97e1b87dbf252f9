"""RMSprop."""

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
def rmsprop_update(
    p: Any,
    g: Any,
    squares: Any,
    buffer: Any = None,
    mean: Any = None,
    *,
    lr: Any,
    alpha: Any,
    rest: Any,
    eps: Any,
    weight_decay: Any,
    momentum: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its state after one step of RMSprop (Hinton, 2012).

    Args:
        p: The parameter, any shape; ``g`` and the state have the same.
        g: Its gradient.
        squares: The moving average of squared gradients.
        buffer: The momentum, or None.
        mean: The moving average of gradients, to centre by (Graves, 2013), or None.
        lr: The learning rate.
        alpha: The decay of the averages.
        rest: ``1 - alpha``.
        eps: Added to the root of the average.
        weight_decay: Times the parameter, added to the gradient.
        momentum: The decay of the momentum.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = rmsprop_update(
        ...     one, one, one, lr=0.5 * one, alpha=one, rest=0 * one, eps=0 * one,
        ...     weight_decay=0 * one, momentum=0 * one,
        ... )
        >>> float(new[0])
        0.5
    """
    g = (-g if maximize else g) + weight_decay * p
    squares = alpha * squares + rest * (g * g)
    variance = squares
    if mean is not None:
        mean = alpha * mean + rest * g
        variance = squares - mean * mean
    step = g / (jnp.sqrt(variance) + eps)
    if buffer is not None:
        step = buffer = momentum * buffer + step
    return p - lr * step, squares, buffer, mean


class RMSprop(Optimizer):
    r"""RMSprop: steps by the gradient over the root of the mean squared gradient.

    .. math::
        v_t = α v_{t-1} + (1 - α) g_t^2 \qquad b_t = μ b_{t-1} + g_t / (\sqrt{v_t} + ε) \qquad
        θ_t = θ_{t-1} - γ b_t

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        alpha: The decay α of the average.
        eps: Added to the denominator.
        weight_decay: Times the parameter, added to the gradient.
        momentum: The decay μ. Without it there is no momentum to keep; setting it later makes
            the arrays for it, and compiled functions are compiled again.
        centered: Whether to divide by the root of the variance instead.
        capturable: Accepted for PyTorch's sake, as are ``foreach`` and ``differentiable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.RMSprop``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> RMSprop([w], lr=0.25, alpha=0.75).step([jnp.ones(1)])
        >>> w.value
        Array([0.5], dtype=float32)
    """

    _flags = ("centered", "maximize")
    _precise = ("alpha",)
    _dormant = ("momentum",)
    _state_names = ("square_avg", "momentum_buffer", "grad_avg")
    _rule = staticmethod(rmsprop_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: Any = 0.99,
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        momentum: Any = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(
            "RMSprop", lr=lr, eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha
        )
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "alpha": alpha,
                "eps": eps,
                "centered": bool(centered),
                "weight_decay": weight_decay,
                "capturable": capturable,
                "foreach": foreach,
                "maximize": bool(maximize),
                "differentiable": differentiable,
            },
        )

    def _slots(self, group: ParamGroup) -> tuple[str, ...]:
        needed = (True, group.is_boxed("momentum"), group["centered"])
        return tuple(name for name, is_needed in zip(self._state_names, needed) if is_needed)

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr = group["lr"].value
        return dict(
            lr=lr,
            alpha=group["alpha"].value,
            rest=group["alpha"].complement(),
            eps=group["eps"].value,
            weight_decay=group["weight_decay"].value,
            momentum=group["momentum"].value if group.is_boxed("momentum") else 0 * lr,
            maximize=group["maximize"],
        )
