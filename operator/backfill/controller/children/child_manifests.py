"""The child of an attempt, for any Spark operator: its problems, its manifests, and a preview."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import yaml

from backfill.api.backfill import Backfill
from backfill.api.errors import InvalidManifest, Problem
from backfill.api.manifests.problems import did_you_mean
from backfill.controller.children.apache import API_VERSION as APACHE
from backfill.controller.children.apache import Apache
from backfill.controller.children.dialect import Dialect, owned
from backfill.controller.children.kubeflow import API_VERSION as KUBEFLOW
from backfill.controller.children.kubeflow import Kubeflow
from backfill.controller.children.launcher import launcher_config_map
from backfill.controller.children.live_manifests import deploys, live_problems
from backfill.controller.driver import Launch
from backfill.kube.object_names import APPLICATION_LABEL, attempt_labels
from backfill.kube.resources import Manifest
from backfill.planning.plan import plan_directory
from backfill.planning.workspace import Workspace, checkpoints
from backfill.protocol.driver_settings import SETTINGS_VARIABLE

_DIALECTS: Final[Mapping[str, Dialect]] = {KUBEFLOW: Kubeflow(), APACHE: Apache()}
CHILD_RESOURCES: Final = tuple(dialect.resource for dialect in _DIALECTS.values())
"""Where children may be."""
_CATALOG_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?")
_MOST_SETTINGS_BYTES = 120_000
"""Linux accepts no environment variable longer than 128 KiB."""
_UNPLANNED = "not-planned-yet"


class _Dumper(yaml.SafeDumper):
    """Writes programs line by line, and no aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style="|" if "\n" in value else None
    )


_Dumper.add_representer(str, _text)


def dialect(api_version: str) -> Dialect:
    """The dialect for the SparkApplications of an API version.

    Raises:
        InvalidManifest: no supported Spark operator has this API version.
    """
    found = _DIALECTS.get(api_version)
    if found is None:
        fix = did_you_mean(api_version, _DIALECTS) or f"use one of {', '.join(_DIALECTS)}"
        raise InvalidManifest(
            Problem("spec.applicationRef.apiVersion", f'"{api_version}" is not supported', fix)
        )
    return found


def child_manifests(launch: Launch, production: Manifest) -> list[Manifest]:
    """The objects to create for an attempt, in this order:
    the launcher's ConfigMap, and the child that mounts it.

    :func:`child_problems` says whether there can be a child. The same arguments give the same
    manifests.
    """
    child = dialect(production["apiVersion"]).child(production, launch)
    child["metadata"]["labels"][APPLICATION_LABEL] = application_digest(production)
    name, namespace = child["metadata"]["name"], child["metadata"]["namespace"]
    labels = attempt_labels(launch.backfill.metadata.name, launch.attempt)
    metadata = {"name": name, "namespace": namespace, "labels": labels} | owned(launch.backfill)
    return [launcher_config_map(metadata), child]


def application_digest(production: Manifest) -> str:
    """A text that changes with the spec of a SparkApplication, usable as a label."""
    spec = json.dumps(production.get("spec"), sort_keys=True)
    return hashlib.sha256(spec.encode()).hexdigest()[:16]


def child_problems(
    backfill: Backfill, production: Manifest, default_workspace: str | None = None
) -> list[Problem]:
    """Every reason, as far as it can be found without a cluster, why there can be no child of this
    production SparkApplication.

    ``default_workspace`` is the location of Backfills whose spec names no workspace.
    """
    speech = dialect(production.get("apiVersion", ""))
    problems = [*speech.problems(production, backfill), *_catalog_problems(backfill)]
    if deploys(backfill):
        problems += [*live_problems(production, backfill), *speech.live_problems(backfill)]
    if problems:
        return problems
    child = speech.child(production, preview_launch(backfill, default_workspace))
    driver, executor = speech.pods(child)
    workspace = backfill.spec.workspace or default_workspace
    return [*_workspace_problems(workspace, driver, executor), *_size_problems(driver)]


def preview_launch(backfill: Backfill, default_workspace: str | None = None) -> Launch:
    """The next attempt as it would be started now,
    with placeholders for what only planning finds out.
    """
    status, metadata = backfill.status, backfill.metadata
    base = backfill.spec.workspace or default_workspace or ""
    place = (
        Workspace.of(backfill, status.workspace)
        if status.workspace
        else Workspace.below(
            base, backfill.spec.workspace_catalog, metadata.namespace, metadata.name
        )
    )
    plan_id = status.plan_id or _UNPLANNED
    number = status.attempts[-1].number + 1 if status.attempts else 1
    return Launch(
        number,
        backfill,
        plan_id,
        plan_directory(place, status.newest_plan_id or plan_id),
        checkpoints(place).child(metadata.uid),
    )


def render(backfill: Backfill, production: Manifest, default_workspace: str | None = None) -> str:
    """The manifests of the next attempt as YAML documents.

    Raises:
        InvalidManifest: there can be none; with every reason.
    """
    if problems := child_problems(backfill, production, default_workspace):
        raise InvalidManifest(problems)
    launch = preview_launch(backfill, default_workspace)
    return yaml.dump_all(child_manifests(launch, production), Dumper=_Dumper, sort_keys=False)


def _catalog_problems(backfill: Backfill) -> Iterator[Problem]:
    for number, catalog in enumerate(backfill.spec.catalogs):
        if catalog.secret_ref and not _CATALOG_NAME.fullmatch(catalog.name):
            message = (
                f'"{catalog.name}" cannot have a Secret: its name must be usable in an environment'
                " variable"
            )
            yield Problem(
                f"spec.catalogs[{number}].name",
                message,
                "use only letters, digits and '-' in its name",
            )


def _workspace_problems(
    workspace: str | None, driver: Manifest, executor: Manifest
) -> Iterator[Problem]:
    field, fix = (
        "spec.workspace",
        "use an object store prefix, or a directory on a volume that driver and executors mount",
    )
    if not workspace:
        yield Problem(field, "is missing", fix)
    elif urlsplit(workspace).scheme in ("", "file"):
        path = PurePosixPath(workspace.removeprefix("file://"))
        for role, template in (("driver", driver), ("executors", executor)):
            if not _shares(template, path):
                yield Problem(
                    field,
                    f'"{workspace}" is not on a volume of the {role} that other pods share',
                    fix,
                )


def _shares(template: Manifest, path: PurePosixPath) -> bool:
    spec = template["spec"]
    shared = {volume["name"] for volume in spec.get("volumes", []) if "emptyDir" not in volume}
    mounts = [
        mount for container in spec["containers"][:1] for mount in container.get("volumeMounts", [])
    ]
    return any(
        mount["name"] in shared and path.is_relative_to(mount["mountPath"]) for mount in mounts
    )


def _size_problems(driver: Manifest) -> Iterator[Problem]:
    variables = [
        variable
        for container in driver["spec"]["containers"]
        for variable in container.get("env", [])
    ]
    settings = next(
        variable["value"] for variable in variables if variable["name"] == SETTINGS_VARIABLE
    )
    if len(settings.encode()) > _MOST_SETTINGS_BYTES:
        largest = max(json.loads(settings).items(), key=lambda item: len(json.dumps(item[1])))[0]
        message = (
            f"produces driver settings of {len(settings.encode()):,} bytes, mostly {largest}; the"
            f" limit is {_MOST_SETTINGS_BYTES:,} bytes"
        )
        yield Problem(
            "spec", message, "shorten filters, Avro schemas and the application's arguments"
        )
