"""What doesn't fit is refused, with a text that says what was expected and what came."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxsaw.nn import functional as F
from tests.nn.functional import cases, spatial_cases
from tests.nn.functional.cases import call

REFUSALS = [*cases.REFUSALS, *spatial_cases.REFUSALS]


def arguments(row):
    return {
        k: jnp.asarray(v) if isinstance(v, np.ndarray) else v for k, v in row.materialise().items()
    }


@pytest.mark.parametrize("row", REFUSALS, ids=str)
def test_refused(row):
    with pytest.raises(row.error, match=re.escape(row.text)) as raised:
        call(getattr(F, row.function), arguments(row))
    assert str(raised.value).startswith((f"{row.function}: ", "max pooling: "))


@pytest.mark.parametrize("row", [row for row in REFUSALS if not row.values], ids=str)
def test_refused_in_a_trace(row):
    given = arguments(row)
    traced = {k: v for k, v in given.items() if isinstance(v, jax.Array)}
    with pytest.raises(row.error, match=re.escape(row.text)):
        jax.eval_shape(lambda traced: call(getattr(F, row.function), {**given, **traced}), traced)
