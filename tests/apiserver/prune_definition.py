"""Makes the small form of a CustomResourceDefinition that stands in data/: everything but the
descriptions.

Use: ``python prune_definition.py SOURCE.yaml TARGET.json``. The Kubeflow Spark operator's is
``config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml`` of the Go module
``github.com/kubeflow/spark-operator/v2``.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml


def pruned(schema: Any, names: bool = False) -> Any:
    """The schema without descriptions; ``names`` says that the keys are fields' names, not words of
    the schema.
    """
    if isinstance(schema, list):
        return [pruned(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: pruned(part, key == "properties")
        for key, part in schema.items()
        if names or key != "description"
    }


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    target.write_text(
        json.dumps(
            pruned(yaml.safe_load(source.read_text())), sort_keys=True, separators=(",", ":")
        )
        + "\n"
    )


if __name__ == "__main__":
    main()
