"""Displays what was found of an application whose Backfill does not say it."""

from itertools import groupby
from typing import Any

import yaml
from rich.console import Group, RenderableType
from rich.text import Text

from backfill.api.resolved import Resolved
from backfill.api.spec import BackfillSpec

_SHOWN = ("sources", "staticTables", "outputs", "ignoredQueries")


def render_found(spec: BackfillSpec, found: Resolved) -> RenderableType:
    """The fields of the complete spec that were found, as YAML, and the reasons for them."""
    written = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    shown: dict[str, Any] = {key: written[key] for key in _SHOWN if key in written}
    window = {key: written["window"].get(key) for key in ("warmUp", "drain")}
    window = {key: length for key, length in window.items() if length}
    shown |= {"window": window} if window else {}
    shown |= {"ordering": written["ordering"]} if "ordering" in written else {}
    lines = yaml.safe_dump(shown, sort_keys=False).splitlines()
    reasons = groupby(found.origins, key=lambda origin: origin.field)
    return Group(
        Text("found by running the main program; write any of it into the spec to change it:"),
        *(Text(f"  {line}") for line in lines),
        *(
            Text(f"  {field}: {' '.join(each.why for each in why)}", style="dim")
            for field, why in reasons
        ),
        Text(""),
    )
