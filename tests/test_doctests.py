"""The examples in docstrings run, and print what they say."""

import doctest
import pkgutil
from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint, data, inspection, nn, optim

MODULES = [
    module.name
    for module in pkgutil.walk_packages(js.__path__, "jaxsaw.")
    if not module.name.endswith("__main__")
]

# What an example may use without importing it, besides the names of its own module.
USUAL = {
    "jax": jax,
    "jnp": jnp,
    "np": np,
    "js": js,
    "nn": nn,
    "F": nn.functional,
    "init": nn.init,
    "optim": optim,
    "data": data,
    "checkpoint": checkpoint,
    "inspection": inspection,
}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name, tmp_path, monkeypatch):
    module = import_module(name)
    monkeypatch.chdir(tmp_path)
    runner = doctest.DocTestRunner(
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False
    )
    printed: list[str] = []
    for example in doctest.DocTestFinder().find(module, globs={**USUAL, **vars(module)}):
        runner.run(example, out=printed.append)
    assert not runner.failures, "\n" + "".join(printed)
