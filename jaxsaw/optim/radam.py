"""RAdam: Adam whose steps are plain until its averages can be trusted."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_betas, check_not_negative
from jaxsaw.optim.group import ParamGroup, bias_correction
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("decoupled", "maximize")
def radam_update(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    *,
    step_size: Any,
    rectified: Any,
    trusted: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    weight_decay: Any,
    decoupled: bool = False,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its moments after one step of RAdam (Liu et al., 2020).

    Args:
        p: The parameter, any shape; ``g``, ``m`` and ``v`` have the same.
        g: Its gradient.
        m: The moving average of gradients.
        v: The moving average of squared gradients.
        step_size: ``lr / (1 - beta1 ** t)``.
        rectified: The factor of a step that ``v`` scales, of the bias correction of ``v`` and of
            the rectification.
        trusted: One where there are enough gradients to scale by ``v``, else zero.
        beta1: The decay of ``m``.
        rest1: ``1 - beta1``.
        beta2: The decay of ``v``.
        rest2: ``1 - beta2``.
        eps: Added to the root of ``v``.
        weight_decay: The decay; where it is decoupled, times ``lr``.
        decoupled: Whether the decay acts on the parameter instead of on the gradient.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = radam_update(
        ...     one, one, one, 4 * one, step_size=one, rectified=one, trusted=one, beta1=one,
        ...     rest1=0 * one, beta2=one, rest2=0 * one, eps=0 * one, weight_decay=0 * one,
        ... )
        >>> float(new[0])
        0.5
    """
    g = -g if maximize else g
    if decoupled:
        p = p * (1 - weight_decay)
    else:
        g = g + weight_decay * p
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * (g * g)
    scale = jnp.where(trusted > 0, rectified / (jnp.sqrt(v) + eps), 1)
    return p - step_size * (m * scale), m, v


class RAdam(Optimizer):
    r"""RAdam: Adam with a rectified variance.

    .. math::
        ρ_∞ = \frac{2}{1 - β_2} - 1 \qquad ρ_t = ρ_∞ - \frac{2 t β_2^t}{1 - β_2^t} \\
        θ_t = θ_{t-1} - γ \frac{m_t}{1 - β_1^t} \begin{cases}
        r_t \sqrt{1 - β_2^t} / (\sqrt{v_t} + ε) & ρ_t > 5 \\ 1 & \text{else} \end{cases} \\
        r_t = \sqrt{\frac{(ρ_t - 4) (ρ_t - 2) ρ_∞}{(ρ_∞ - 4) (ρ_∞ - 2) ρ_t}}

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        betas: The decay of the two averages.
        eps: Added to the denominator.
        weight_decay: The decay.
        decoupled_weight_decay: Whether to decay as in AdamW.
        foreach: Accepted for PyTorch's sake, as are ``capturable`` and ``differentiable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.RAdam``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> RAdam([w], lr=0.25).step([jnp.full(1, 2.0)])  # at first the gradient itself
        >>> w.value.round(4)
        Array([0.5], dtype=float32)
    """

    _flags = ("maximize", "decoupled_weight_decay")
    _precise = ("betas",)
    _state_names = ("exp_avg", "exp_avg_sq")
    _rule = staticmethod(radam_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative("RAdam", lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas("RAdam", betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": bool(maximize),
                "foreach": foreach,
                "capturable": capturable,
                "decoupled_weight_decay": bool(decoupled_weight_decay),
                "differentiable": differentiable,
            },
        )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr, decay = group["lr"].value, group["weight_decay"].value
        decoupled = group["decoupled_weight_decay"]
        beta1, beta2 = group["betas"]
        rest1, rest2 = beta1.complement(), beta2.complement()
        rho, limit = _lengths(rest2, steps)
        trusted = rho > 5
        rho = jnp.where(trusted, rho, 6)
        factor = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
        factor = jnp.where(trusted, factor, 1)
        return dict(
            step_size=lr / bias_correction(rest1, steps),
            rectified=jnp.sqrt(factor * bias_correction(rest2, steps)),
            trusted=trusted,
            beta1=beta1.value,
            rest1=rest1,
            beta2=beta2.value,
            rest2=rest2,
            eps=group["eps"].value,
            weight_decay=lr * decay if decoupled else decay,
            decoupled=decoupled,
            maximize=group["maximize"],
        )


@jax.jit
def _lengths(rest: Any, steps: Any) -> tuple[Any, Any]:
    """Return how many gradients the average of squares stands for, after ``steps`` and at last.

    By their formula they are differences of large numbers. Here ``rate = -log(beta2)`` and
    ``x = t * rate``; what cancels is left out, by power series where numbers are small.
    """
    rate = -jnp.log1p(-jnp.minimum(rest, 0.999999))
    t = steps.astype(rest.dtype)
    x = t * rate
    # 1 / rest - 1 / rate, with Gregory's coefficients.
    series = jnp.zeros_like(rest)
    for c in (275 / 24192, 863 / 60480, 3 / 160, 19 / 720, 1 / 24, 1 / 12, 1 / 2):
        series = series * rest + c
    offset = jnp.where(rest < 0.2, series, 1 / rest - 1 / rate)
    # 1 - x / expm1(x), with Bernoulli's numbers.
    y = x * x
    small = x / 2 - y / 12 * (1 - y / 60 * (1 - y / 42 * (1 - y / 40)))
    lost = jnp.where(x < 1, small, 1 - x / jnp.expm1(jnp.minimum(x, 80)))
    return 2 * (offset + lost / rate) - 1, 2 / rest - 1
