"""Pictures of a training run; they need matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def plot_history(
    history: Mapping[str, Sequence[float]] | Iterable[Mapping[str, float]],
    *,
    x: str | None = None,
    ax: Any = None,
) -> Any:
    """Draw the curves of a training run.

    Args:
        history: The values of each curve by name, or one mapping from names to numbers for each
            epoch, in which some may be missing.
        x: The name whose values are those of the horizontal axis; by default 0, 1, 2, ...
        ax: The matplotlib axes to draw into; new ones by default.

    Returns:
        The axes.

    Raises:
        ImportError: Without matplotlib.
        KeyError: If there is no ``x`` in the history.
    """
    curves = _curves(history)
    if x is not None and x not in curves:
        raise KeyError(f"plot_history: the history has no {x!r} (it has: {', '.join(curves)}).")
    if ax is None:
        ax = _pyplot().subplots()[1]
    places = dict(curves.pop(x)) if x is not None else None
    for name, points in curves.items():
        known = [(i if places is None else places[i], y) for i, y in points if _in(i, places)]
        ax.plot([i for i, _ in known], [y for _, y in known], label=name)
    ax.set_xlabel("epoch" if x is None else x)
    if curves:
        ax.legend()
    return ax


def _in(i: int, places: dict[int, float] | None) -> bool:
    return places is None or i in places


def _curves(history: Any) -> dict[str, list[tuple[int, float]]]:
    curves: dict[str, list[tuple[int, float]]] = {}
    if isinstance(history, Mapping):
        for name, values in history.items():
            curves[name] = [(i, float(value)) for i, value in enumerate(values)]
        return curves
    for i, entry in enumerate(history):
        for name, value in entry.items():
            curves.setdefault(name, []).append((i, float(value)))
    return curves


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(
            "plot_history needs matplotlib. Install it with: pip install 'jaxsaw[examples]'"
        ) from error
    return pyplot
