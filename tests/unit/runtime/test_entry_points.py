"""Modules that are started as programs."""

import importlib
import runpy

import pytest


@pytest.mark.parametrize("name", ["backfill.runtime.explain", "backfill.runtime.survey"])
@pytest.mark.filterwarnings("ignore:.*found in sys.modules.*:RuntimeWarning")
def test_their_threads_are_not_taken_for_those_of_the_application_which_is_the_main_module(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    monkeypatch.setattr(importlib.import_module(name), "main", lambda: called.append(name))
    runpy.run_module(name, run_name="__main__")
    assert called == [name]
