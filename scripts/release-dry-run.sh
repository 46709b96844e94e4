#!/bin/sh
# release-dry-run.sh FOLDER: makes in FOLDER what a release publishes, apart from images and signatures, and tries each part: the
# wheel and the source archive, the chart, the kubectl plugin of this platform with its krew manifest, and the list of components.
set -eu
cd "$(dirname "$0")/.."
folder=$1
python=${PYTHON:-python3}
rm -rf "$folder"
mkdir -p "$folder/dist"
"$python" -m venv "$folder/venv"
pip() { "$folder/venv/bin/python" -m pip -q --disable-pip-version-check "$@"; }
pip install build==1.6.1 cyclonedx-bom==7.5.0 -c constraints.txt pyyaml
version=$("$folder/venv/bin/python" -c 'import re; print(re.search(r"__version__ = \"(.+)\"", open("operator/backfill/__init__.py").read())[1])')

echo "Building the wheel and the source archive"
"$folder/venv/bin/python" -m build -o "$folder/dist" . >"$folder/build.log" 2>&1 || { cat "$folder/build.log"; exit 1; }
"$python" -m venv "$folder/installed"
"$folder/installed/bin/python" -m pip install -q --disable-pip-version-check -c constraints.txt "$(echo "$folder"/dist/*.whl)[cli]"
[ "$("$folder/installed/bin/backfill" version)" = "$version" ]

echo "Listing its components"
"$folder/venv/bin/cyclonedx-py" environment --of JSON -o "$folder/dist/sbom.cdx.json" "$folder/installed/bin/python"

echo "Packing the chart"
"$(sh scripts/helm.sh)" package charts/backfill-operator -d "$folder/dist" >/dev/null

echo "Packing the plugin"
platform=$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
sh scripts/plugin.sh "$folder/dist/backfill-$platform.tar.gz"
mkdir "$folder/plugin"
tar -xzf "$folder/dist/backfill-$platform.tar.gz" -C "$folder/plugin"
"$folder/plugin/kubectl-backfill" version >/dev/null
"$folder/venv/bin/python" scripts/release.py plugin "v$version" --at "https://example.com/v$version" \
    "$folder/dist/backfill-$platform.tar.gz" > "$folder/dist/backfill.yaml"

(cd "$folder/dist" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
"$folder/venv/bin/python" scripts/release.py check "v$version" || echo "(before the release of v$version: see above)"
