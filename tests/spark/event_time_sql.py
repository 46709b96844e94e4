"""What programs of ``event_time_programs`` give, in DuckDB's SQL: with other code than Spark's, and
of all rows at once. Times are microseconds since the epoch, and the session's zone is UTC.
"""

from event_time_programs import DELAY_MINUTES, Pair, Program, Source, Step, interval_join

_MINUTE = 60_000_000
_HOUR, _DAY = 60 * _MINUTE, 24 * 60 * _MINUTE


def sql(program: Program) -> str:
    """A statement with the columns k, t, u and x. Sources are the tables ``source_<name>``."""
    match program:
        case Source(name, by_arrival):
            return f"SELECT k, {'arrived' if by_arrival else 't'} AS t, u, x FROM source_{name}"
        case Step(what, below, size, other_size, choice):
            return _STEPS[what](sql(below), size, other_size, choice)
        case Pair("union", left, right, _, _, _):
            return f"SELECT * FROM ({sql(left)}) UNION ALL SELECT * FROM ({sql(right)})"
        case Pair(_, left, right, least, length, choice):
            return _join(sql(left), sql(right), least, length, choice)
    raise AssertionError(program)


def _edges(choice: int) -> str:
    """The two times of a window or session that are chosen."""
    time = ("start", "until", "first", "last")[choice % 4]
    other = ("last", "first", "until", "start")[choice // 3]
    return f'"{time}" AS t, "{other}" AS u'


def _window(below: str, size: int, other_size: int, choice: int) -> str:
    length, slide = max(size, other_size, 5), max(min(size, other_size), 5)
    return f"""
        SELECT k, {_edges(choice)}, (x * 7 + n)::BIGINT AS x FROM (
            SELECT start, start + {length * _MINUTE} AS "until", k,
                count(*) AS n, sum(x) AS x, min(t) AS first, max(t) AS last
            FROM (
                SELECT *, t - (t - {choice % 5 * _MINUTE}) % {slide * _MINUTE} - i * {slide * _MINUTE} AS start
                FROM ({below}), range({-(-length // slide)}) AS copies(i)
            )
            WHERE t < start + {length * _MINUTE} GROUP BY ALL
        )
    """


def _calendar(below: str, size: int, other_size: int, choice: int) -> str:
    time = (
        f"t - t % {_HOUR}",
        f"t - t % {_MINUTE}",
        f"t - t % {_DAY}",
        f"t - t % {_DAY} + {_DAY}",
        "t",
        f"t - t % {_HOUR} + {_HOUR}",
    )[choice % 6]
    edge = "min" if choice > 5 else "max"
    return f"""
        SELECT k, g AS t, u, x FROM (
            SELECT k, {time} AS g, {edge}(t) AS u, count(*) AS x FROM ({below}) GROUP BY k, g
        )
    """


def _shift(below: str, size: int, other_size: int, choice: int) -> str:
    moved = f"t {'+' if choice % 2 else '-'} {size * _MINUTE}"
    if choice > 8:
        moved = f"CASE WHEN x % 2 = 0 THEN {moved} ELSE t END"
    return f"SELECT k, {moved} AS t, t AS u, x FROM ({below})"


def _where(below: str, size: int, other_size: int, choice: int) -> str:
    some = f"x % 3 <> {choice % 3}" if choice % 2 else f"u >= t AND u - t < {size * _MINUTE}"
    return f"SELECT * FROM ({below}) WHERE {some}"


def _either(below: str, size: int, other_size: int, choice: int) -> str:
    name = ("greatest", "least", "coalesce")[choice % 3]
    of_both = f"CASE WHEN u IS NULL THEN t WHEN t IS NULL THEN u ELSE {name}(u, t) END"
    return f"SELECT k, {of_both} AS t, t AS u, x FROM ({below})"


def _deduplicate(below: str, size: int, other_size: int, choice: int) -> str:
    time = "t" if choice % 2 else f"t - t % {_HOUR}"
    return f"""
        SELECT k, g AS t, g AS u, {choice} AS x FROM (SELECT DISTINCT k, {time} AS g FROM ({below}))
    """


def _explode(below: str, size: int, other_size: int, choice: int) -> str:
    return f"SELECT k, t, u, unnest([1, x]) AS x FROM ({below})"


def _session(below: str, size: int, other_size: int, choice: int) -> str:
    gap = max(size, 5) * _MINUTE
    return f"""
        SELECT k, {_edges(choice)}, x FROM (
            SELECT k, min(t) AS start, max(t) + {gap} AS "until",
                count(*) AS x, min(t) AS first, max(t) AS last
            FROM (
                SELECT *, sum(opens) OVER (PARTITION BY k ORDER BY t) AS number FROM (
                    SELECT *, (coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) > {gap}, true))::INT AS opens
                    FROM ({below}) WHERE t IS NOT NULL
                )
            )
            GROUP BY k, number
        )
    """


def _within_watermark(below: str, size: int, other_size: int, choice: int) -> str:
    """Rows of whose keys none is at most the delay before."""
    return f"""
        SELECT k, t, t AS u, 0 AS x FROM (SELECT DISTINCT k, t FROM ({below}) WHERE t IS NOT NULL)
        QUALIFY coalesce(t - lag(t) OVER (PARTITION BY k ORDER BY t) > {DELAY_MINUTES * _MINUTE}, true)
    """


def _join(left: str, right: str, least: int, length: int, choice: int) -> str:
    """What matches, and what does not where that is wanted, each by itself."""
    how, opened, closed, times = interval_join(choice)
    near = (
        f"k = k2 AND t2 {'>' if opened else '>='} t + {least * _MINUTE}"
        f" AND t2 {'<=' if closed else '<'} t + {(least + length) * _MINUTE}"
    )
    of_left = f"SELECT *, NULL::BIGINT AS k2, NULL::BIGINT AS t2, NULL::BIGINT AS u2, NULL::BIGINT AS x2 FROM a WHERE NOT EXISTS (FROM b WHERE {near})"
    of_right = f"SELECT NULL::BIGINT AS k, NULL::BIGINT AS t, NULL::BIGINT AS u, NULL::BIGINT AS x, * FROM b WHERE NOT EXISTS (FROM a WHERE {near})"
    both = f"WITH a AS ({left}), b AS (SELECT k AS k2, t AS t2, u AS u2, x AS x2 FROM ({right}))"
    if how in {"left_semi", "left_anti"}:
        there = "EXISTS" if how == "left_semi" else "NOT EXISTS"
        return f"{both} SELECT * FROM a WHERE {there} (FROM b WHERE {near})"
    parts = [f"SELECT * FROM a JOIN b ON {near}"]
    parts += [of_left] if how in {"left", "full"} else []
    parts += [of_right] if how in {"right", "full"} else []
    return f"""
        {both} SELECT coalesce(k, k2) AS k, {times[0]} AS t, {times[1]} AS u,
            coalesce(x, -1) * 31 + coalesce(x2, -2) AS x
        FROM ({" UNION ALL ".join(parts)})
    """


_STEPS = {
    function.__name__.removeprefix("_"): function
    for function in (
        _window,
        _calendar,
        _shift,
        _where,
        _either,
        _deduplicate,
        _explode,
        _session,
        _within_watermark,
    )
}
