"""Reads the part of a SparkApplication that a run on this machine uses."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, ValidationError

from backfill.api.base import Model
from backfill.api.errors import InvalidManifest, Problem
from backfill.api.manifests.documents import Document
from backfill.api.manifests.problems import field_path, problems_of, read_json


class Application(Model):
    """The part of a production SparkApplication that a run on this machine uses. On a cluster, all
    of it is the template.
    """

    name: str
    """Name of the SparkApplication."""
    namespace: str = "default"
    """Namespace of the SparkApplication."""
    main_application_file: str
    """Path or URI of the main program."""
    arguments: tuple[str, ...] = ()
    """Arguments of the main program."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Spark properties, with those of ``hadoopConf`` as ``spark.hadoop.…``."""
    py_files: tuple[str, ...] = ()
    """Python files and archives that the program imports."""
    jars: tuple[str, ...] = ()
    """Jars that the program needs."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the driver."""
    manifest: dict[str, JsonValue] = Field(default_factory=dict)
    """The SparkApplication as it was given."""


class _Open(Model):
    """Part of another project's resource, most of whose fields do not matter here."""

    model_config = ConfigDict(extra="ignore")


class _Metadata(_Open):
    name: Annotated[str, Field(min_length=1)]
    namespace: str | None = None


class _Variable(_Open):
    name: str
    value: str | None = None


class _Driver(_Open):
    env: tuple[_Variable, ...] = ()
    env_vars: dict[str, str] = {}


class _Dependencies(_Open):
    py_files: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()


class _Spec(_Open):
    type: Literal["Python"] = "Python"
    main_application_file: Annotated[str, Field(min_length=1)]
    arguments: tuple[str, ...] = ()
    spark_conf: dict[str, str] = {}
    hadoop_conf: dict[str, str] = {}
    deps: _Dependencies = _Dependencies()
    driver: _Driver = _Driver()


class _SparkApplication(_Open):
    api_version: Literal["sparkoperator.k8s.io/v1beta2"]
    metadata: _Metadata
    spec: _Spec


def read_application(document: Document, base: Path, namespace: str) -> Application:
    """The application in a SparkApplication, with its files found on this machine.

    Paths are relative to ``base``, the manifest's directory; ``local:///…`` is a path in the image,
    and read as one on this machine. Environment variables that the manifest takes from elsewhere
    must be set in the caller's environment.

    Raises:
        InvalidManifest: a field is wrong, or a file of the program is not on this machine. Its
            fields begin with ``SparkApplication/<name>``.
    """
    resource = _read(document)
    application, spec = _application(resource, document, base, namespace), resource.spec
    main = application.main_application_file
    problems = (
        []
        if Path(main).is_file()
        else [_absent(("spec", "mainApplicationFile"), spec.main_application_file, main)]
    )
    problems += _absent_modules(spec.deps.py_files, base)
    if problems:
        raise InvalidManifest(_named(f"SparkApplication/{application.name}", problems))
    return application


def application_in_image(document: Document, base: Path, namespace: str) -> Application:
    """The same without looking for its files.

    Raises:
        InvalidManifest: a field is wrong.
    """
    return _application(_read(document), document, base, namespace)


def _read(document: Document) -> _SparkApplication:
    try:
        return read_json(_SparkApplication, document)
    except ValidationError as error:
        where = f"SparkApplication/{application_name(document)}"
        raise InvalidManifest(_named(where, problems_of(error, _SparkApplication))) from None


def _application(
    resource: _SparkApplication, document: Document, base: Path, namespace: str
) -> Application:
    spec, driver = resource.spec, resource.spec.driver
    return Application(
        name=resource.metadata.name,
        namespace=resource.metadata.namespace or namespace,
        main_application_file=_located(spec.main_application_file, base),
        arguments=spec.arguments,
        spark_conf=spec.spark_conf
        | {f"spark.hadoop.{key}": value for key, value in spec.hadoop_conf.items()},
        py_files=tuple(_located(file, base) for file in spec.deps.py_files),
        jars=tuple(_located(file, base) for file in spec.deps.jars),
        env=driver.env_vars
        | {variable.name: variable.value for variable in driver.env if variable.value is not None},
        manifest=document,
    )


def application_name(document: Document) -> str:
    """The name of a resource; empty if it has none."""
    return str(metadata_of(document).get("name", ""))


def metadata_of(document: Document) -> dict[str, JsonValue]:
    """The metadata of a resource; empty if it is missing or not a mapping."""
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _located(file: str, base: Path) -> str:
    for scheme in ("local://", "file://"):
        if file.startswith(scheme):
            return file.removeprefix(scheme)
    return file if "://" in file else str((base / file).resolve())


def _absent_modules(files: tuple[str, ...], base: Path) -> list[Problem]:
    """Modules whose path on this machine does not exist.

    Modules with a URI are left out, since they may be installed in another way.
    """
    paths = [_located(file, base) for file in files]
    return [
        _absent(("spec", "deps", "pyFiles", number), file, path)
        for number, (file, path) in enumerate(zip(files, paths, strict=True))
        if "://" not in path and not Path(path).exists()
    ]


def _absent(where: tuple[str | int, ...], given: str, path: str) -> Problem:
    what = " is not on this machine" if "://" in path else f": there is no file {path}"
    return Problem(field_path(where), f'"{given}"{what}', "use a path relative to the manifest")


def _named(where: str, problems: list[Problem]) -> list[Problem]:
    return [
        Problem(f"{where}: {problem.field}", problem.message, problem.fix) for problem in problems
    ]
