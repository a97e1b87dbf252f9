"""Record PyTorch's numbers for the functions and layers of space.

Run ``python -m tests.goldens.make_spatial`` from the repository's root, with PyTorch installed.
``spatial.npz`` holds, for each row of ``GOLDEN`` in ``tests/nn/spatial_cases.py``, what
``make_functional`` and ``make_layers`` record, and where each row starts.
"""

import warnings
from pathlib import Path

import numpy as np

from tests.goldens import make_functional, make_layers
from tests.nn.functional.cases import Case
from tests.nn.spatial_cases import GOLDEN

PATH = Path(__file__).with_name("spatial.npz")


def main() -> None:
    import torch

    warnings.simplefilter("ignore")  # of PyTorch's defaults, and of older names
    records = {
        str(row): (make_functional if isinstance(row, Case) else make_layers).record(row)
        for rows in GOLDEN.values()
        for row in rows
    }
    ends = np.cumsum([r.size for r in records.values()])
    np.savez_compressed(
        PATH,
        names=np.array(list(records)),
        ends=ends.astype(np.int32),
        values=np.concatenate(list(records.values())),
        torch=np.array(torch.__version__),
    )
    print(f"{PATH}: {len(records)} rows, {ends[-1]} numbers, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    main()
