"""Silero's voice detector, as the example writes it, says what PyTorch's own program says."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.parity.oracle import torch

for package in ("silero_vad", "safetensors", "matplotlib"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} isn't installed", allow_module_level=True)

PATH = Path(__file__).parents[2] / "examples" / "voice.py"


@pytest.fixture(scope="module")
def voice():
    spec = importlib.util.spec_from_file_location("voice", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["voice"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["voice"]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_detector_with_the_weights_of_pytorchs_program(voice):
    audio = voice.babble()[voice.RATE : 3 * voice.RATE]
    frames = voice.frames_of(audio)
    program = torch.jit.load(voice.weights().with_name("silero_vad.jit"))
    with torch.no_grad():
        steps = [torch.tensor(frame[None, voice.CONTEXT :]) for frame in frames]
        expected = np.array([float(program(step, voice.RATE)) for step in steps])

    model = voice.load()
    found = [voice.spans(np.asarray(model(frames)))]  # of weights that were published later
    theirs = [v for name, v in program.state_dict().items() if name.startswith("_model.")]
    model.load_state_dict(dict(zip(model.state_dict(), theirs, strict=True)))
    got = np.asarray(model(frames))
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    found.append(voice.spans(got))
    for spans in found:  # the vowels begin after a second, and go on
        assert [0.9 < start < 1.2 and end > 1.9 for start, end in spans] == [True]
