"""Weights go to PyTorch and come back through a safetensors file."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import jaxsaw as js
from jaxsaw import checkpoint, nn

pytestmark = pytest.mark.parity


def test_weights_there_and_back(tmp_path):
    path = tmp_path / "model.safetensors"
    ours = nn.Sequential(nn.Linear(3, 2, rngs=js.Rngs(0)), nn.BatchNorm1d(2))
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    checkpoint.save_safetensors(path, ours.state_dict())
    theirs.load_state_dict(load_file(path))
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    theirs(torch.from_numpy(x))  # changes the statistics
    save_file(theirs.state_dict(), path)
    ours.load_state_dict(checkpoint.load_safetensors(path))
    out = theirs.eval()(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ours.eval()(jnp.asarray(x)), out, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "dtype",
    ["float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
     "float8_e5m2fnuz", "int8", "uint16", "int64", "bool", "complex64"],
)  # fmt: skip
def test_dtypes(tmp_path, dtype):
    path = tmp_path / "a.safetensors"
    expected = torch.tensor([[1.0, -2.0, 0.5]]).abs().to(getattr(torch, dtype))
    save_file({"x": expected}, path)
    found = checkpoint.load_safetensors(path)
    assert found["x"].dtype == dtype
    checkpoint.save_safetensors(path, found)
    back = load_file(path)["x"]
    assert back.dtype == expected.dtype and back.shape == expected.shape
    assert back.view(torch.uint8).tolist() == expected.view(torch.uint8).tolist()
