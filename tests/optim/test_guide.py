"""The guide to an optimizer of one's own runs, and is as short as it says."""

import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxsaw import optim
from jaxsaw.nn import Parameter

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "new_optimizer.md"


def test_the_guide_runs():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len([line for line in blocks[0].splitlines() if line]) <= 15
    names = {}
    for block in blocks:
        exec(block, names)
    ours, theirs = Parameter(jnp.ones(3)), Parameter(jnp.ones(3))
    mine, reference = names["Lion"]([ours], lr=0.01), optim.Lion([theirs], lr=0.01)
    for g in (1.0, -3.0, 0.5):
        mine.step([jnp.full(3, g)])
        reference.step([jnp.full(3, g)])
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
