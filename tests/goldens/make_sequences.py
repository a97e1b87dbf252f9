"""Record PyTorch's outputs and gradients for ``tests/nn/sequence_cases.py``.

Run ``python -m tests.goldens.make_sequences`` from the repository's root, with PyTorch installed.
``sequences.npz`` holds, for each row, one flat array of the outputs, then of the gradients of all
parameters, then of those of all float inputs.
"""

from pathlib import Path

import numpy as np

from tests.nn.sequence_cases import GOLDEN, cotangent, flat

PATH = Path(__file__).with_name("sequences.npz")


def record(row) -> np.ndarray:
    """Return PyTorch's numbers for a row, one after the other."""
    import torch

    layer = row.make(torch.nn)
    state = row.state(layer.state_dict())
    layer.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    leaves = list(layer.parameters())

    def tensor(value):
        if isinstance(value, tuple):
            return tuple(map(tensor, value))
        if not isinstance(value, np.ndarray):
            return value
        t = torch.tensor(value)
        if t.is_floating_point():
            leaves.append(t.requires_grad_())
        return t.long() if t.dtype == torch.int32 else t

    args, kwargs = row.arrays()
    args, kwargs = [tensor(v) for v in args], {k: tensor(v) for k, v in kwargs.items()}
    outputs = flat(tuple(row.outputs(layer, torch.nn.utils.rnn, args, kwargs)))
    cotangents = [torch.tensor(cotangent(tuple(y.shape))) for y in outputs]
    gradients = torch.autograd.grad(
        outputs, leaves, cotangents, allow_unused=True, materialize_grads=True
    )
    return np.concatenate([v.detach().numpy().ravel() for v in (*outputs, *gradients)])


def main() -> None:
    rows = [row for group in GOLDEN.values() for row in group]
    np.savez_compressed(PATH, **{str(row): record(row) for row in rows})
    print(f"{PATH}: {len(rows)} rows, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
