"""Curves of a training run."""

import sys

import pytest

from jaxsaw.inspection import plot_history


class Axes:
    """Stands in for matplotlib's."""

    def __init__(self):
        self.curves = {}
        self.label = None

    def plot(self, x, y, label):
        self.curves[label] = (x, y)

    def set_xlabel(self, label):
        self.label = label

    def legend(self):
        pass


@pytest.mark.parametrize(
    "history",
    [{"loss": [3, 2], "acc": [0.5, 1]}, [{"loss": 3, "acc": 0.5}, {"loss": 2, "acc": 1}]],
)
def test_curves(history):
    ax = plot_history(history, ax=Axes())
    assert ax.curves == {"loss": ([0, 1], [3.0, 2.0]), "acc": ([0, 1], [0.5, 1.0])}
    assert ax.label == "epoch"


def test_values_may_be_missing():
    ax = plot_history([{"step": 10, "a": 1}, {"a": 2}, {"step": 30, "b": 3}], x="step", ax=Axes())
    assert ax.curves == {"a": ([10.0], [1.0]), "b": ([30.0], [3.0])}
    assert ax.label == "step"


def test_an_unknown_axis_is_named():
    with pytest.raises(KeyError, match="no 'step' .it has: a"):
        plot_history({"a": [1]}, x="step", ax=Axes())


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'jaxsaw\[examples\]'"):
        plot_history({"a": [1]})
