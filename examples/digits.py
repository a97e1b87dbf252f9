"""Train a small convolutional network to read handwritten digits; stop and resume at any step.

    python examples/digits.py --epochs 4      # trains, and writes runs/digits/epoch.001.npz, ...
    python examples/digits.py --resume        # goes on from the newest checkpoint, up to 12 epochs

The data are scikit-learn's 1,797 digits of 8x8 pixels. Everything that training changes is in the
checkpoint: weights, batch statistics, moments, the learning rate's schedule, random streams and
the loader's place in its epoch. So a run that was killed and resumed ends with the same weights,
to the last bit, as one that was never killed.
"""

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from tqdm import tqdm

import jaxsaw as js
from jaxsaw import checkpoint, data, inspection, nn, optim
from jaxsaw.nn import functional as F


class Net(nn.Module):
    """Two convolutions with batch norm, and two linear layers with dropout."""

    def __init__(self, *, rngs: js.Rngs) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, rngs=rngs),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, 32, 4, 4)
            nn.Conv2d(32, 64, 3, padding=1, rngs=rngs),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(2),  # (N, 64, 2, 2)
            nn.Flatten(),
        )
        self.head = nn.Sequential(
            nn.Linear(256, 64, rngs=rngs),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(64, 10, rngs=rngs),
        )

    def forward(self, images: jax.Array) -> jax.Array:
        return self.head(self.features(images))


@js.jit
def train_step(model, optimizer, rngs, images, labels):
    """Update the model on one batch and return the loss."""

    def loss_of(model):
        return F.cross_entropy(model(images, rngs=rngs), labels)

    loss, grads = js.value_and_grad(loss_of)(model)
    optimizer.step(grads)
    return loss


@js.jit
def predict(model, images):
    """Return the most likely digit for each image."""
    return model(images).argmax(-1)


def main() -> None:
    """Train, evaluate after every epoch, save, and draw what came out."""
    args = parse_arguments()
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    x, x_test, y, y_test = train_test_split(
        images, labels.astype(np.int32), test_size=0.2, random_state=0, stratify=labels
    )

    rngs = js.Rngs(args.seed)
    model = Net(rngs=rngs)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
    loader = data.DataLoader(
        data.TensorDataset(x, y), batch_size=64, shuffle=True, drop_last=True, rngs=rngs
    )
    state = {
        "model": model,
        "optimizer": optimizer,
        "schedule": schedule,
        "rngs": rngs,
        "loader": loader,
    }
    history = {"loss": [], "accuracy": []}
    epoch, losses = 0, []

    newest = max(args.out.glob("epoch.*.npz"), default=None)
    if args.resume and newest is not None:
        progress = checkpoint.restore(newest, **state).progress
        epoch, losses, history = progress["epoch"], progress["losses"], progress["history"]
        print(f"Resumed from {newest} at epoch {epoch + 1}, step {len(losses)}.")
    else:
        print(inspection.summary(model, jnp.asarray(x[:1])))

    def save() -> None:
        progress = {"epoch": epoch, "losses": losses, "history": history}
        path = args.out / f"epoch.{epoch + bool(losses):03d}.npz"
        checkpoint.save(path, **state, progress=progress, metadata={"seed": args.seed})

    while epoch < args.epochs:
        model.train()
        batches = tqdm(loader, f"epoch {epoch + 1}", initial=len(losses), disable=args.quiet)
        for batch in batches:
            losses.append(float(train_step(model, optimizer, rngs, *batch)))
            batches.set_postfix(loss=f"{losses[-1]:.3f}")
            if args.save_every and len(losses) % args.save_every == 0 and len(losses) < len(loader):
                save()
        schedule.step()
        model.eval()
        accuracy = float(np.mean(predict(model, x_test) == y_test))
        history["loss"].append(float(np.mean(losses)))
        history["accuracy"].append(accuracy)
        epoch, losses = epoch + 1, []
        save()
        print(f"epoch {epoch}: loss {history['loss'][-1]:.4f}, accuracy {accuracy:.2%}")

    model.eval()
    draw(args.out / "digits.png", history, x_test, y_test, np.asarray(predict(model, x_test)))
    print(f"{history['accuracy'][-1]:.2%} of {len(y_test)} held-out digits are read correctly.")


def draw(path: Path, history: dict, images: np.ndarray, labels: np.ndarray, read: np.ndarray):
    """Draw the curves, and some digits that were read wrongly."""
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure = plt.figure(figsize=(9, 3), layout="constrained")
    curves, mistakes = figure.subfigures(1, 2)
    axis = curves.subplots()
    epochs = range(1, len(history["loss"]) + 1)
    axis.plot(epochs, history["loss"], label="training loss")
    axis.plot(epochs, [1 - a for a in history["accuracy"]], label="held-out error")
    axis.set(xlabel="epoch", yscale="log")
    axis.legend()
    wrong = np.flatnonzero(read != labels)[:8]
    mistakes.suptitle("Read wrongly" if len(wrong) else "Nothing was read wrongly")
    for axis, i in zip(mistakes.subplots(2, 4).flat, [*wrong, *[None] * 8], strict=False):
        axis.axis("off")
        if i is not None:
            axis.imshow(images[i, 0], cmap="gray_r")
            axis.set_title(f"{labels[i]} as {read[i]}", fontsize=9)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"Drew {path}.")


def parse_arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12, help="how many in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("runs/digits"), help="folder for files")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    parser.add_argument("--save-every", type=int, default=0, metavar="N", help="also every N steps")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser.parse_args()


if __name__ == "__main__":
    main()
