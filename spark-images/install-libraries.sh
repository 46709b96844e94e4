#!/bin/sh
# install-libraries.sh EXTRA...: makes the virtual environment /opt/backfill with what the package needs for these extras,
# without the package itself: so its layer, which changes with every commit, is a small one.
set -eu
python3 -m ensurepip --version >/dev/null 2>&1 || { # Debian keeps it apart from its Python
    apt-get update -q
    apt-get install -y -q --no-install-recommends python3-venv
    rm -rf /var/lib/apt/lists/*
}
python3 -m venv /opt/backfill
/opt/backfill/bin/python - "$@" >/tmp/requirements.txt <<'PYTHON'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
print(*project["dependencies"], *(each for extra in sys.argv[1:] for each in project["optional-dependencies"][extra]), sep="\n")
PYTHON
/opt/backfill/bin/pip install --no-cache-dir --only-binary :all: --no-binary pyspark --use-pep517 \
    -c constraints.txt -r /tmp/requirements.txt -r spark-images/catalogs.txt
# Headers to compile against and tests of libraries are a fifth of what is installed, and nothing here uses them.
cd /opt/backfill/lib/python3*/site-packages
rm -rf kubernetes/aio pyarrow/include pyarrow/tests pyarrow/src numpy/_core/include numpy/*/tests pandas/tests kubernetes/e2e_test
find . -name '*.pyx' -delete -o -name '*.pxd' -delete
