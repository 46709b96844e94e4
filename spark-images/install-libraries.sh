#!/bin/sh
# install-libraries.sh FILE...: makes the virtual environment /opt/backfill with the libraries of these files, without the package
# itself: so its layer, which changes with every commit, is a small one.
set -eu
python3 -m ensurepip --version >/dev/null 2>&1 || { # Debian keeps it apart from its Python
    apt-get update -q
    apt-get install -y -q --no-install-recommends python3-venv
    rm -rf /var/lib/apt/lists/*
}
python3 -m venv /opt/backfill
# Each file is one whose hash is listed, whatever the index answers; nothing is resolved here. Spark comes as sources.
/opt/backfill/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r spark-images/build-tools.txt
/opt/backfill/bin/pip install --no-cache-dir --require-hashes --no-deps --only-binary :all: --no-binary pyspark --use-pep517 \
    --no-build-isolation $(printf -- '-r %s ' "$@")
# Headers to compile against and tests of libraries are a fifth of what is installed, and nothing here uses them.
cd /opt/backfill/lib/python3*/site-packages
rm -rf kubernetes/aio pyarrow/include pyarrow/tests pyarrow/src numpy/_core/include numpy/*/tests pandas/tests kubernetes/e2e_test
find . -name '*.pyx' -delete -o -name '*.pxd' -delete
