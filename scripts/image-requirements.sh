#!/bin/sh
# Writes spark-images/requirements-*.txt and spark-images/*/requirements.txt: every library of the images with the hashes of its files,
# by constraints.txt. pip then installs nothing else, whatever an index answers. Needs the network; run it when constraints have changed.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check pip-tools==7.6.2
heading="# Made by scripts/image-requirements.sh from pyproject.toml and constraints."
# What differs between images for versions of Spark.
of_spark="pyspark|py4j|pyarrow"

# compiled EXTRA CONSTRAINTS: prints what an extra needs, with hashes.
compiled() {
    "$folder/venv/bin/python" - "$1" > "$folder/$1.in" <<'PYTHON'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]


def libraries(extra):
    for each in extras[extra]:
        if each.startswith(project["name"]):
            yield from libraries(each.split("[")[1].rstrip("]"))
        else:
            yield each


print(*project["dependencies"], *libraries(sys.argv[1]), sep="\n")
PYTHON
    [ "$1" = operator ] || cat spark-images/catalogs.txt >> "$folder/$1.in"
    pinned "$folder/$1.in" -c "$2"
}

# pinned FILE [OPTION...]: prints what a file asks for, with hashes.
pinned() {
    file=$1
    shift
    "$folder/venv/bin/pip-compile" -q --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host "$@" -o "$file.pinned" "$file"
    sed '/^$/d; /^#/d' "$file.pinned"
    rm "$file.pinned"
}

# of NAMES FILE: prints these libraries of a file with hashes; others NAMES FILE: prints all but these.
of() { awk -v "names=^($1)==" '/^[^ ]/ {shown = $0 ~ names} shown' "$2"; }
others() { awk -v "names=^($1)==" '/^[^ ]/ {shown = $0 !~ names} shown' "$2"; }

for extra in operator jobs; do
    { echo "$heading"; compiled "$extra" constraints.txt; } > "spark-images/requirements-$extra.txt"
done
for own in spark-images/[0-9]*; do
    spark=${own#spark-images/}
    constraints=constraints.txt
    if [ -e "$own/constraints.txt" ]; then
        constraints=$folder/constraints-$spark.txt
        sh scripts/constraints.sh "$spark" > "$constraints"
    fi
    compiled spark "$constraints" > "$folder/$spark.txt"
    { echo "$heading"; of "$of_spark" "$folder/$spark.txt"; } > "$own/requirements.txt"
    { echo "$heading"; others "$of_spark" "$folder/$spark.txt"; } > "$folder/others-$spark.txt"
    # All else is the same for every version, or has to be listed above.
    cmp "$folder/others-$spark.txt" "${first:=$folder/others-$spark.txt}"
done
cp "$first" spark-images/requirements-spark.txt
echo "setuptools==80.9.0" > "$folder/build-tools.in"
pinned "$folder/build-tools.in" > spark-images/build-tools.txt
