"""The report of a comparison for people: one page that opens without a network, and runs nothing.

All texts of tables and of their users are escaped. Charts are SVG in the page, and say their
numbers in words, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from backfill.api.base import printable
from backfill.api.quantities import count as in_words
from backfill.runtime.comparison.count_matches import KINDS
from backfill.runtime.comparison.uniform_changes import (
    change_in_words,
    difference,
    side_in_words,
    side_key,
)

_WIDTH, _HEIGHT, _GAP = 960, 160, 1
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2024; --dim: #5b6470; --paper: #fff; --line: #d9dee5;
  --tile: #f4f6f8; --matching: #2f8f5b; --different: #c77700; --missing: #b3392f;
  --extra: #3b6fb6; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaed; --dim: #a0a8b3; --paper: #15181c;
  --line: #343a42; --tile: #1e2329; --matching: #58c08a; --different: #f0a53a; --missing: #f0776b;
  --extra: #7fabea; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .5rem; }
li { overflow-wrap: anywhere; }
.dim, th, figcaption { color: var(--dim); }
.verdict { font-size: 1.15rem; margin: .8rem 0 1.2rem; padding: .7rem 1rem; background: var(--tile);
  border-left: .35rem solid var(--matching); }
.verdict.short { border-color: var(--missing); }
.verdict.explained { border-color: var(--extra); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .6rem; }
.tiles div { background: var(--tile); padding: .6rem .8rem; border-top: .25rem solid var(--line); }
.tiles b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums; }
.matching { border-color: var(--matching) !important; fill: var(--matching); }
.different { border-color: var(--different) !important; fill: var(--different); }
.missing { border-color: var(--missing) !important; fill: var(--missing); }
.extra { border-color: var(--extra) !important; fill: var(--extra); }
figure { margin: 0; }
figcaption { font-size: .9rem; margin-top: .4rem; }
figcaption span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .7rem; }
span.different { background: var(--different); }
span.missing { background: var(--missing); }
span.extra { background: var(--extra); }
svg { display: block; width: 100%; height: auto; background: var(--tile); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); }
td.number, td.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
td.number { text-align: right; }
td.value { font-family: ui-monospace, monospace; overflow-wrap: anywhere; min-width: 6rem;
  max-width: 24rem; }
td.apart { font-weight: 600; }
dd { margin: 0 0 .6rem; padding: .4rem .8rem; background: var(--tile); overflow-x: auto; }
code { font-family: ui-monospace, monospace; white-space: pre; }
.null { color: var(--dim); font-style: italic; }
"""


def page(document: Mapping[str, Any]) -> str:
    """The page for a report in its stored form."""
    name = f"{document['backfill']}: {document['output']} compared with {_named(document)}"
    first = "What differs" if document["explained"] else "What to look at first"
    parts = (
        f"<h1>{_text(name)}</h1>",
        f'<p class="dim">{_text(_about(document))}</p>',
        _verdict(document),
        _keys(document),
        _tiles(document),
        _losses(document),
        _section(first, document["causes"]),
        _by_time(document),
        _by_column(document),
        *(_samples(document, kind) for kind in KINDS),
        _facts(document),
        _decision(document),
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_text(name)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, parts))
        + "\n</body></html>\n"
    )


def _about(document: Mapping[str, Any]) -> str:
    window = document["window"]
    return f"{document['table']}, rows from {window['start']} to before {window['end']}"


def _verdict(document: Mapping[str, Any]) -> str:
    rows, least = document["rows"], document["validate"]["minMatch"]
    compared = sum(rows[kind] for kind in ("matching", "different", "missing", "extra"))
    did = f"{in_words(compared, 'row')} {'matches' if compared == 1 else 'match'}"
    caption = f"{document['match']} % of {did} {side_in_words(document)}"
    enough, explained = document["reachesMinMatch"], document["explained"]
    kind = "" if enough else " explained" if explained else " short"
    limit = "not below" if enough else "below"
    check = (
        " Nearly all values that differ were changed in one way, as by a correction: check that it"
        " is the intended one."
    )
    return (
        f'<p class="verdict{kind}">{_text(caption)}, {limit} minMatch ({_text(least)} %).'
        f"{check if explained else ''}</p>"
    )


def _keys(document: Mapping[str, Any]) -> str:
    """How many keys both sides have, in a sentence."""
    if not document["validate"].get("keys"):
        return ""
    rows = document["rows"]
    both = f"{in_words(rows['matching'] + rows['different'], 'row')} with the same keys"
    kinds = [kind for kind in ("missing", "extra") if rows[kind]]
    only = ", ".join(f"{rows[kind]:,} {_words(document, kind)}" for kind in kinds)
    return f"<p>Both sides have {both}; {only or 'no key is only on one side'}.</p>"


def _tiles(document: Mapping[str, Any]) -> str:
    rows = document["rows"]
    tiles = (
        f'<div class="{kind}"><b>{rows[kind]:,}</b>{_words(document, kind)}</div>'
        for kind in ("matching", *KINDS)
    )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _losses(document: Mapping[str, Any]) -> str:
    """The rows that publishing removes without replacement, by stretches of the window."""
    losses = document["losses"]
    if losses is None or not (losses["stretches"] or losses["problem"]):
        return ""
    title = "<h2>What Replace removes without replacement</h2>"
    if losses["problem"]:
        return f"{title}<p>{_text('Unknown: ' + losses['problem'])}</p>"
    rows = []
    for each in losses["stretches"]:
        had, has = each["productionRows"], each["resultRows"]
        share = (had - has) / had
        over = "exceeds maxLoss" if each["exceedsMaxLoss"] else ""
        rows.append(
            f'<td class="time">{_text(each["start"])}</td>'
            f'<td class="time">{_text(each["end"])}</td>'
            f'<td class="number">{had:,}</td><td class="number">{has:,}</td>'
            f'<td class="number">{100 * share:.3g} %</td>'
            '<td><svg viewBox="0 0 100 12" style="width:6rem" aria-hidden="true">'
            f'<rect class="missing" width="{100 * share:.1f}" height="12"/></svg></td>'
            f"<td>{over}</td>"
        )
    further = losses["further"]
    more = f'<p class="dim">{further:,} further stretches are not listed.</p>' if further else ""
    in_all = (
        f"{in_words(losses['productionRows'], 'row')} in production, {losses['resultRows']:,} in"
        f" the result; publish.maxLoss is {losses['maxLoss']} %. Stretches of the window in which"
        " the result has fewer rows:"
    )
    names = ("from", "to before", "in production", "in the result", "fewer", "", "")
    return f"{title}<p>{_text(in_all)}</p>{_table(names, rows)}{more}"


def _section(title: str, sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    items = "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
    return f"<h2>{title}</h2><ul>{items}</ul>"


def _by_time(document: Mapping[str, Any]) -> str:
    """Bars of what does not match, over the whole window."""
    stretches, count = document["byTime"], document["stretches"]
    highest = max(stretches, key=lambda each: sum(each[kind] for kind in KINDS), default=None)
    most = 0 if highest is None else sum(highest[kind] for kind in KINDS)
    if highest is None or not most:
        return ""
    width = _WIDTH / max(count, 1)
    bars = []
    for each in stretches:
        top = float(_HEIGHT)
        caption = ", ".join(
            f"{each[kind]:,} {_words(document, kind)}" for kind in KINDS if each[kind]
        )
        shapes = []
        for kind in KINDS:
            height = (_HEIGHT - 10) * each[kind] / most
            top -= height
            shapes.append(
                f'<rect class="{kind}" x="{width * each["number"]:.2f}" y="{top:.2f}"'
                f' width="{max(width - _GAP, 0.5):.2f}" height="{height:.2f}"/>'
            )
        bars.append(
            f"<g><title>{_text(each['start'])}: {_text(caption)}</title>{''.join(shapes)}</g>"
        )
    window = document["window"]
    legend = "".join(f'<span class="{kind}"></span>{_words(document, kind)}' for kind in KINDS)
    return (
        "<h2>When rows differ</h2><figure>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Rows that do not match, by'
        f' time">{"".join(bars)}</svg>'
        f"<figcaption>{_text(window['start'])} to {_text(window['end'])}; a bar is"
        f" {_length(document['stretchSeconds'])}, the highest (from {_text(highest['start'])})"
        f" {in_words(most, 'row')}.<br>{legend}"
        "</figcaption></figure>"
    )


def _length(seconds: int) -> str:
    """A length of time that is whole hours or minutes, in words."""
    match seconds:
        case 60:
            return "a minute"
        case 3600:
            return "an hour"
    return f"{seconds // 3600:,} hours" if seconds > 3600 else f"{seconds // 60} minutes"


def _by_column(document: Mapping[str, Any]) -> str:
    columns = {name: count for name, count in document["byColumn"].items() if count}
    if not columns:
        return ""
    pairs = max(document["rows"]["different"], *columns.values())
    changes, other = {each["column"]: each for each in document["changes"]}, side_in_words(document)
    rows = []
    for name, count in sorted(columns.items(), key=lambda item: (-item[1], item[0])):
        change = changes.get(name)
        what = change_in_words(change, other) if change else ""
        part = f" in {change['rows']:,}" if change and change["rows"] < count else ""
        rows.append(
            f'<td class="value">{_text(name)}</td><td class="number">{count:,}</td>'
            '<td><svg viewBox="0 0 200 12" style="width:8rem" aria-hidden="true">'
            f'<rect class="different" width="{200 * count / pairs:.1f}" height="12"/></svg></td>'
            f"<td>{_text(what + part)}</td>"
        )
    return f"<h2>Which columns differ</h2>{_table(('column', 'rows', '', 'how'), rows)}"


def _samples(document: Mapping[str, Any], kind: str) -> str:
    words = _words(document, kind)
    samples = [each for each in document["samples"] if each["kind"] == kind]
    if not samples:
        return ""
    title = f"<h2>{words[0].upper()}{words[1:]}: {len(samples)} of {document['rows'][kind]:,}</h2>"
    if kind == "different":
        return title + _pairs(document, samples)
    side = side_key(document) if kind == "missing" else "result"
    names = list(samples[0][side])
    rows = ("".join(_value(each[side][name]) for name in names) for each in samples)
    return title + _table(names, rows)


def _pairs(document: Mapping[str, Any], samples: Sequence[Mapping[str, Any]]) -> str:
    """Pairs of rows: their keys, and the columns in which they differ."""
    rows, keys = [], document["validate"].get("keys", ())
    for each in samples:
        ours, theirs = each["result"], each[side_key(document)]
        apart = [name for name in each["differs"] if name not in keys]
        for number, name in enumerate(apart):
            shown = "".join(_value(ours[key]) if number == 0 else "<td></td>" for key in keys)
            cut = ours[name] is not None and ours[name] == theirs[name]
            where = '<br><span class="dim">differs after the part shown</span>' if cut else ""
            rows.append(
                f'{shown}<td class="value apart">{_text(name)}{where}</td>'
                f"{_value(ours[name])}{_value(theirs[name])}"
                f'<td class="number">{_text(difference(ours[name], theirs[name]))}</td>'
            )
    names = ("column", "in the result", f"in {side_in_words(document)}", "difference")
    return _table([*keys, *names], rows)


def _decision(document: Mapping[str, Any]) -> str:
    """The commands of a person who decides."""
    commands = document["commands"]
    if not commands:
        return ""
    what = {"approve": "Publish the result:", "reject": "Publish nothing, which is final:"}
    lines = "".join(
        f"<dt>{what[verb]}</dt><dd><code>{_text(command)}</code></dd>"
        for verb, command in commands.items()
    )
    note = (
        ""
        if commands["approve"].startswith("kubectl")
        else '<p class="dim">Add --state-dir if the run was started with it.</p>'
    )
    return f"<h2>If the Backfill waits for approval</h2><dl>{lines}</dl>{note}"


def _facts(document: Mapping[str, Any]) -> str:
    wanted, side, the = document["validate"], side_key(document), side_in_words(document)
    only_there = ", ".join(document.get("columnsOnlyInReference", ()))
    tolerances = (f"{name}: {value}" for name, value in wanted.get("tolerance", {}).items())
    facts = {
        "keys": ", ".join(wanted.get("keys", ())) or "none; rows are compared as a multiset",
        "ignored columns": ", ".join(wanted.get("ignore", ())) or "none",
        "tolerances": ", ".join(tolerances) or "none",
        **({"columns that only the reference has": only_there} if only_there else {}),
        "rows of the result": f"{document['rows']['result']:,}",
        f"rows of {the}": f"{document['rows'][side]:,}",
        "snapshot of the result": document["resultSnapshotId"],
        f"snapshot of {the}": document[f"{side}SnapshotId"] or "none",
        "compared at": document["comparedAt"],
    }
    rows = "".join(
        f'<tr><th scope="row">{_text(name)}</th><td>{_text(str(fact))}</td></tr>'
        for name, fact in facts.items()
    )
    return f'<h2>What was compared</h2><div class="scroll"><table>{rows}</table></div>'


def _named(document: Mapping[str, Any]) -> str:
    reference = document["validate"].get("reference")
    the = side_in_words(document)
    return f"{the} {reference['table']}" if reference else the


def _words(document: Mapping[str, Any], kind: str) -> str:
    match kind:
        case "missing":
            return f"only in {side_in_words(document)}"
        case "extra":
            return "only in the result"
    return kind


def _table(names: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in names)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )


def _value(value: str | None) -> str:
    shown = '<span class="null">null</span>' if value is None else _text(value)
    return f'<td class="value">{shown}</td>'


def _text(text: str) -> str:
    return escape(printable(text))
