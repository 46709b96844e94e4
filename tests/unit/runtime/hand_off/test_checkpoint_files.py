"""The files of a checkpoint that is handed over."""

import json

import pytest

from backfill.api.errors import BackfillError
from backfill.runtime.hand_off.checkpoint_format import (
    SHUFFLE_PARTITIONS,
    conf_of,
    is_stateful,
    last_batch,
    needed,
    sources_of,
    with_sources,
)

ENTRY = "\n".join(
    [
        "v1",
        '{"batchWatermarkMs":5,"batchTimestampMs":6,"conf":{"spark.sql.shuffle.partitions":"2"}}',
        '{"offset":8,"timestamp":4}',
        f'{{"offset":8,"timestamp":{(1 << 40) + 4}}}',
    ]
)
SOURCES = ("events", "clicks")


def test_the_last_batch_of_history_is_the_flush() -> None:
    assert last_batch(["9", "10", ".10.crc", ".11.tmp"], steps=10) == 10


@pytest.mark.parametrize("commits", [[], ["8"], ["9"], ["9", "10", "11"]])
def test_a_checkpoint_whose_flush_is_not_its_last_commit_is_refused(commits: list[str]) -> None:
    with pytest.raises(BackfillError, match="the next attempt commits it"):
        last_batch(commits, steps=10)


def test_of_logs_two_entries_and_of_state_the_newest_version_are_needed() -> None:
    files = [
        "metadata",
        *(f"{log}/{batch}" for log in ("offsets", "commits") for batch in (7, 8, 9)),
        "offsets/9.crc",
        "offsets/.9.crc",
        "state/0/_metadata/metadata",
        *(f"state/0/1/left/{version}.changelog" for version in range(6, 12)),
        "state/0/1/left/6.zip",
        "state/0/1/left/8.zip",
        "state/0/1/left/SSTs/a.sst",
        "state/0/0/right/1.delta",
        "state/0/0/right/2.delta",
        "sources/0/0",
    ]
    assert sorted(needed(files, 9)) == sorted(
        [
            "metadata",
            "offsets/8",
            "offsets/9",
            "offsets/9.crc",
            "commits/8",
            "commits/9",
            "state/0/_metadata/metadata",
            "state/0/1/left/8.changelog",
            "state/0/1/left/9.changelog",
            "state/0/1/left/10.changelog",
            "state/0/1/left/8.zip",
            "state/0/1/left/SSTs/a.sst",
            "state/0/0/right/1.delta",
            "state/0/0/right/2.delta",
        ]
    )
    assert is_stateful(files)
    assert not is_stateful(["metadata", "offsets/9"])


def test_sources_get_other_offsets_and_the_rest_of_the_entry_stays() -> None:
    assert sources_of(ENTRY, 3, SOURCES) == ["events", "clicks"]
    assert sources_of(ENTRY, 3, SOURCES[::-1]) == ["clicks", "events"]
    changed = with_sources(ENTRY, ['{"e":{"0":1}}', '{"c":{"0":2}}'], {SHUFFLE_PARTITIONS: "9"})
    version, metadata, *offsets = changed.split("\n")
    assert (version, offsets) == ("v1", ['{"e":{"0":1}}', '{"c":{"0":2}}'])
    assert json.loads(metadata) == {
        "batchWatermarkMs": 5,
        "batchTimestampMs": 6,
        "conf": {SHUFFLE_PARTITIONS: "9"},
    }
    assert conf_of(changed) == {SHUFFLE_PARTITIONS: "9"}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (ENTRY.replace("v1", "v2"), "the format v2, and only v1 is supported"),
        (ENTRY.replace(":4}", ":3}"), "read 3 steps of events"),
        (ENTRY.replace('{"offset":8,"timestamp":4}', "-"), "not one of history: -"),
        (ENTRY.replace('"timestamp":4', '"raw":{}'), "not one of history: .*raw"),
        (ENTRY.replace(":4}", f":{(2 << 40) + 4}}}"), "not one of history: .*2199023255556"),
    ],
)
def test_an_entry_that_is_not_that_of_the_flush_is_not_changed(entry: str, problem: str) -> None:
    with pytest.raises(BackfillError, match=problem):
        sources_of(entry, 3, SOURCES)
