"""Tests against PyTorch: marked as such, and not collected where it isn't installed."""

from importlib.util import find_spec
from pathlib import Path

import jax
import pytest

HERE = Path(__file__).parent
TESTS_RUN = pytest.StashKey[int]()
collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.parity)


@pytest.fixture(autouse=True)
def bounded_memory(request: pytest.FixtureRequest):
    """Forget compiled programs now and then: thousands of small ones take gigabytes."""
    yield
    count = request.config.stash.get(TESTS_RUN, 0) + 1
    request.config.stash[TESTS_RUN] = count
    if count % 250 == 0:
        jax.clear_caches()
