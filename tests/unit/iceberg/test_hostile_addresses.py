"""A team that points the operator at what only the operator is near to: loopback, metadata
services, the API server.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from pyiceberg.table import Table
from refusals import refusals

from backfill.api.catalog_properties import GivenCatalog
from backfill.controller.jobs.pool import JobPool
from backfill.iceberg.allowed_addresses import AddressRules, refused_name
from backfill.iceberg.connection_checks import server_problem
from backfill.iceberg.untrusted_properties import refused
from hostile_catalog import hostile_catalog
from hostile_server import answering, hostile_server
from table_jobs import Clicks, ended
from waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.hostile

KEY = ("default", "january")
HERE = (ip_network("127.0.0.1/32"),)
"""Where these tests have what the team may use; what it may not is at other addresses of
loopback.
"""
KEYS = {
    "s3.access-key-id": "AKIATEAM",
    "s3.secret-access-key": "of-the-team",
    "s3.region": "us-east-1",
}


def said(clicks: Clicks, catalogs: Mapping[str, Mapping[str, str]], *own: str) -> dict[str, str]:
    """What a plan job in the operator says of each of these catalogs, of which ``own`` are the
    operator's.
    """
    given = {name: GivenCatalog(properties, name in own) for name, properties in catalogs.items()}
    pool = JobPool(lambda _key: given, directories=(clicks.directory,), addresses=HERE)
    sources = [
        {"name": f"s-{number}", "table": f"{name}.raw.clicks", "timestampColumn": "at"}
        for number, name in enumerate(catalogs)
    ]
    try:
        runner = pool.runner(KEY, lambda: None)
        job = clicks.plan_job("workspace", sources=sources)
        runner.start(job)
        state = ended(runner, job)
    finally:
        pool.close()
    return refusals(state, catalogs)


REFUSED = {
    "a loopback address": ["127.0.0.1", "127.255.255.254", "::1"],
    "a link-local address": [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.20.10",
        "fe80::1",
        "fe80::a9fe:a9fe%eth0",
    ],
    "metadata service": [
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
    ],
    "no address of a server": [
        "0.0.0.0",
        "0.1.2.3",
        "::",
        "224.0.0.1",
        "255.255.255.255",
        "ff02::1",
    ],
    "of the API server": ["10.96.0.1", "::ffff:10.96.0.1", "64:ff9b::a60:1"],
}
MEANT = [
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::a9fe:a9fe",
    "64:ff9b:1:a9fe:a9:fe00:808:808",
    "::ffff:0:169.254.169.254",
    "::ffff:0:7f00:1",
    "2002:7f00:1::",
    "::7f00:1",
]


@pytest.mark.parametrize(
    ("address", "why"),
    [(address, why) for why, addresses in REFUSED.items() for address in addresses],
)
def test_addresses_near_the_operator_are_refused(address: str, why: str) -> None:
    rules = AddressRules(refused=frozenset({ip_address("10.96.0.1")}))
    assert why in str(rules.refusal(address, 443))


@pytest.mark.parametrize("address", MEANT)
def test_so_are_those_that_stand_for_one(address: str) -> None:
    assert AddressRules().refusal(address, 80)


@pytest.mark.parametrize("host", ["localhost", "0x7f.1", "2130706433", "metadata", ""])
def test_a_name_in_place_of_an_address_is_refused(host: str) -> None:
    assert AddressRules().refusal(host, 80) == "no address"


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.7",
        "192.168.1.1",
        "52.216.0.1",
        "2600:9000::1",
        "fd12:3456::1",
        "64:ff9b::a00:7",
        "64:ff9b:1::a00:7",
    ],
)
def test_other_servers_are_not(address: str) -> None:
    assert AddressRules().refusal(address, 443) is None


def test_the_administrator_may_open_some() -> None:
    rules = AddressRules(
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        frozenset({(ip_address("169.254.170.2"), 80)}),
    )
    for address, port in (
        ("127.0.0.1", 1),
        ("::ffff:127.0.0.1", 1),
        ("::1", 1),
        ("169.254.170.2", 80),
    ):
        assert rules.refusal(address, port) is None
    assert rules.refusal("169.254.170.2", 81)
    assert rules.refusal("169.254.169.254", 80)


@pytest.mark.parametrize(
    "name",
    [
        "localhost",
        "LOCALHOST.",
        "x.localhost",
        "metadata.google.internal",
        "Metadata.Google.Internal.",
    ],
)
def test_names_of_metadata_services_are_refused_though_a_proxy_would_resolve_them(
    name: str,
) -> None:
    assert refused_name(name)


@pytest.mark.parametrize(
    "text",
    [
        "http://user@169.254.169.254",
        "http://good.example@169.254.169.254",
        "http://good.example\\@169.254.169.254",
        "http://169.254.169.254?.good.example",
        "http://169.254.169.254#.good.example",
        "http://169.254.169.254%2f.good.example",
        "http://\N{DIGIT ONE FULL STOP}27.0.0.1",
        "http://\N{FULLWIDTH DIGIT ONE}27.0.0.1",
        "http://127\N{IDEOGRAPHIC FULL STOP}0.0.1",
        "http:// 127.0.0.1",
        "http://127.0.0.1\n.good.example",
        " http://127.0.0.1",
        "http:/127.0.0.1",
        "http:127.0.0.1",
        "http:////127.0.0.1",
        "file:///etc/passwd",
        "gopher://127.0.0.1",
        "unix:///run/socket",
        "",
    ],
)
def test_what_libraries_could_read_as_different_servers_names_none(text: str) -> None:
    assert server_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "https://catalog",
        "http://c.lake.svc:8181/api/catalog",
        "minio:9000",
        "https://[fd12::1]:443/v1",
        "thrift://h_1:9083",
    ],
)
def test_servers_that_people_have_are_named_alike(text: str) -> None:
    assert server_problem(text) is None


def test_no_catalog_or_store_of_a_secret_is_at_an_address_near_the_operator(
    clicks: Clicks, table: Table
) -> None:
    """In each form that a resolver takes; also one that only redirects, hands out tokens or vends
    credentials.
    """
    with (
        hostile_server(answering("200 OK", "{}"), "127.0.0.2") as thief,
        hostile_catalog(table) as catalog,
    ):
        forms = (
            "127.0.0.2",
            "0x7f.2",
            "0177.0.0.2",
            "2130706434",
            "127.2",
            "[::ffff:127.0.0.2]",
            "0x7f000002",
            "[::ffff:7f00:2]",
        )
        catalogs: dict[str, Mapping[str, str]] = {
            f"uri-{number}": {"type": "rest", "uri": f"http://{host}:{thief.port}"}
            for number, host in enumerate(forms)
        }
        elsewhere = f"http://127.0.0.2:{thief.port}"
        catalogs["token"] = {
            **catalog.properties,
            "credential": "a:b",
            "oauth2-server-uri": f"{elsewhere}/token",
        }
        catalogs["database"] = {
            "type": "sql",
            "uri": f"postgresql://a:b@127.0.0.2:{thief.port}/lake",
        }
        catalogs["second"] = {
            "type": "sql",
            "uri": f"postgresql://a:b@192.0.2.1/lake?host=127.0.0.2&port={thief.port}",
        }
        found = said(clicks, catalogs)
    assert thief.requests == []
    assert set(found) == set(catalogs)
    for name, text in found.items():
        assert "to which jobs in the operator do not connect for a Backfill" in text, (name, text)


STORES: dict[str, dict[str, str]] = {
    "s3": {"s3.endpoint": "http://127.0.0.2:{port}", **KEYS},
    "s3-without-scheme": {"s3.endpoint": "127.0.0.2:{port}", **KEYS},
    "s3-with-user": {"s3.endpoint": "http://192.0.2.1@127.0.0.2:{port}", **KEYS},
    "s3-region": {
        "s3.endpoint": "http://192.0.2.1",
        **KEYS,
        "s3.region": "x@127.0.0.2:{port}/",
    },
    "gs": {
        "gcs.service.host": "http://127.0.0.2:{port}",
        "gcs.oauth2.token": "t",
        "gcs.oauth2.token-expires-at": "9999999999999",
    },
    "abfss-account": {
        "adls.account-name": "127.0.0.2:{port}/",
        "adls.account-key": "a2V5",
        "adls.blob-storage-scheme": "http",
    },
    "abfss-authority": {
        "adls.account-name": "acct",
        "adls.account-key": "a2V5",
        "adls.blob-storage-scheme": "http",
        "adls.dfs-storage-scheme": "http",
        "adls.blob-storage-authority": "127.0.0.2:{port}",
        "adls.dfs-storage-authority": "127.0.0.2:{port}",
    },
}
"""By scheme, and what is special. The port is that of a server near the operator."""
STORE_REFUSALS = ("do not connect", "must be the address of a server", "must consist of letters")


@pytest.mark.parametrize("by", ["Secret", "server", "vended"])
def test_no_object_store_is_at_an_address_near_the_operator(
    clicks: Clicks, table: Table, by: str
) -> None:
    with hostile_server(answering("403 Forbidden"), "127.0.0.2") as thief, ExitStack() as servers:
        catalogs: dict[str, Mapping[str, str]] = {}
        for name, where in STORES.items():
            catalog = servers.enter_context(hostile_catalog(table))
            properties = {key: value.format(port=thief.port) for key, value in where.items()}
            for snapshot in catalog.metadata["snapshots"]:
                snapshot["manifest-list"] = f"{name.partition('-')[0]}://lake/list.avro"
            if by == "vended":
                catalog.credentials = [{"prefix": catalog.metadata_location, "config": properties}]
            elif by == "server":
                catalog.overrides = properties
            given = properties if by == "Secret" else {}
            catalogs[name] = {**catalog.properties, **given}
        found = said(clicks, catalogs)
    assert thief.requests == []
    assert set(found) == set(STORES)
    for name, text in found.items():
        assert any(reason in text for reason in STORE_REFUSALS), (name, text)


def test_no_redirect_is_followed(clicks: Clicks) -> None:
    statuses = ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect")
    with hostile_server(answering("200 OK", "{}"), "127.0.0.2") as thief, ExitStack() as servers:
        location = f"Location: http://127.0.0.2:{thief.port}/latest/meta-data"
        made = {
            f"status-{status[:3]}": servers.enter_context(
                hostile_server(answering(status, "", location))
            )
            for status in statuses
        }
        found = said(
            clicks, {name: {"type": "rest", "uri": each.uri} for name, each in made.items()}
        )
    assert thief.requests == []
    assert set(found) == set(made)
    for name, catalog in made.items():
        assert catalog.requests, name
        assert "latest" not in found[name]


def test_no_redirect_of_an_object_store_leads_near_the_operator(
    clicks: Clicks, table: Table
) -> None:
    """PyArrow's client of S3 follows redirects, to any server, and reads what that answers as the
    file.
    """
    statuses = ("301 Moved", "307 Temporary Redirect", "308 Permanent Redirect")
    with (
        hostile_server(answering("200 OK", "{}"), "127.0.0.2") as thief,
        hostile_catalog(table) as catalog,
        ExitStack() as servers,
    ):
        location = f"Location: http://127.0.0.2:{thief.port}/latest/meta-data"
        for snapshot in catalog.metadata["snapshots"]:
            snapshot["manifest-list"] = "s3://lake/list.avro"
        made = {
            f"status-{status[:3]}": servers.enter_context(
                hostile_server(answering(status, "", location))
            )
            for status in statuses
        }
        found = said(
            clicks,
            {
                name: {**catalog.properties, **KEYS, "s3.endpoint": store.uri}
                for name, store in made.items()
            },
        )
    assert thief.requests == []
    assert set(found) == set(made)
    for name, store in made.items():
        assert store.requests, name
        assert "latest" not in found[name]


def test_a_catalog_of_the_operators_own_may_be_on_its_loopback(
    clicks: Clicks, table: Table
) -> None:
    """And stays closed to Backfills that do not use it."""
    with hostile_catalog(table) as catalog:
        uri = catalog.uri
        closed = {"type": "rest", "uri": f"http://127.0.0.2:{uri.rpartition(':')[2]}"}
        assert said(clicks, {"lake": {"type": "rest", "uri": uri}}, "lake") == {}
        assert "do not connect" in said(clicks, {"lake": closed})["lake"]


_REBINDING = """
import json, socket, sys
from ipaddress import ip_network
from backfill.api.catalog_properties import GivenCatalog
from backfill.iceberg.connection_checks import watch_connections
from backfill.iceberg.catalogs import open_catalog, work_for_others
order, said = json.load(sys.stdin), {}
given = {name: GivenCatalog(properties) for name, properties in order["catalogs"].items()}
work_for_others(given, ())
resolve, asked = socket.getaddrinfo, set()
def rebinding(host, *arguments, **options):
    first, _ = host not in asked, asked.add(host)
    return resolve("192.0.2.1" if first else "127.0.0.2", *arguments, **options)
socket.getaddrinfo = rebinding
for name in given:
    try:
        said[name] = str(open_catalog(name))
    except Exception as error:
        said[name] = f"{type(error).__name__} {error}"
print(json.dumps(said))
"""
"""A resolver that gives a harmless address when it is asked first; libpq has a resolver of its
own.
"""


def test_a_name_that_has_another_address_when_it_is_connected_to(clicks: Clicks) -> None:
    with hostile_server(answering("200 OK", "{}"), "127.0.0.2") as thief:
        catalogs = {
            "rest": {"type": "rest", "uri": f"http://rebinding.example:{thief.port}"},
            "tls": {"type": "rest", "uri": f"https://tls.example:{thief.port}"},
            "database": {"type": "sql", "uri": f"postgresql://a:b@127.0.0.2:{thief.port}/lake"},
        }
        order = json.dumps({"catalogs": catalogs})
        ended = subprocess.run(
            [sys.executable, "-c", _REBINDING],
            input=order,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        found: dict[str, str] = json.loads(ended.stdout)
    assert not any(thief.requests), "libpq may connect, but sends nothing"
    for name, text in found.items():
        assert text.startswith("OutOfReach 127.0.0.2:"), (name, text)


def test_the_operators_own_address_is_near_it(clicks: Clicks) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        try:
            sender.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        address = sender.getsockname()[0]
    with hostile_server(answering("200 OK", "{}"), address) as server:
        found = said(clicks, {"lake": {"type": "rest", "uri": f"http://{address}:{server.port}"}})
    assert server.requests == []
    assert "of the API server or of the operator" in found["lake"]


def test_the_api_server_is_refused_by_its_address(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    found = said(clicks, {"lake": {"type": "rest", "uri": "https://10.96.0.1"}})
    assert "leads to 10.96.0.1, an address of the API server or of the operator" in found["lake"]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"s3.region": "us-east-1.evil.example#"}, "s3.region"),
        ({"client.region": "us-east-1/"}, "client.region"),
        ({"adls.account-name": "169.254.169.254/"}, "adls.account-name"),
        ({"s3.proxy-uri": "http://169.254.169.254"}, "s3.proxy-uri"),
        ({"type": "sql", "uri": "postgresql://db\\evil/lake"}, "must contain a host"),
        (
            {"type": "sql", "uri": "postgresql://db/lake?hostaddr=169.254.169.254"},
            "parameter hostaddr",
        ),
    ],
    ids=str,
)
def test_parts_of_servers_names_are_names(properties: dict[str, Any], said: str) -> None:
    wrong = refused({"type": "rest", "uri": "https://catalog"} | properties)
    assert said in f"{wrong[0].name} {wrong[0].why}"
