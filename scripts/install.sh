#!/bin/sh
# Makes .venv with everything the project needs, and sees to it that a Java 17+ is there. Does nothing when all is done.
# With SPARK=4.1 or another line that is supported, it makes .venv-4.1 with that Spark instead of the newest.
set -eu
cd "$(dirname "$0")/.."

spark=${SPARK:-}
pins=${spark:+spark-images/$spark/constraints.txt}
if [ -n "$spark" ] && [ ! -e "$pins" ]; then
    echo "SPARK is $spark: set it to 3.5, 4.0, 4.1 or 4.2, or omit it for the newest" >&2
    exit 1
fi
venv=.venv${spark:+-$spark}

find_python() {
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        [ -n "$candidate" ] || continue
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$candidate"; return; }
    done
    echo "Python 3.11 or newer is needed: install it, or name it with PYTHON=/path/to/python3 make ..." >&2
    exit 1
}

java_is_enough() {
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
    [ "${version:-0}" -ge 17 ]
}

apt_can_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

install_with_apt() {
    apt_can_install || return 1
    apt-get install -y -q "$@" >/dev/null 2>&1 || { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q "$@" >/dev/null; }
}

if ! java_is_enough; then
    ! apt_can_install || echo "No Java 17 or newer found: installing openjdk-17-jre-headless by apt-get (about a minute)"
    if ! install_with_apt openjdk-17-jre-headless || ! java_is_enough; then
        echo "Spark needs Java 17 or newer: install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME" >&2
        exit 1
    fi
fi

python=$(find_python)
wanted=$("$python" -c 'import hashlib, pathlib, sys
text = sys.version.encode() + b"".join(pathlib.Path(name).read_bytes() for name in ["pyproject.toml", "constraints.txt", "scripts/install.sh", *sys.argv[1:]])
print(hashlib.sha256(text + str(pathlib.Path.cwd()).encode()).hexdigest())' ${pins:+"$pins"})
[ "$(cat "$venv/installed" 2>/dev/null)" = "$wanted" ] && exit 0

echo "Making the virtual environment in $venv (about two minutes)"
rm -rf "$venv"
if ! "$python" -m venv "$venv" 2>/dev/null; then
    version=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    rm -rf "$venv"
    install_with_apt "$version" && "$python" -m venv "$venv" || {
        echo "$python has no venv module: install it (Debian: apt-get install $version)" >&2
        exit 1
    }
fi
constraints=constraints.txt
if [ -n "$spark" ]; then
    constraints=$venv/constraints.txt
    sh scripts/constraints.sh "$spark" > "$constraints"
fi
"$venv/bin/python" -m pip install -q --disable-pip-version-check -c "$constraints" -e '.[spark,operator,cli,dev]'
"$venv/bin/python" spark-images/compile_archives.py "$venv"/lib/python3*/site-packages/pyspark/python/lib
echo "$wanted" > "$venv/installed"
