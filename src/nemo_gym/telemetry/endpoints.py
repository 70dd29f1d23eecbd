"""Which collector each signal goes to: settings and `OTEL_*` variables in, a checked name out.

Says what is wrong with a name before anything is sent to it. Opens no connection, and loads none
of the exporters.
"""

import os
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from nemo_gym.errors import ConfigMistake
from nemo_gym.telemetry.variables import readable

__all__ = ["Endpoint", "OtlpProtocol", "Signal"]

Signal = Literal["metrics", "traces"]
OtlpProtocol = Literal["http", "grpc"]

_ALL_SIGNALS = "OTEL_EXPORTER_OTLP_ENDPOINT"
_SETTING = "telemetry.otlp.endpoint"
_INSECURE = "OTEL_EXPORTER_OTLP_INSECURE"
_DEFAULTS: dict[OtlpProtocol, str] = {
    "grpc": "http://localhost:4317",
    "http": "http://localhost:4318",
}
_HIDDEN = "…"
# A scheme, whole or mistyped (`http:/host`, `https//host`, `//host`).
_BEFORE_HOST = re.compile(r"^(?:[a-z][a-z0-9+.-]*:/{2,}|https?[:/]+|/+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The collector of one signal, as it was named."""

    url: str | None
    """As written. None: nobody named one, so it is the standard local port."""
    named_by: str
    """The setting or the variable that it is from."""
    protocol: OtlpProtocol

    @classmethod
    def of(
        cls, configured: str | None, protocol: OtlpProtocol | None, signal: Signal
    ) -> "Endpoint":
        """Return what the configuration names, else the environment; an empty text names none."""
        own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
        sources = (
            (_SETTING, configured),
            (own, os.environ.get(own)),
            (_ALL_SIGNALS, os.environ.get(_ALL_SIGNALS)),
        )
        named_by, url = next((each for each in sources if each[1]), (_SETTING, None))
        return cls(url, named_by, protocol or _protocol(signal, url))

    @property
    def shown(self) -> str:
        """For messages: without user, password and query."""
        return _shown(self.url or _DEFAULTS[self.protocol])

    def asked(self, signal: Signal) -> str:
        """`shown`, and why it is asked over TLS where nobody wrote so."""
        if not self._by_tls_unsaid(signal):
            return self.shown
        why = f"{self.named_by} does not begin with http:// and {_INSECURE} is not true"
        return f"{self.shown} over TLS, since {why}"

    def _by_tls_unsaid(self, signal: Signal) -> bool:
        # By the specification a variable without a scheme means TLS; the setting never does.
        if self.url is None or self.named_by == _SETTING or self.protocol != "grpc":
            return False
        if self.url.lower().startswith(("http://", "https://")):
            return False
        own = readable(f"OTEL_EXPORTER_OTLP_{signal.upper()}_INSECURE", self.protocol)
        return (own or readable(_INSECURE, self.protocol)) != "true"

    def check(self) -> None:
        """Raise `ConfigMistake` where nothing can ever be sent there, whatever answers."""
        if self.url is None:
            return
        fault = _fault(self.url, self.protocol)
        if fault is None:
            return
        by_setting = self.named_by == _SETTING
        raise ConfigMistake(
            f"{_shown(self.url)!r} {fault}, so no collector can be reached there "
            f"over {'gRPC' if self.protocol == 'grpc' else 'HTTP'}",
            where=self.named_by if by_setting else f"the environment variable {self.named_by}",
            mend=_mend(self.url),
        )


def _protocol(signal: Signal, url: str | None) -> OtlpProtocol:
    own = readable(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
    named = own or readable("OTEL_EXPORTER_OTLP_PROTOCOL")
    if named:
        return "grpc" if named == "grpc" else "http"
    return "grpc" if url is not None and _port(url) == 4317 else "http"


def _port(url: str) -> int | None:
    try:
        return urlsplit(url if "//" in url else f"//{url}").port
    except ValueError:
        return None


def _fault(url: str, protocol: OtlpProtocol) -> str | None:
    """Return what is wrong with an endpoint, in words that repeat nothing of it."""
    if any(character <= " " or character == "\x7f" for character in url):
        return "holds blanks or control characters"
    if not url.lower().startswith(("http://", "https://")):
        # gRPC takes names of its own: `host:port`, `dns:///host:port`, `unix:/path`.
        return None if protocol == "grpc" else "does not begin with http:// or https://"
    try:
        parts = urlsplit(url)
    except ValueError:
        return "names no host that can be one"
    if not parts.hostname:
        return "names no host"
    return None if _has_port_or_none(parts) else "has a port that is no number up to 65535"


def _has_port_or_none(parts: SplitResult) -> bool:
    try:
        _ = parts.port
    except ValueError:
        return False
    return True


def _mend(url: str) -> str:
    """Say how to write it: as it was meant, where that can be told."""
    meant = _shown(url.strip())
    scheme = "https" if meant.lower().startswith("https") else "http"
    written = f"{scheme}://{_BEFORE_HOST.sub('', meant)}"
    if _HIDDEN not in written and _fault(written, "http") is None:
        return f"write {written}"
    return "write it as http://HOST:PORT"


def _shown(url: str) -> str:
    before, separator, after = url.partition("://")
    scheme, rest = (before, after) if separator else ("", url)
    query = min((at for at in map(rest.find, "?#") if at >= 0), default=len(rest))
    if "@" in rest[query:]:
        # A password may hold what begins a query, and a query what ends a password.
        return f"{scheme}{separator}{_HIDDEN}"
    return f"{scheme}{separator}{rest[:query].rpartition('@')[2]}"
