"""Helpers around modules and their state."""

from jaxsaw.nn.utils import rnn
from jaxsaw.nn.utils.convert import parameters_to_vector, to_torch, vector_to_parameters

__all__ = ["parameters_to_vector", "rnn", "to_torch", "vector_to_parameters"]
