"""Find speech in a recording with Silero's voice detector: PyTorch's weights, in jaxsaw.

    pip install 'jaxsaw[voice]'
    python examples/voice.py speech.wav       # 16 bits, any number of channels
    python examples/voice.py                  # noise, then vowels that the script makes

The weights come inside the package silero-vad (MIT license, https://github.com/snakers4/silero-vad),
of which nothing else is used. They load by their names, without renaming or transposing. It prints
where there is speech, and draws how likely it is, into runs/voice.png.
"""

import argparse
import wave
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F

RATE = 16_000  # samples a second
FRAME, CONTEXT = 512, 64  # samples of a step, and how many of the step before it sees


class VoiceDetector(nn.Module):
    """A spectrum, four convolutions, a recurrent cell, and the probability of speech."""

    def __init__(self, *, rngs: js.Rngs) -> None:
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, stride=128, bias=False, rngs=rngs)
        self.conv1 = nn.Conv1d(129, 128, 3, padding=1, rngs=rngs)
        self.conv2 = nn.Conv1d(128, 64, 3, stride=2, padding=1, rngs=rngs)
        self.conv3 = nn.Conv1d(64, 64, 3, stride=2, padding=1, rngs=rngs)
        self.conv4 = nn.Conv1d(64, 128, 3, padding=1, rngs=rngs)
        self.lstm_cell = nn.LSTMCell(128, 128, rngs=rngs)
        self.final_conv = nn.Conv1d(128, 1, 1, rngs=rngs)

    def forward(self, frames: jax.Array) -> jax.Array:
        """Return the probability of speech in each frame, ``(n,)`` of ``(n, CONTEXT + FRAME)``."""
        x = F.pad(frames, (0, 64), "reflect")[:, None]  # (n, 1, 640)
        real, imaginary = jnp.split(self.stft_conv(x), 2, 1)  # (n, 129, 4)
        x = jnp.sqrt(real**2 + imaginary**2)
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(conv(x))
        x = x[:, :, 0]  # (n, 128)

        def step(state, x):
            state = self.lstm_cell(x, state)
            return state, state[0]

        zeros = jnp.zeros(128)
        _, h = js.scan(step, (zeros, zeros), x)  # (n, 128)
        return jax.nn.sigmoid(self.final_conv(F.relu(h)[:, :, None]))[:, 0, 0]


def weights() -> Path:
    """Return the file with the weights."""
    spec = find_spec("silero_vad")  # which isn't imported: it would bring PyTorch
    if spec is None or spec.origin is None:
        raise SystemExit("The weights are missing: pip install silero-vad")
    return Path(spec.origin).parent / "data" / "silero_vad_16k.safetensors"


def load() -> VoiceDetector:
    """Return the detector with its weights."""
    from safetensors.numpy import load_file

    model = js.jit(lambda: VoiceDetector(rngs=js.Rngs(0)))()
    model.load_state_dict(load_file(weights()))
    return model.eval()


def frames_of(audio: np.ndarray) -> np.ndarray:
    """Cut samples into frames that begin with the end of the one before: ``(n, 576)``."""
    count = -(-audio.size // FRAME)
    padded = np.pad(audio.astype(np.float32), (CONTEXT, count * FRAME - audio.size))
    return np.stack([padded[i * FRAME :][: CONTEXT + FRAME] for i in range(count)])


def read(path: Path) -> np.ndarray:
    """Return the samples of a WAV file of 16 bits in [-1, 1), as one channel of 16 kHz."""
    with wave.open(str(path)) as file:
        if file.getsampwidth() != 2:
            raise SystemExit(f"{path}: expected 16 bits, got {8 * file.getsampwidth()}.")
        data = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        audio = data.reshape(-1, file.getnchannels()).mean(1) / 2**15
        times = np.arange(0, audio.size / file.getframerate(), 1 / RATE)
        return np.interp(times * file.getframerate(), np.arange(audio.size), audio)


def babble() -> np.ndarray:
    """Return two seconds of noise, two of vowels with a moving pitch, and two of noise."""
    generator = np.random.default_rng(0)
    noise = lambda: 0.003 * generator.standard_normal(2 * RATE)
    voice = []
    vowels = [(730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480)]
    for i in range(8):
        t = np.arange(RATE // 4) / RATE
        pitch = 120 + 15 * np.sin(2 * np.pi * 3 * t) - 10 * (i % 3)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        sound = np.zeros_like(t)
        for k in range(1, 30):  # harmonics, as loud as the formants of the vowel let them
            f = k * pitch.mean()
            loud = sum(1 / (1 + ((f - peak) / 80) ** 2) for peak in vowels[i % 4])
            sound += loud / k**0.5 * np.sin(k * phase)
        voice.append(sound * np.hanning(t.size) ** 0.5)
    voice = 0.2 * np.concatenate(voice) / np.abs(voice).max()
    return np.concatenate([noise(), voice + noise(), noise()])


def spans(likely: np.ndarray) -> list[tuple[float, float]]:
    """Return from when to when, in seconds, there is speech."""
    edges = np.diff(np.concatenate([[0], likely > 0.5, [0]]).astype(int))
    seconds = FRAME / RATE
    return [
        (start * seconds, end * seconds)
        for start, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True)
    ]


def draw(path: Path, audio: np.ndarray, likely: np.ndarray) -> None:
    """Draw the sound and the probability of speech."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 3), layout="constrained")
    axis.plot(np.arange(audio.size) / RATE, audio / np.abs(audio).max(), color="lightgray")
    axis.plot((np.arange(likely.size) + 0.5) * FRAME / RATE, likely, label="probability of speech")
    axis.set(xlabel="seconds", ylim=(-1.05, 1.05))
    axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Read or make a sound, and say and draw where there is speech."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("audio", type=Path, nargs="?", help="a WAV file")
    parser.add_argument("--out", type=Path, default=Path("runs/voice.png"))
    args = parser.parse_args()
    audio = babble() if args.audio is None else read(args.audio)
    model = load()
    likely = np.asarray(js.jit(lambda model, frames: model(frames))(model, frames_of(audio)))
    for start, end in spans(likely):
        print(f"speech from {start:.2f} to {end:.2f} s")
    draw(args.out, audio, likely)
    print(f"Drew {args.out}.")


if __name__ == "__main__":
    main()
