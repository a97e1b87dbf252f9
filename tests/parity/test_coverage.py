"""The page that says what of PyTorch is there says the truth."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs" / "make_coverage.py"
spec = importlib.util.spec_from_file_location("make_coverage", PATH)
coverage = importlib.util.module_from_spec(spec)
spec.loader.exec_module(coverage)


@pytest.mark.parametrize("section", coverage.SECTIONS)
def test_each_name_is_there_or_says_why_not(section):
    found = coverage.rows(section)
    assert [name for name, has, why in found if not has and not why] == []
    assert [name for name, has, why in found if has and why] == []
    names = {name for name, _, _ in found}
    assert [name for name in coverage.ABSENT.get(section, {}) if name not in names] == []


def test_that_the_page_is_the_generated_one():
    text = coverage.page()
    assert coverage.PATH.read_text() == text, "run: python docs/make_coverage.py"
