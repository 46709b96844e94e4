#!/bin/sh
# Gets what tests against Kafka need, once for each machine, from Maven Central with their checksums: the jars of a broker, and Spark's
# jars for Kafka. Prints their directories, a line each.
set -eu
cd "$(dirname "$0")/.."
own=${XDG_CACHE_HOME:-$HOME/.cache}/backfill-operator

# get POM CHECKSUMS NAME: prints a directory with the dependencies of a POM
get() {
    directory=$own/$3-$(sha256sum "$2" | cut -c 1-12)
    if [ ! -d "$directory" ]; then
        command -v mvn >/dev/null || { echo "There is no mvn here: install it" >&2; exit 1; }
        rm -rf "$directory.part"
        nice -n 10 mvn -q -B -f "$1" dependency:copy-dependencies "-DoutputDirectory=$directory.part" >&2
        (cd "$directory.part" && sha256sum --quiet -c "$OLDPWD/$2") >&2
        mv "$directory.part" "$directory"
    fi
    echo "$directory"
}

get tests/support/kafka/pom.xml tests/support/kafka/jars.sha256 kafka
get spark-images/jars/pom.xml spark-images/jars/jars.sha256 jars
