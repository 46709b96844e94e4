"""Names of children."""

import re

from hypothesis import given
from hypothesis import strategies as st

from backfill.kube.object_names import child_name

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
ATTEMPTS = st.integers(1, 999_999)


@given(NAMES, ATTEMPTS)
def test_a_childs_name_is_a_label_with_room_for_what_spark_appends(name: str, attempt: int) -> None:
    child = child_name(name, attempt)
    assert len(child) <= 45
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", child)


@given(NAMES, NAMES, ATTEMPTS, ATTEMPTS)
def test_no_two_attempts_share_a_name(name: str, other: str, attempt: int, another: int) -> None:
    same = child_name(name, attempt) == child_name(other, another)
    assert same == ((name, attempt) == (other, another))


def test_a_short_name_stays_readable() -> None:
    assert child_name("rmi-july-11", 3) == "rmi-july-11-a3"
    assert child_name("2024-january", 1).startswith("b-2024-january-")
