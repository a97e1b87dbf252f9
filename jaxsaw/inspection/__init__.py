"""Looking at models, at what they compile to, and at what it costs."""

from jaxsaw.inspection.compiled import Cost, Retraces, cost, hlo, jaxpr, retraces
from jaxsaw.inspection.plots import plot_history
from jaxsaw.inspection.summary import Row, Summary, summary

__all__ = [
    "Cost",
    "Retraces",
    "Row",
    "Summary",
    "cost",
    "hlo",
    "jaxpr",
    "plot_history",
    "retraces",
    "summary",
]
