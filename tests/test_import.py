"""What ``import jaxsaw`` brings along, and what it offers."""

import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest

import jaxsaw

ROOT = Path(__file__).parent.parent

OPTIONAL = [
    "IPython",
    "equinox",
    "flax",
    "matplotlib",
    "optax",
    "orbax",
    "pandas",
    "rich",
    "safetensors",
    "sklearn",
    "torch",
    "tqdm",
]

# The API pages that document a package by its ``__all__``.
PAGES = {
    "jaxsaw": "core",
    "jaxsaw.nn": "nn",
    "jaxsaw.nn.functional": "functional",
    "jaxsaw.nn.init": "init",
    "jaxsaw.nn.utils": "utils",
    "jaxsaw.optim": "optim",
    "jaxsaw.optim.lr_scheduler": "optim",
    "jaxsaw.optim.swa_utils": "optim",
    "jaxsaw.data": "data",
    "jaxsaw.checkpoint": "checkpoint",
    "jaxsaw.inspection": "inspection",
}


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_brings_no_optional_package():
    program = f"import sys, jaxsaw; print([m for m in {OPTIONAL} if m in sys.modules])"
    assert run(program).strip() == "[]"


def test_import_starts_no_backend():
    run("import os; os.environ['JAX_PLATFORMS'] = 'none such'; import jaxsaw")


def test_import_warns_of_nothing():
    run("import warnings; warnings.simplefilter('error'); import jax; import jaxsaw")


def test_version_is_that_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert metadata.version("jaxsaw") == project["version"] == jaxsaw.__version__


@pytest.mark.parametrize("package", PAGES)
def test_every_exported_name_exists_once(package):
    module = import_module(package)
    assert len(module.__all__) == len(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PAGES)
def test_every_exported_name_is_documented(package):
    module = import_module(package)
    page = (ROOT / "docs" / "api" / f"{PAGES[package]}.md").read_text("utf-8")
    if f"automodule:: {package}\n" in page:
        names = []
    else:
        # The core page is grouped by hand; modules have pages of their own.
        names = [name for name in module.__all__ if not is_module(getattr(module, name))]
    words = set(page.replace("(", " ").split())
    assert [name for name in names if f"{package}.{name}" not in words] == []


def is_module(value: object) -> bool:
    return isinstance(value, type(sys))
