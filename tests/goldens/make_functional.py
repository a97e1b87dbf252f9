"""Record PyTorch's outputs and gradients for ``tests/nn/functional/cases.py``.

Run ``python -m tests.goldens.make_functional`` from the repository's root, with PyTorch installed.
``functional.npz`` holds, for each row, the outputs and then the gradients of all float arrays, one
after the other in one flat array, and where each row starts.
"""

from pathlib import Path

import numpy as np

from tests.nn.functional.cases import GOLDEN, call, cotangent

PATH = Path(__file__).with_name("functional.npz")


def record(row) -> np.ndarray:
    """Return PyTorch's outputs and gradients as one flat array of float32."""
    import torch

    leaves = []

    def tensor(argument, value):
        if not isinstance(value, np.ndarray):
            return value
        t = torch.tensor(value)
        if row.has_gradient(argument, value):
            leaves.append(t.requires_grad_())
            return t.clone()  # some functions change a tensor in place
        return t.long() if t.dtype == torch.int32 else t

    tensors = {argument: tensor(argument, v) for argument, v in row.materialise().items()}
    out = call(getattr(torch.nn.functional, row.function), tensors)
    outputs = list(out) if isinstance(out, tuple) else [out]
    found = [y.detach().float() for y in outputs]
    if row.grad:
        pairs = [(y, torch.tensor(cotangent(y.shape))) for y in outputs if y.requires_grad]
        ys, cotangents = zip(*pairs, strict=True)
        gradients = torch.autograd.grad(ys, leaves, cotangents, allow_unused=True)
        found += [
            torch.zeros_like(leaf) if g is None else g
            for g, leaf in zip(gradients, leaves, strict=True)
        ]
    return np.concatenate([f.numpy().ravel() for f in found]).astype(np.float32)


def main() -> None:
    import torch

    records = [record(row) for row in GOLDEN]
    ends = np.cumsum([r.size for r in records])
    np.savez_compressed(
        PATH,
        names=np.array([str(row) for row in GOLDEN]),
        ends=ends.astype(np.int32),
        values=np.concatenate(records),
        torch=np.array(torch.__version__),
    )
    print(f"{PATH}: {len(GOLDEN)} rows, {ends[-1]} numbers, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
