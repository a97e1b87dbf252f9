"""Record PyTorch's outputs, gradients and buffers for ``tests/nn/layer_cases.py``.

Run ``python -m tests.goldens.make_layers`` from the repository's root, with PyTorch installed.
``layers.npz`` holds, for each row, one flat array of: the outputs in training (in evaluation where
the layer draws), the gradients of all parameters and then of all float inputs, the buffers after
this and two more calls, and the output in evaluation then; and where each row starts.
"""

from pathlib import Path

import numpy as np

from tests.nn.layer_cases import LAYERS, cotangent

PATH = Path(__file__).with_name("layers.npz")


def record(row) -> np.ndarray:
    """Return PyTorch's numbers for a row, one after the other."""
    import torch

    def tensor(value):
        if not isinstance(value, np.ndarray):
            return value
        t = torch.tensor(value)
        return t.long() if t.dtype == torch.int32 else t

    args, kwargs = row.arguments()
    module = getattr(torch.nn, row.name)(
        *map(tensor, args), **{k: tensor(v) for k, v in kwargs.items()}
    )
    state = row.state(module.state_dict())
    module.load_state_dict({name: torch.tensor(value) for name, value in state.items()})
    module.train(not row.draws)

    def call(step=0, grad=False):
        args, kwargs = row.call_arguments(step)
        inputs = [tensor(a) for a in args]
        leaves = [t for t in inputs if t.is_floating_point()]
        if grad:
            for leaf in leaves:
                leaf.requires_grad_()
        copies = [t.clone() for t in inputs]  # some layers change a tensor in place
        out = module(*copies, **{k: tensor(v) for k, v in kwargs.items()})
        outputs = list(out) if isinstance(out, tuple) else [out]
        return [y for y in outputs if y is not None], leaves

    outputs, leaves = call(grad=row.grad)
    found = list(outputs)
    if row.grad:
        leaves = [*module.parameters(), *leaves]
        pairs = [(y, torch.tensor(cotangent(y.shape))) for y in outputs if y.requires_grad]
        gradients = [None] * len(leaves)
        if pairs:
            ys, cotangents = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(ys, leaves, cotangents, allow_unused=True)
        found += [
            torch.zeros_like(leaf) if g is None else g
            for g, leaf in zip(gradients, leaves, strict=True)
        ]
    if row.name.startswith(("BatchNorm", "InstanceNorm")):
        call(1)
        call(2)
        found += list(module.buffers())
        found += call_in_evaluation(module, call)
    flat = [f.detach().float().numpy().ravel() for f in found]
    return np.concatenate(flat).astype(np.float32)


def call_in_evaluation(module, call) -> list:
    module.eval()
    return call()[0]


def main() -> None:
    import torch

    records = [record(row) for row in LAYERS]
    ends = np.cumsum([r.size for r in records])
    np.savez_compressed(
        PATH,
        names=np.array([str(row) for row in LAYERS]),
        ends=ends.astype(np.int32),
        values=np.concatenate(records),
        torch=np.array(torch.__version__),
    )
    print(f"{PATH}: {len(LAYERS)} rows, {ends[-1]} numbers, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
