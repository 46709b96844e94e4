"""Where the repository is: for tests of documents, scripts and generated files."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
