"""Execute the guides afresh on a CPU, and fail where a cell raises.

    python docs/execute.py                     every notebook in docs/guide
    python docs/execute.py --inplace FILE ...  these, saving what they print

Each one runs in a kernel of its own whose working directory is empty and thrown away.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError

GUIDE = Path(__file__).parent / "guide"


def execute(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with the outputs of a fresh run."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=600,
            kernel_name="python3",
            record_timing=False,
            coalesce_streams=True,
            extra_arguments=["--log-level=ERROR"],  # no notices about the kernel's own ports
            resources={"metadata": {"path": folder}},
        ).execute()
    # The same everywhere, so that a new run changes the outputs in the file and nothing else.
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return notebook


def main() -> int:
    """Execute what the command line names; return the number of notebooks that failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--inplace", action="store_true", help="save the outputs in the file")
    arguments = parser.parse_args()
    notebooks = arguments.notebooks or sorted(GUIDE.glob("*.ipynb"))
    if not notebooks:
        parser.error(f"there is no notebook in {GUIDE}")

    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    failed = 0
    for path in notebooks:
        start = time.perf_counter()
        try:
            notebook = execute(path)
        except (CellExecutionError, DeadKernelError, TimeoutError) as error:
            failed += 1
            print(f"{path}: FAILED\n{error}", file=sys.stderr)
            continue
        if arguments.inplace:
            nbformat.write(notebook, path)
        print(f"{path}: {time.perf_counter() - start:.1f} s", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
