#!/bin/sh
# jars.sh POM CHECKSUMS NAME [OPTION...]: prints a directory with the jars that a POM depends on. They come from Maven Central, once for
# each machine, and must have these checksums. Options are given to Maven.
set -eu
pom=$1 name=$3
sums=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
shift 3
directory=${XDG_CACHE_HOME:-$HOME/.cache}/backfill-operator/$name-$(sha256sum "$sums" | cut -c 1-12)
if [ ! -d "$directory" ]; then
    command -v mvn >/dev/null || { echo "There is no mvn here: install it" >&2; exit 1; }
    rm -rf "$directory.part"
    nice -n 10 mvn -q -B -f "$pom" dependency:copy-dependencies "-DoutputDirectory=$directory.part" "$@" >&2
    (cd "$directory.part" && sha256sum --quiet -c "$sums") >&2
    mv "$directory.part" "$directory"
fi
echo "$directory"
