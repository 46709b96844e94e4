#!/bin/sh
# plugin.sh ARCHIVE: packs `kubectl backfill` with its own Python for this platform. Works in a virtual environment of its
# own: what goes in is the extra [cli] and nothing else.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check -c constraints.txt '.[cli]' pyinstaller==6.22.0
cat > "$folder/kubectl-backfill.py" <<'PYTHON'
from backfill.__main__ import main

main()
PYTHON
# rich and typer load some of their parts by name.
"$folder/venv/bin/pyinstaller" --log-level ERROR --onedir --name kubectl-backfill --distpath "$folder/dist" --workpath "$folder/work" \
    --specpath "$folder" --collect-submodules backfill.cli --collect-submodules rich --collect-submodules typer \
    "$folder/kubectl-backfill.py"
cp LICENSE "$folder/dist/kubectl-backfill/"
tar -czf "$1" -C "$folder/dist/kubectl-backfill" .
