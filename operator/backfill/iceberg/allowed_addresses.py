"""Addresses that a process that works for others may connect to. Pure.

The operator can reach places that its tenants cannot: the node's metadata service, which issues
credentials, the API server, and whatever listens on the pod's own loopback.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_KINDS: Final = {
    "a loopback address": ("127.0.0.0/8", "::1/128"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10"),
    "the address of a cloud's metadata service": (
        *("100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        *("fd00:ec2::/32", "fd20:ce::254/128"),
    ),
    "no address of a server": ("0.0.0.0/8", "::/128", "224.0.0.0/4", "240.0.0.0/4", "ff00::/8"),
}
_REFUSED: Final = [(ip_network(text), kind) for kind, texts in _KINDS.items() for text in texts]
_NAMES: Final = (
    "localhost",
    "metadata.google.internal",
    "metadata.goog",
    "instance-data.ec2.internal",
)
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), _LOCAL_NAT64, IPv6Network("::ffff:0:0:0/96"))
"""Prefixes that networks translate to IPv4 (RFC 6052, RFC 2765); the last 32 bits are the address.
"""
_COMPATIBLE: Final = IPv6Network("::/96")


@dataclass(frozen=True, slots=True)
class AddressRules:
    """Where such a process may connect to: anywhere,
    except to addresses that only the operator should reach.
    """

    allowed: tuple[Network, ...] = ()
    """Networks that the administrator has allowed."""
    servers: frozenset[tuple[Address, int]] = frozenset()
    """Addresses and ports of servers that the administrator has configured: of proxies, and of the
    operator's own catalogs.
    """
    refused: frozenset[Address] = frozenset()
    """Addresses of this pod and of the API server."""

    def refusal(self, host: str, port: int) -> str | None:
        """Why an address is refused, such as "a loopback address"; None if it is allowed.

        Args:
            host: an address, not a name.
            port: port of the server; 0 if it is unknown.
        """
        try:
            address = ip_address(host.partition("%")[0])
        except ValueError:
            return "no address"
        return next(filter(None, (self._refusal(each, port) for each in _meant(address))), None)

    def _refusal(self, address: Address, port: int) -> str | None:
        if (address, port) in self.servers or any(address in network for network in self.allowed):
            return None
        if address in self.refused:
            return "an address of the API server or of the operator"
        return next((kind for network, kind in _REFUSED if address in network), None)


def refused_name(host: str) -> str | None:
    """Why the name of a server is refused, whatever its address; None if it is not."""
    name = host.lower().rstrip(".")
    found = next((each for each in _NAMES if name == each or name.endswith(f".{each}")), None)
    return f"the name {found}" if found else None


def _meant(address: Address) -> Iterator[Address]:
    """The address, and the IPv4 address that it stands for."""
    yield address
    if isinstance(address, IPv4Address):
        return
    yield from filter(None, (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())))
    if (address in _COMPATIBLE and int(address) > 0xFFFF) or any(
        address in network for network in _TRANSLATED
    ):
        yield IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _LOCAL_NAT64 and (upper := int(address) >> 64 & 0xFFFF):
        # with a prefix of 48 bits, it is before and after the 64th
        yield IPv4Address(upper << 16 | int(address) >> 40 & 0xFFFF)
