"""``backfill init`` for an application of a cluster. What its program does comes from a driver that is
not started here.
"""

from pathlib import Path

import pytest
from kubernetes.config import kube_config
from rest import SPARK_APPLICATIONS, Rest
from test_plans import PRODUCTION

from backfill.api.errors import BadInput
from backfill.api.manifests.backfill_manifest import load_manifests
from backfill.cli.init import propose_backfill
from backfill.protocol.survey_result import Survey, SurveyedInput, SurveyedQuery
from manifests import changed

pytestmark = pytest.mark.usefixtures("crds")
WINDOW = "2024-03-01/2024-03-02"


def test_a_backfill_is_proposed_for_an_application_of_the_cluster(
    admin: Rest,
    namespace: str,
    cluster_admin: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # what KUBECONFIG is when the library is imported
    monkeypatch.setattr(kube_config, "KUBE_CONFIG_DEFAULT_LOCATION", str(cluster_admin))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    survey = Survey(
        inputs=(SurveyedInput(kind="Topic", name="clicks"),),
        queries=(SurveyedQuery(name="hourly", inputs=("clicks",)),),
    )
    monkeypatch.setattr(
        "backfill.controller.proposing.survey_program.ask",
        lambda *_: survey.model_dump_json(by_alias=True).encode(),
    )
    in_its_image = {
        "spec.mainApplicationFile": "local:///opt/app/main.py",
        "spec.deps": {"pyFiles": ["local:///opt/app/lib.zip"]},
    }
    name = PRODUCTION["metadata"]["name"]
    admin.create(SPARK_APPLICATIONS.format(namespace), changed(PRODUCTION, in_its_image)).expect()
    main, proposed = tmp_path / "main.py", tmp_path / "b.yaml"
    main.write_text("")

    with pytest.raises(BadInput, match=f"of that name .* in namespace {namespace} of the cluster"):
        propose_backfill("other", WINDOW, proposed, namespace, main)

    assert propose_backfill(name, WINDOW, proposed, namespace, main) == 0
    assert "then run: kubectl backfill plan " in capsys.readouterr().err
    found = load_manifests(proposed, require_application=False)
    assert found.application is None, "the cluster has it"
    backfill = found.backfill
    assert (backfill.metadata.namespace, backfill.spec.application_ref.name) == (namespace, name)
