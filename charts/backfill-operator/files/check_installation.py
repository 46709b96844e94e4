"""What `helm test` runs, as the operator's service account: does the operator answer, and may it do
what it has to?

Arguments: the URL of /healthz, and as JSON a list of rules and of the namespaces where they are to
hold ("": everywhere).
"""

import json
import os
import ssl
import sys
import time
import urllib.request
from pathlib import Path

ACCOUNT = Path(os.environ.get("SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
PATIENCE_SECONDS = 60


def health(url):
    """What the operator says of itself; it may be starting."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return response.read().decode().strip()
        except OSError as error:
            why = error
        if time.monotonic() > deadline:
            sys.exit(f"the operator is not ready at {url}: {why}")
        time.sleep(1)


def wanted(checks):
    """Everything that is asked for, one action at a time."""
    for check in checks:
        for namespace in check["namespaces"]:
            for rule in check["rules"]:
                for group in rule["apiGroups"]:
                    for resource in rule["resources"]:
                        for verb in rule["verbs"]:
                            for name in rule.get("resourceNames", [""]):
                                plural, _, subresource = resource.partition("/")
                                yield {
                                    "namespace": namespace,
                                    "group": group,
                                    "resource": plural,
                                    "subresource": subresource,
                                    "verb": verb,
                                    "name": name,
                                }


def allowed(attributes):
    """Whether the API server lets this account do it."""
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    server = (
        f"https://{f'[{host}]' if ':' in host else host}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    )
    headers = {
        "Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}",
        "Content-Type": "application/json",
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body = json.dumps({**review, "spec": {"resourceAttributes": attributes}}).encode()
    request = urllib.request.Request(server + REVIEWS, body, headers)
    context = ssl.create_default_context(cafile=ACCOUNT / "ca.crt")
    with urllib.request.urlopen(request, timeout=10, context=context) as response:
        return json.load(response)["status"]["allowed"]


def in_words(attributes):
    """An action as people say it."""
    what = "/".join(
        part
        for part in (attributes["resource"], attributes["subresource"], attributes["name"])
        if part
    )
    group = f".{attributes['group']}" if attributes["group"] else ""
    where = (
        f"in namespace {attributes['namespace']}"
        if attributes["namespace"]
        else "in all namespaces"
    )
    return f"{attributes['verb']} {what}{group} {where}"


def main():
    """Says what is missing, and ends with 1 if anything is."""
    url, checks = sys.argv[1], json.loads(sys.argv[2])
    print(f"the operator is ready: {health(url)}")
    actions = list(wanted(checks))
    missing = [in_words(action) for action in actions if not allowed(action)]
    for line in missing:
        print(f"missing permission: {line}")
    print(f"{len(actions) - len(missing)} of {len(actions)} permissions are granted")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
