"""``python -m backfill``: the command line, where the ``backfill`` program is not on the path."""

from backfill.cli.main import main

if __name__ == "__main__":
    main()
