"""Silero's voice detector, as the example writes it, says what PyTorch's own program says."""

import importlib.util
import sys
import wave
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


@pytest.fixture(scope="module")
def model(voice):
    return voice.load()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_detector_with_the_weights_of_pytorchs_program(voice, model):
    audio = voice.babble()[voice.RATE : 3 * voice.RATE]
    frames = voice.frames_of(audio)
    program = torch.jit.load(voice.weights().with_name("silero_vad.jit"))
    with torch.no_grad():
        steps = [torch.tensor(frame[None, voice.CONTEXT :]) for frame in frames]
        expected = np.array([float(program(step, voice.RATE)) for step in steps])

    published = model.state_dict()
    found = [voice.spans(np.asarray(model(frames)))]  # of weights that were published later
    theirs = [v for name, v in program.state_dict().items() if name.startswith("_model.")]
    model.load_state_dict(dict(zip(model.state_dict(), theirs, strict=True)))
    got = np.asarray(model(frames))
    model.load_state_dict(published)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    found.append(voice.spans(got))
    for spans in found:  # the vowels begin after a second, and go on
        assert [0.9 < start < 1.2 and end > 1.9 for start, end in spans] == [True]


def test_it_says_and_draws_where_the_vowels_are(voice, model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(voice, "load", lambda: model)
    monkeypatch.setattr(sys, "argv", ["voice.py", f"--out={tmp_path / 'voice.png'}"])
    voice.main()
    assert capsys.readouterr().out.startswith("speech from 2.05 to 4.13 s\n")
    assert (tmp_path / "voice.png").read_bytes().startswith(b"\x89PNG")


def test_a_recording_is_read(voice, tmp_path):
    sound = np.sin(np.arange(800) / 9)
    with wave.open(str(tmp_path / "sound.wav"), "wb") as file:
        file.setparams((2, 2, 8_000, 0, "NONE", ""))
        file.writeframes((np.stack([sound, sound], 1) * 2**14).astype("<i2").tobytes())
    audio = voice.read(tmp_path / "sound.wav")
    assert audio.shape == (1600,)
    np.testing.assert_allclose(audio[::2], sound / 2, atol=1e-4)
