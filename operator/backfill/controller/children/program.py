"""The application's main program, as the driver pod finds it."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from backfill.api.errors import Problem
from backfill.controller.children.launcher import LAUNCHER_URI

_LOCAL = "local://"


@dataclass(frozen=True, slots=True)
class Program:
    """The program to run."""

    main_file: str
    """Path in the driver pod, or the URI from which the driver fetches it."""
    arguments: tuple[str, ...]
    """Command-line arguments."""

    @classmethod
    def at(cls, uri: str, arguments: tuple[str, ...]) -> "Program":
        """The program at ``uri``, as production starts it."""
        return cls(uri.removeprefix(_LOCAL), arguments)


def program_problems(uri: str, field: str) -> list[Problem]:
    """Reasons why a main program cannot be run again."""
    scheme = urlsplit(uri).scheme
    if not uri:
        return [Problem(field, "is missing", "set the application's main program")]
    if uri == LAUNCHER_URI:
        return [
            Problem(
                field,
                f'"{uri}" is the launcher with which a Backfill starts a program, not the'
                " program itself",
                "set spec.applicationRef to the SparkApplication that this one was made from",
            )
        ]
    if scheme in ("", "file"):
        fix = (
            "use a file in the image, as local:///path, or one that pods can fetch, such as"
            " s3a://bucket/main.py"
        )
        return [
            Problem(field, f'"{uri}" is a file on the machine that submits the application', fix)
        ]
    if not uri.endswith(".py"):
        return [Problem(field, f'"{uri}" is not a Python program', "use a .py file")]
    return []
