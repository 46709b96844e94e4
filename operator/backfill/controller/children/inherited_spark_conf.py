"""Spark properties that a backfill inherits from production,
and those that its overrides may set.
"""

import re
from collections.abc import Iterator, Mapping

from backfill.api.errors import Problem
from backfill.api.manifests.problems import field_path

_Rules = tuple[tuple[str, str], ...]
"""Patterns of properties, and what to do instead of setting them."""

_FORBIDDEN: _Rules = (
    (
        r"spark\.master|spark\.submit\.deployMode|spark\.kubernetes\.(driver\.master|namespace|submission\.waitAppCompletion)",
        "remove it; the controller sets it",
    ),
    (
        r"spark\.app\.(id|name)|spark\.kubernetes\.(driver\.pod\.name|executor\.podNamePrefix)",
        "remove it; names differ for every attempt",
    ),
    (
        r"spark\.kubernetes\.(driver|executor)\.podTemplate(File|ContainerName)",
        "put the template in spec.overrides.driver and spec.overrides.executor",
    ),
    (r"spark\.dynamicAllocation\..*|spark\.executor\.instances", "set spec.scaling"),
    (
        r"spark\.(storage\.)?decommission\.enabled",
        "remove it; the number of executors changes during a run",
    ),
    (
        r"spark\.(driver|executor)\.(cores|memory)",
        "set cores and memory in spec.overrides.driver and spec.overrides.executor",
    ),
    (
        r"spark\.sql\.streaming\.checkpointLocation",
        "remove it; checkpoints are kept in the workspace",
    ),
    (
        r"spark\.sql\.streaming\.noDataMicroBatches\.enabled",
        "remove it; the plan defines the last batch",
    ),
)
_FIELDS_IN_KUBEFLOW: _Rules = (
    (
        r"spark\.kubernetes\.authenticate\..*",
        "set serviceAccount in spec.overrides.driver and spec.overrides.executor",
    ),
    (
        r"spark\.kubernetes\.((driver|executor)\.)?container\.image",
        "set image in spec.overrides.driver and spec.overrides.executor",
    ),
)
_OF_ONE_APPLICATION = re.compile(
    r"spark\.app\.(id|name)|spark\.kubernetes\.(driver\.pod\.name|executor\.podNamePrefix)"
)
_FORBIDDEN_LIVE: _Rules = (
    (
        r"spark\.master|spark\.submit\.deployMode|spark\.kubernetes\.(driver\.master|namespace|submission\.waitAppCompletion)",
        "remove it; the operator sets it",
    ),
    (
        _OF_ONE_APPLICATION.pattern,
        "remove it, and set spec.handOff.name",
    ),
    (
        r"spark\.kubernetes\.(driver|executor)\.podTemplate(File|ContainerName)",
        "put the template in spec.handOff.overrides.driver and spec.handOff.overrides.executor",
    ),
    (
        r"spark\.(driver|executor)\.(cores|memory)",
        "set cores and memory in spec.handOff.overrides.driver and spec.handOff.overrides.executor",
    ),
    (
        r"spark\.sql\.streaming\.checkpointLocation",
        "set it in the application, so that the state is written there",
    ),
    (
        r"spark\.sql\.shuffle\.partitions",
        (
            "set spec.handOff.statePartitions; queries keep the number of partitions that their"
            " state has"
        ),
    ),
)
_ONLY_IN_PRODUCTION = re.compile(
    r"spark\.(sql\.shuffle\.partitions|metrics\..*|ui\.prometheus\.enabled|remote|api\.mode)"
)


def inherited(conf: Mapping[str, str]) -> dict[str, str]:
    """Production's properties without those that name, place or measure production's own run."""
    return {
        key: value
        for key, value in conf.items()
        if not _ONLY_IN_PRODUCTION.fullmatch(key) and not _forbidding(key, _FORBIDDEN)
    }


def accepted_by_kubeflow(conf: Mapping[str, str]) -> dict[str, str]:
    """The properties that Kubeflow's Spark operator accepts;
    the others are fields of its resource.
    """
    return {key: value for key, value in conf.items() if not _forbidding(key, _FIELDS_IN_KUBEFLOW)}


def of_another_application(conf: Mapping[str, str]) -> dict[str, str]:
    """Production's properties without those that only one application can have."""
    return {key: value for key, value in conf.items() if not _OF_ONE_APPLICATION.fullmatch(key)}


def live_override_problems(conf: Mapping[str, str], *, kubeflow: bool) -> list[Problem]:
    """Problems of the overrides of a live application."""
    rules = _FORBIDDEN_LIVE + (_FIELDS_IN_KUBEFLOW if kubeflow else ())
    return list(_problems(conf, rules, ("spec", "handOff", "overrides", "sparkConf"), "here"))


def override_problems(conf: Mapping[str, str], *, kubeflow: bool) -> list[Problem]:
    """Problems of the overrides: properties that would break the run,
    or that the Spark operator refuses.
    """
    rules = _FORBIDDEN + (_FIELDS_IN_KUBEFLOW if kubeflow else ())
    return list(_problems(conf, rules, ("spec", "overrides", "sparkConf"), "for a backfill"))


def _problems(
    conf: Mapping[str, str], rules: _Rules, place: tuple[str, ...], where: str
) -> Iterator[Problem]:
    for key, value in conf.items():
        field = field_path((*place, key))
        if fix := _forbidding(key, rules):
            yield Problem(field, f'"{value}" cannot be set {where}', fix)
        elif not key.startswith("spark."):
            yield Problem(
                field,
                "is not a Spark property",
                "use a name that begins with spark.; Hadoop's properties begin with spark.hadoop.",
            )


def _forbidding(key: str, rules: _Rules) -> str:
    return next((fix for pattern, fix in rules if re.fullmatch(pattern, key)), "")
