"""Recurrent layers, cells and packing give PyTorch's numbers, and refuse what it refuses."""

import inspect
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.nn.sequence_cases import RECURRENT
from tests.parity.oracle import assert_close, torch
from tests.parity.sequences import compare


# What PyTorch says once a process.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@pytest.mark.parametrize("row", RECURRENT, ids=str)
def test_numbers(row):
    compare(row)
