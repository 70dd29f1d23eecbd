"""Which proxy stands before which server: environment variables in, a proxy's address out. Pure.

`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` are honoured in either case, lower case
first. `NO_PROXY` lists hosts, `host:port`, domains with or without a leading dot (either covers
what lies under them), networks such as `10.0.0.0/8`, or `*`. This machine's own loopback is never
asked for through a proxy: the servers of a run live there.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from nemo_gym.transport.address import Address, AddressInvalid, is_loopback, parse_address

__all__ = ["Proxies"]


@dataclass(frozen=True, slots=True)
class Proxies:
    """The proxies of one environment. The default has none."""

    by_scheme: Mapping[str, str] = field(default_factory=dict)
    """`http`, `https` or `all` to the proxy's URL."""
    no_proxy: tuple[str, ...] = ()

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> "Proxies":
        """Return what `environ` says."""
        found: dict[str, str] = {}
        for scheme in ("http", "https", "all", "no"):
            name = f"{scheme}_proxy"
            value = environ.get(name) or environ.get(name.upper())
            # In a CGI process HTTP_PROXY is a header that the client chose.
            if value and not (scheme == "http" and "REQUEST_METHOD" in environ):
                found[scheme] = value
        exceptions = found.pop("no", "").replace(",", " ").split()
        return cls(found, tuple(item.lower() for item in exceptions))

    def for_address(self, address: Address) -> Address | None:
        """Return the proxy before `address`, None where there is none.

        Raises `AddressInvalid` where the proxy's own URL cannot be used.
        """
        url = self.by_scheme.get(address.scheme) or self.by_scheme.get("all")
        if not url or is_loopback(address.host) or self._excepted(address):
            return None
        try:
            return parse_address(url if "://" in url else f"http://{url}")
        except AddressInvalid as problem:
            raise AddressInvalid(f"the proxy for {address.origin}: {problem}") from None

    def _excepted(self, address: Address) -> bool:
        return any(_covers(item, address) for item in self.no_proxy)


def _covers(item: str, address: Address) -> bool:
    """Say whether an entry of `NO_PROXY` is about `address`."""
    if item == "*":
        return True
    if "/" in item:
        return _in_network(address.host, item)
    host, port = _host_and_port(item)
    if port is not None and port != address.port:
        return False
    host = host.removeprefix("*").lstrip(".")
    return bool(host) and (address.host == host or address.host.endswith(f".{host}"))


def _host_and_port(item: str) -> tuple[str, int | None]:
    """Split `host`, `host:port`, `[ipv6]:port` or a bare IPv6 literal."""
    if item.startswith("["):
        host, _, rest = item[1:].partition("]")
        port = rest.removeprefix(":")
    elif item.count(":") == 1:
        host, _, port = item.partition(":")
    else:
        host, port = item, ""
    return host, int(port) if port.isdigit() else None


def _in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
