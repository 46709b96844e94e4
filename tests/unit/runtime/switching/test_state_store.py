"""In what a stream keeps its state: as it began, as it was set, else by what it needs at most."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from backfill.planning.plan import PlanHeader
from backfill.planning.workspace import Workspace
from backfill.runtime.batch.time_reach import Unbounded
from backfill.runtime.queries.state_size import Kept
from backfill.runtime.switching import state_store
from backfill.runtime.switching.state_store import HEAP, PROVIDER, ROCKSDB, choose_state_store
from cases import cases

HEAP_BYTES = 4 << 30
JOIN_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
SMALL = Kept("events", 0, 1, 1)


class Session:
    """A session of which only the properties are real."""

    def __init__(self, properties: dict[str, str]):
        self.properties = dict(properties)
        self.conf = self

    def get(self, key: str, default: str | None) -> str | None:
        return self.properties.get(key, default)

    def set(self, key: str, value: str) -> None:
        self.properties[key] = value

    def unset(self, key: str) -> None:
        del self.properties[key]


class Choosing:
    """A query that keeps what the test says, and needs so many bytes for it."""

    def __init__(self, directory: Path, header: PlanHeader, monkeypatch: pytest.MonkeyPatch):
        self.checkpoint = Workspace(str(directory))
        self._directory, self._header, self._patch = directory, header, monkeypatch

    def choose(
        self,
        *,
        kept: object = (SMALL,),
        needed: float = 1,
        properties: dict[str, str] | None = None,
        begun: str = "",
        outputs: int = 1,
    ) -> tuple[str, str | None]:
        """What is said, and the provider that the query's session has when it starts."""

        def kept_rows(*_: object) -> object:
            if isinstance(kept, Exception):
                raise kept
            return kept

        self._patch.setattr(state_store, "kept_rows", kept_rows)
        self._patch.setattr(state_store, "most_bytes", lambda *_: needed)
        self._patch.setattr(state_store, "watermark_delay_us", lambda _: 0)
        self._patch.setattr(state_store, "heap_bytes", lambda _: HEAP_BYTES)
        if begun:
            (self._directory / "offsets").mkdir()
            for number, provider in (("9", "the.first"), ("10", begun)):
                metadata = json.dumps({"batchWatermarkMs": 0, "conf": {PROVIDER: provider}})
                (self._directory / "offsets" / number).write_text(f"v1\n{metadata}\n1")
        session: Any = Session(properties or {})
        frame: Any = type("Frame", (), {"sparkSession": session})
        store = choose_state_store(frame, self._header, self.checkpoint, outputs)
        with store.in_session(session):
            provider = session.get(PROVIDER, None)
        assert session.properties == (properties or {}), "other queries' sessions do not change"
        return store.reason, provider


@pytest.fixture
def choosing(tmp_path: Path, header: PlanHeader, monkeypatch: pytest.MonkeyPatch) -> Choosing:
    return Choosing(tmp_path, header, monkeypatch)


@cases(
    ("given", "said", "provider"),
    {
        "what fits": ({"needed": 1 << 30}, "memory: it needs at most 1,024 MiB", HEAP),
        "what does not fit": ({"needed": (1 << 30) + 1}, "RocksDB: it may need 1,025 MiB", ROCKSDB),
        "what does not fit beside another query": (
            {"needed": 1 << 30, "outputs": 2},
            "RocksDB: it may need 1,024 MiB of memory, but only 512 MiB is available",
            ROCKSDB,
        ),
        "what is not understood": (
            {"kept": Unbounded("TransformWithState keeps state of the program's own")},
            "RocksDB: TransformWithState keeps state of the program's own",
            ROCKSDB,
        ),
        "what has no known size": (
            {"needed": math.inf},
            "RocksDB: it is unknown how much it needs",
            ROCKSDB,
        ),
        "what fails to be analysed": (
            {"kept": ValueError("no")},
            "RocksDB: its state could not be estimated (ValueError)",
            ROCKSDB,
        ),
        "no state": ({"kept": (), "needed": 0}, "", ROCKSDB),
        "what the program sets": (
            {"properties": {PROVIDER: "their.own"}},
            "their.own, as set by the program, the SparkApplication or the Backfill",
            "their.own",
        ),
        "a join's format that only RocksDB has": (
            {"properties": {JOIN_FORMAT: "4"}},
            f"RocksDB, as required by {JOIN_FORMAT}",
            ROCKSDB,
        ),
        "how it began": ({"begun": ROCKSDB}, "RocksDB, as in earlier attempts", None),
        "how it began, whatever is set now": (
            {"begun": HEAP, "properties": {PROVIDER: ROCKSDB}},
            "memory, as in earlier attempts",
            ROCKSDB,
        ),
    },
)
def test_a_stream_keeps_its_state_in(
    choosing: Choosing, given: dict[str, Any], said: str, provider: str | None
) -> None:
    reason, found = choosing.choose(**given)
    assert reason.startswith(said)
    assert found == provider
