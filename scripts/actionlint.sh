#!/bin/sh
# Checks .github/workflows with actionlint, which is built with Go where it is missing (a minute, once for each machine).
set -eu
cd "$(dirname "$0")/.."
version=v1.7.12
own=${XDG_CACHE_HOME:-$HOME/.cache}/backfill-operator/actionlint-$version
found=$(command -v actionlint || echo "$own/actionlint")
if [ ! -x "$found" ]; then
    command -v go >/dev/null || {
        echo "There is no actionlint here and no Go to build it with: install one of them" >&2
        exit 1
    }
    echo "Building actionlint $version in $own" >&2
    GOBIN=$own CGO_ENABLED=0 nice -n 10 go install -trimpath -ldflags="-s -w" "github.com/rhysd/actionlint/cmd/actionlint@$version" >&2
fi
exec "$found" -color=false
