"""Scaling of losses, so that gradients in float16 don't vanish."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import at_once
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.branches import cond

Array = jax.Array


class GradScaler(Stateful):
    """Multiplies losses by a factor that adapts, and skips steps whose gradients aren't finite.

    The loss is scaled where gradients are taken, and :meth:`step` does the rest: it divides the
    gradients by the scale, does the optimizer's step unless one of them is infinite or not a
    number, and adapts the scale. It works inside of ``js.jit`` and outside.

    Args:
        init_scale: The first scale.
        growth_factor: The factor by which the scale grows after ``growth_interval`` steps.
        backoff_factor: The factor by which it falls when a step was skipped.
        growth_interval: How many steps in a row must have been done before it grows.
        enabled: Whether to scale at all; otherwise steps are always done.

    Raises:
        ValueError: If a factor is out of range.

    Source: ``torch.amp.GradScaler``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> optimizer, scaler = optim.SGD([w], lr=0.5), GradScaler(init_scale=4.0)
        >>> loss = lambda p: scaler.scale((p * p).sum())
        >>> bool(scaler.step(optimizer, [jax.grad(loss)(w.value)])), w.value
        (True, Array([0.], dtype=float32))
        >>> bool(scaler.step(optimizer, [jnp.full(1, jnp.inf)])), float(scaler.get_scale())
        (False, 2.0)
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1:
            raise ValueError(f"GradScaler: growth_factor must be above 1, got {growth_factor}.")
        if not 0 < backoff_factor < 1:
            raise ValueError(
                f"GradScaler: backoff_factor must be between 0 and 1, got {backoff_factor}."
            )
        self.growth_factor = growth_factor
        self.backoff_factor = backoff_factor
        self.growth_interval = growth_interval
        self.enabled = enabled
        self._scale = Variable.own(jnp.asarray(init_scale, jnp.float32))
        self._growth_tracker = Variable.own(jnp.zeros((), jnp.int32))

    def get_scale(self) -> Array:
        """Return the present scale."""
        return self._scale.value if self.enabled else jnp.ones((), jnp.float32)

    def scale(self, outputs: Any) -> Any:
        """Return a loss, or several, times the scale.

        Args:
            outputs: An array, or a pytree of arrays.
        """
        scale = self.get_scale()
        return jax.tree.map(lambda x: (x.astype(scale.dtype) * scale).astype(x.dtype), outputs)

    def unscale(self, grads: Any) -> tuple[Any, Array]:
        """Return gradients divided by the scale, and whether all are finite.

        Args:
            grads: A :class:`~jaxsaw.Grads`, or any pytree of arrays.
        """
        rest = 1 / self.get_scale()

        def divide(x: Any) -> Any:
            real = jnp.issubdtype(x.dtype, jnp.floating)
            return (x.astype(jnp.float32) * rest).astype(x.dtype) if real else x * rest

        grads = jax.tree.map(divide, grads)
        finite = jnp.ones((), bool)
        for x in jax.tree.leaves(grads):
            finite &= jnp.isfinite(x).all()
        return grads, finite

    def step(self, optimizer: Optimizer, grads: Any) -> Array:
        """Do a step of an optimizer if all gradients are finite, and adapt the scale.

        Args:
            optimizer: The optimizer.
            grads: The gradients of a scaled loss, as the optimizer takes them.

        Returns:
            Whether the step was done, a boolean scalar.
        """
        return self.step_unscaled(optimizer, *self.unscale(grads))

    def step_unscaled(self, optimizer: Optimizer, grads: Any, finite: Any) -> Array:
        """Do what :meth:`step` does with gradients that :meth:`unscale` has returned.

        Args:
            optimizer: The optimizer.
            grads: The gradients, which may have been clipped meanwhile.
            finite: Whether they were finite.

        Returns:
            Whether the step was done, a boolean scalar.
        """
        if not self.enabled:
            optimizer.step(grads)
            return jnp.ones((), bool)
        with at_once():
            if isinstance(finite, jax.core.Tracer):
                cond(finite, lambda: optimizer.step(grads), lambda: None)
            elif finite:
                optimizer.step(grads)
            scale, count = self._scale.value, self._growth_tracker.value + 1
            grown = count >= self.growth_interval
            larger = scale * self.growth_factor
            # PyTorch keeps a scale that would overflow.
            larger = jnp.where(jnp.isfinite(larger), larger, scale)
            done = jnp.where(grown, larger, scale)
            self._scale.value = jnp.where(finite, done, scale * self.backoff_factor)
            count = jnp.where(finite & ~grown, count, 0)
            self._growth_tracker.value = count.astype(jnp.int32)
        return finite

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with PyTorch's keys; empty where scaling isn't enabled."""
        if not self.enabled:
            return {}
        return {
            "scale": self._scale.value,
            "growth_factor": self.growth_factor,
            "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._growth_tracker.value,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state.

        Args:
            state_dict: What :meth:`state_dict` returned, here or in PyTorch.

        Raises:
            RuntimeError: If it lacks something; nothing is changed then.
        """
        if not self.enabled:
            return
        missing = {"scale", "_growth_tracker"} - set(state_dict)
        if missing:
            raise RuntimeError(f"GradScaler.load_state_dict: it lacks {sorted(missing)}.")
        for key in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self, key, state_dict.get(key, getattr(self, key)))
        with at_once():
            self._scale.value = np.asarray(state_dict["scale"], np.float32)
            self._growth_tracker.value = np.asarray(state_dict["_growth_tracker"], np.int32)
