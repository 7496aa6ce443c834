"""The examples in docstrings, of every module that has any."""

import doctest
import importlib
from pathlib import Path

import pytest

import obbflow

ROOT = Path(obbflow.__file__).parent
MODULES = [
    ".".join(("obbflow", *path.relative_to(ROOT).with_suffix("").parts))
    for path in sorted(ROOT.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_there_are_examples():
    assert {"obbflow.errors", "obbflow.geometry.rbox", "obbflow.ops.iou"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_examples_give_what_they_say(name):
    # By its name, as a package may export a function with the name of its module.
    failed, attempted = doctest.testmod(importlib.import_module(name))
    assert attempted > 0
    assert failed == 0
