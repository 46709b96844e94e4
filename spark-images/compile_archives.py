"""Adds compiled code to the archives that every Python process of Spark imports PySpark from.

Without it each of them, and a streaming query starts a dozen, compiles PySpark anew. Another
version of Python than this one takes the source, which stays. The archives are the same bytes
whenever they are made.
"""

import compileall
import py_compile
import sys
import tempfile
import zipfile
from pathlib import Path

for archive in Path(sys.argv[1]).glob("*.zip"):
    with tempfile.TemporaryDirectory() as directory:
        with zipfile.ZipFile(archive) as source:
            source.extractall(directory)
        mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
        compileall.compile_dir(
            directory, quiet=1, legacy=True, stripdir=directory, invalidation_mode=mode
        )
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
            for path in sorted(path for path in Path(directory).rglob("*") if path.is_file()):
                target.writestr(
                    zipfile.ZipInfo(path.relative_to(directory).as_posix()),
                    path.read_bytes(),
                    zipfile.ZIP_DEFLATED,
                )
