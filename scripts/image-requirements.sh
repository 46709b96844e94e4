#!/bin/sh
# Writes spark-images/requirements-*.txt: every library of the images with the hashes of its files, by constraints.txt.
# pip then installs nothing else, whatever an index answers. Needs the network; run it when constraints.txt has changed.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check pip-tools==7.6.2
for extra in operator spark; do
    "$folder/venv/bin/python" - "$extra" > "$folder/$extra.in" <<'PYTHON'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
print(*project["dependencies"], *extras["tables"], sep="\n")
print(*(library for library in extras[sys.argv[1]] if not library.startswith(project["name"])), sep="\n")
PYTHON
    cat spark-images/catalogs.txt >> "$folder/$extra.in"
    "$folder/venv/bin/pip-compile" -q --generate-hashes --allow-unsafe --strip-extras --no-header --no-annotate \
        --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
        -c constraints.txt -o "$folder/$extra.txt" "$folder/$extra.in"
    { echo "# Made by scripts/image-requirements.sh from pyproject.toml and constraints.txt."; sed '/^$/d' "$folder/$extra.txt"; } \
        > "spark-images/requirements-$extra.txt"
done
echo "setuptools==80.9.0" > "$folder/build-tools.in"
"$folder/venv/bin/pip-compile" -q --generate-hashes --allow-unsafe --no-header --no-annotate --no-emit-index-url \
    --no-emit-find-links --no-emit-trusted-host -o "$folder/build-tools.txt" "$folder/build-tools.in"
sed '/^$/d; /^#/d' "$folder/build-tools.txt" > spark-images/build-tools.txt
