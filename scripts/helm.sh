#!/bin/sh
# Prints where helm is, and builds it with Go where there is none (two minutes, once for each machine).
# --no-build: fails where there is none.
set -eu
version=v3.22.0
own=${XDG_CACHE_HOME:-$HOME/.cache}/backfill-operator/helm-$version
for found in "${HELM:-}" "$(command -v helm || true)" "${KUBEBUILDER_ASSETS:+$KUBEBUILDER_ASSETS/helm}" "$own/helm"; do
    if [ -n "$found" ] && [ -x "$found" ]; then
        echo "$found"
        exit 0
    fi
done
[ "${1:-}" = --no-build ] && exit 1
command -v go >/dev/null || {
    echo "There is no helm here and no Go to build it with: install one of them, or name helm with HELM=/path/to/helm" >&2
    exit 1
}
echo "Building helm $version in $own" >&2
GOBIN=$own CGO_ENABLED=0 nice -n 10 go install -trimpath -ldflags="-s -w" "helm.sh/helm/v3/cmd/helm@$version" >&2
echo "$own/helm"
