"""Record PyTorch's trajectories for ``tests/optim/cases.py``.

Run ``python -m tests.goldens.make_optim`` from the repository's root, with PyTorch installed.
``optim.npz`` holds, for each optimizer, all parameters after each of ``RECORDED`` steps as one flat
array, for some also with skipped gradients, and for each schedule the rates of two groups by epoch.
"""

from pathlib import Path

import numpy as np

from tests.optim.cases import (
    CASES,
    EPOCHS,
    MORE,
    MORE_SCHEDULES,
    RATES,
    RECORDED,
    SCHEDULES,
    gradients,
    some_gradients,
    values,
)

PATH = Path(__file__).with_name("optim.npz")


def trajectory(make, grads) -> np.ndarray:
    """Return PyTorch's parameters after each recorded step."""
    import torch

    params = [torch.nn.Parameter(torch.tensor(v)) for v in values()]
    optimizer = make(torch.optim, params)
    found = []
    for t in range(max(RECORDED)):
        for p, g in zip(params, grads(t), strict=True):
            p.grad = None if g is None else torch.tensor(g)
        optimizer.step()
        if t + 1 in RECORDED:
            found.append(np.concatenate([p.detach().numpy().ravel() for p in params]))
    return np.stack(found)


def rates(make) -> np.ndarray:
    """Return PyTorch's learning rates at each epoch."""
    import torch

    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in RATES]
    optimizer = torch.optim.SGD(groups, momentum=0.9)
    scheduler = make(torch.optim.lr_scheduler, optimizer)
    found = []
    for _ in range(EPOCHS):
        found.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    return np.array(found)


def main() -> None:
    """Write the file."""
    arrays = {}
    for name, make in CASES.items():
        arrays[name] = trajectory(make, gradients)
        arrays[f"{name}, skipping"] = trajectory(make, some_gradients)
    arrays |= {name: trajectory(make, gradients) for name, make in MORE.items()}
    arrays |= {
        f"schedule {name}": rates(make) for name, make in (SCHEDULES | MORE_SCHEDULES).items()
    }
    np.savez_compressed(PATH, **arrays)
    print(f"{PATH}: {len(arrays)} arrays, {PATH.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
