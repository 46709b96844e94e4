"""Rows of a sample are shown as the report of a comparison shows them, whatever they contain."""

import json
from typing import Any

import pytest

from backfill.api.backfill import Backfill
from backfill.cli.sample_command import show_sample
from backfill.outputs import sample_rows as outputs_sample
from backfill.outputs.sample_rows import Pair

HOSTILE = "[red]x\x1b[2J\u202e"


def shown(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *pairs: Pair,
    as_json: bool = False,
) -> str:
    monkeypatch.setattr(outputs_sample, "sample", lambda *_, **__: list(pairs))
    outputs = [{"name": "counts", "table": "lake.raw.counts", "keys": ["id"]}]
    backfill = Backfill.model_validate(
        {
            "apiVersion": "backfill.dev/v1alpha1",
            "kind": "Backfill",
            "metadata": {"name": "january"},
            "spec": {
                "applicationRef": {"name": "app"},
                "window": {"start": "2021-07-11T00:00:00Z", "end": "2021-07-12T00:00:00Z"},
                "sources": [{"name": "a", "table": "lake.raw.a", "timestampColumn": "at"}],
                "outputs": outputs,
            },
            "status": {"planId": "p", "outputs": [{"name": "counts", "table": "lake.raw.counts"}]},
        }
    )
    show_sample(backfill, None, rows=5, as_json=as_json)
    return capsys.readouterr().out


def test_bytes_are_hexadecimal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": 1, "payload": b"\x00\xff", "parts": [b"\x01", None]}
    text = shown(monkeypatch, capsys, Pair(row, (row,)))
    assert "00ff" in text
    assert "\\x" not in text
    (pair,) = json.loads(shown(monkeypatch, capsys, Pair(row, (row,)), as_json=True))
    assert pair["result"] == {"id": 1, "payload": "00ff", "parts": ["01", None]}


def test_values_do_not_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row: dict[str, Any] = {"id": HOSTILE, HOSTILE: None}
    text = shown(monkeypatch, capsys, Pair(row, ()))
    assert not {"\x1b", "\u202e"} & set(text)
    assert "[red]x\\x1b[2J\\u202e" in text


def test_how_many_rows_production_has_is_said_where_not_all_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": 1}
    text = shown(monkeypatch, capsys, Pair(row, (row, row, row)))
    assert "production 2 of 3" in text
    assert "production 3" not in text
