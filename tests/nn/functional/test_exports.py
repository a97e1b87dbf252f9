"""The package exports functions, each with PyTorch's argument names first."""

import inspect

import pytest

from jaxsaw.nn import functional as F

DRAW = {
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "multi_head_attention_forward",
    "gumbel_softmax",
    "rrelu",
    "scaled_dot_product_attention",
}


@pytest.mark.parametrize("name", F.__all__)
def test_export(name):
    function = getattr(F, name)
    assert inspect.isfunction(function)  # and not the module of that name
    assert function.__doc__
    parameters = inspect.signature(function).parameters
    assert ("rngs" in parameters) == (name in DRAW)
    if name in DRAW:
        assert list(parameters)[-1] == "rngs"
        assert parameters["rngs"].kind is inspect.Parameter.KEYWORD_ONLY
