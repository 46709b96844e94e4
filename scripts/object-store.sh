#!/bin/sh
# Gets what tests of object stores and SQL catalogs need, once for each machine: an S3-compatible server (built with Go, three
# minutes), Spark's jars for S3 (from Maven Central, with their checksums) and PostgreSQL. Prints their directories, a line each.
# --gateway: the object store's server only. Another argument is a version of Spark.
set -eu
cd "$(dirname "$0")/.."
version=v1.8.0
own=${XDG_CACHE_HOME:-$HOME/.cache}/backfill-operator
gateway=$own/versitygw-$version

postgresql() {
    for found in "$(command -v initdb || true)" /usr/lib/postgresql/*/bin/initdb; do
        if [ -x "$found" ]; then
            dirname "$(readlink -f "$found")"
            return
        fi
    done
    return 1
}

need() {
    command -v "$1" >/dev/null && return
    echo "There is no $1 here: install it" >&2
    exit 1
}

if [ ! -x "$gateway/versitygw" ]; then
    need go
    # Without C it runs in every image, whatever this machine is.
    GOBIN=$gateway CGO_ENABLED=0 nice -n 10 go install -trimpath "github.com/versity/versitygw/cmd/versitygw@$version" >&2
fi
if [ "${1:-}" = --gateway ]; then
    echo "$gateway"
    exit 0
fi
jars=$(sh scripts/spark-jars.sh "$@")
if ! postgresql >/dev/null && [ -n "${CI:-}" ] && [ "$(id -u)" = 0 ]; then
    apt-get update -q >&2 && apt-get install -y -q --no-install-recommends postgresql >&2
fi
postgresql >/dev/null || need initdb
printf '%s\n' "$gateway" "$jars" "$(postgresql)"
