"""The ``backfill`` program, which is also ``kubectl backfill`` and ``python -m backfill``."""

import sys


def main() -> None:
    """Runs the command line where it is installed: the package alone is what images have."""
    try:
        from backfill.cli.main import main as program
    except ModuleNotFoundError as error:
        sys.exit(
            f"error: {error.name} is not installed; install the command line with: pip install"
            " 'backfill-operator[cli]'"
        )
    program()


if __name__ == "__main__":
    main()
