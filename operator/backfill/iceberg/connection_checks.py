"""Checks the connections of a process that works for others.

The check is made with the connection, after its name was resolved: the address that was checked is
the one that is connected to, also after a redirect, and if a name has another address each time.
Sockets that are not Python's (those of object stores' clients and of libpq) cannot be checked here;
their servers are checked before (:func:`require_server`).
"""

import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, Final

from backfill.iceberg.allowed_addresses import Address, AddressRules, Network, refused_name
from backfill.iceberg.allowed_local_files import OutOfReach

_SERVER: Final = re.compile(
    r"(?:(?P<scheme>https?|thrift)://)?(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9.])?|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?"
)
"""A server that every library parses in the same way: no user, no query, no fragment, only ASCII.
"""
_ANY_SERVER: Final = re.compile(r"[a-z0-9+.-]+://(?:[^@/?#]*@)?(?P<hosts>[^/?#]+)", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443, "thrift": 9083, "postgresql": 5432}
_PROXIES: Final = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
)
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
_ELSEWHERE: Final = ("192.0.2.1", "2001:db8::1")
"""Addresses for documentation, which nothing is sent to."""
_FIX: Final = (
    "use another server, set planning.runIn: Pod, or have the administrator add it to"
    " --allowed-addresses"
)


class _Watch:
    """The rules of this process; None if it may connect to anything."""

    rules: AddressRules | None = None


def watch_connections(
    allowed: Iterable[Network],
    refused: Iterable[str],
    own: Iterable[Mapping[str, Any]],
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Makes this process, permanently, refuse connections
    to addresses that only the operator should reach.

    Args:
        allowed: networks that the administrator has allowed.
        refused: names or addresses of servers that are refused whatever their address is.
        own: properties of catalogs that the administrator has configured; their servers may have
            any address.
        environment: environment variables; the proxies and endpoints in them may have any address,
            too.
    """
    named = [environment[name] for name in (*_PROXIES, *_ENDPOINTS) if environment.get(name)]
    named += [str(value) for properties in own for value in properties.values()]
    servers = frozenset(server for text in named for server in _servers(text))
    closed = frozenset(
        (*_own_addresses(), *(address for host in refused for address in _resolved(host)))
    )
    first = _Watch.rules is None
    _Watch.rules = AddressRules(tuple(allowed), servers, closed)
    if first:
        # called before each connection, and cannot be removed in this process
        sys.addaudithook(_on_event)


def server_problem(text: str) -> str | None:
    """Why a property does not name a server that every
    library parses in the same way; None if it does.
    """
    found = _SERVER.fullmatch(text)
    return (
        None
        if found
        else (
            "must be the address of a server, such as https://host:port/path,"
            " without user, ?, # and spaces"
        )
    )


def require_server(name: str, text: str) -> None:
    """Checks the server that a property names, if something other than Python connects to it.

    Raises:
        OutOfReach: it is refused, or libraries could parse it as different servers.
    """
    if _Watch.rules is None:
        return
    found = _SERVER.fullmatch(text)
    if found is None:
        raise OutOfReach(f"property {name} {server_problem(text)}")
    require_host(
        f"property {name}",
        found["host"].strip("[]"),
        int(found["port"] or _PORTS.get(found["scheme"] or "", 443)),
    )


def require_host(what: str, host: str, port: int) -> None:
    """Checks a host.

    Raises:
        OutOfReach: it is refused.
    """
    rules = _Watch.rules
    if rules is None:
        return
    addresses = [str(address) for address in _resolved(host)]
    refusals = [(address, why) for address in addresses if (why := rules.refusal(address, port))]
    if refusals:
        address, why = refusals[0]
        raise OutOfReach(
            f"{what} leads to {address}, {why}, to which jobs in the operator do not connect for a"
            f" Backfill; {_FIX}"
        )
    if not addresses and (why := refused_name(host)):
        raise OutOfReach(
            f"{what} leads to {why}, to which jobs in the operator do not connect for a Backfill;"
            f" {_FIX}"
        )


def require_peer(descriptor: int) -> None:
    """Checks the other end of a connection that a library makes, before anything is sent.

    Raises:
        OutOfReach: it is refused.
    """
    if _Watch.rules is None:
        return
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        try:
            peer = connection.getpeername()
        except OSError:
            return  # not connected, and its library reports why
        _require_address(connection.family, peer)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect":
        connection, address = arguments
        _require_address(connection.family, address)


def _require_address(family: int, address: Any) -> None:
    if family not in (socket.AF_INET, socket.AF_INET6):
        raise OutOfReach(f"jobs in the operator connect to servers on the network only; {_FIX}")
    host, port = address[:2]
    rules = _Watch.rules
    if rules is not None and (why := rules.refusal(host, port)):
        shown = f"[{host}]" if ":" in host else host
        raise OutOfReach(
            f"{shown}:{port} is {why}, to which jobs in the operator do not connect for a"
            f" Backfill; {_FIX}"
        )


def _servers(text: str) -> Iterator[tuple[Address, int]]:
    """The servers in a text of an administrator."""
    found = _ANY_SERVER.match(text)
    scheme = text.partition(":")[0].partition("+")[0].lower()
    for each in (found["hosts"] if found else "").split(","):
        host, _, port = each.rpartition(":") if re.search(r":\d+$", each) else (each, "", "")
        for address in _resolved(host.strip("[]")):
            yield address, int(port or _PORTS.get(scheme, 0))


def _resolved(host: str) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    return [ip_address(str(each[4][0]).partition("%")[0]) for each in found]


def _own_addresses() -> Iterator[Address]:
    for elsewhere in _ELSEWHERE:
        with (
            suppress(OSError),
            socket.socket(
                socket.AF_INET6 if ":" in elsewhere else socket.AF_INET, socket.SOCK_DGRAM
            ) as sender,
        ):
            sender.connect((elsewhere, 9))
            yield ip_address(sender.getsockname()[0])
