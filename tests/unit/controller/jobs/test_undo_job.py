"""An undo that fails midway says what was undone."""

from types import SimpleNamespace
from typing import Any

import pytest

from backfill.api.errors import BadInput, CanNotUndo, Problem
from backfill.controller.jobs.kinds import undo
from backfill.controller.jobs.kinds.undo import UndoJob, UndoResult

AWAY, WRONG = (Problem("", f"{word} catalog", "wait", word == "no") for word in ("no", "wrong"))


class Publication:
    """Undone by a snapshot, by the removal of files (None), or not, because of an error."""

    def __init__(self, does: int | Exception | None):
        self._does = does

    def check(self) -> None:
        """All of them could be undone at the start."""

    def run(self) -> int | None:
        if isinstance(self._does, Exception):
            raise self._does
        return self._does


def result_of(monkeypatch: pytest.MonkeyPatch, **does: int | Exception | None) -> UndoResult:
    monkeypatch.setattr(undo, "_undo_of", lambda staged, *_: Publication(does[staged.output.name]))
    staged: Any = [SimpleNamespace(output=SimpleNamespace(name=name)) for name in does]
    window: Any = None
    return UndoJob(tuple(staged), tuple(range(len(does))), window).run(lambda progress: None)


@pytest.mark.parametrize(
    ("error", "refused", "failed"),
    [
        (CanNotUndo("it was rewritten"), "a: it was rewritten", ""),
        (BadInput(WRONG), "a: wrong catalog; wait", ""),
        (BadInput(AWAY), "", "a: no catalog; wait"),
        (ConnectionResetError("Connection reset by peer"), "", "a: Connection reset by peer"),
    ],
)
def test_what_was_undone_before_an_error_is_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, refused: str, failed: str
) -> None:
    found = result_of(monkeypatch, c=None, b=91, a=error)
    assert found == UndoResult({"b": 91}, refused, ("c",), failed)


def test_an_error_before_anything_was_undone_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInput):
        result_of(monkeypatch, b=BadInput(AWAY), a=90)
