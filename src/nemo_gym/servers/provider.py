"""A model provider as a model server knows it: where it is, what it speaks, whose key it takes.

Plain values, made from the settings of a model server; the forwarder reads them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import orjson
from pydantic import ConfigDict, Field

from nemo_gym.capture.hiding import credentials_of, looks_secret
from nemo_gym.config.secrets import collect_secrets
from nemo_gym.errors import ConfigMistake
from nemo_gym.servers.forward_body import Members
from nemo_gym.servers.model import BaseResponsesAPIModelConfig
from nemo_gym.transport.address import Address, AddressInvalid, parse_address
from nemo_gym.transport.http import Limits
from nemo_gym.transport.retry import RetryRule
from nemo_gym.wire.dialects import DialectName

__all__ = ["MODEL_TYPES_BY_DIALECT", "BaseURL", "Key", "Provider", "ProviderConfig", "key_problem"]

BaseURL = Annotated[
    str,
    Field(
        pattern=r"^\s*(?i:https?)://[^\s/?#]"
        r"(?![^\s?#]*/(?:responses|(?:chat/)?completions|messages)/*\s*(?:[?#]|$))",
        description="an http:// or https:// URL without a route (/responses, /chat/completions, "
        "/messages) at its end",
    ),
]
"""Where a provider is; what else is wrong with one is told when its server is built.

A config class that has one says `regex_engine="python-re"`, as `ProviderConfig` does.
"""

MODEL_TYPES_BY_DIALECT: Mapping[DialectName, tuple[str, ...]] = {
    "responses": ("openai_model", "vllm_model", "local_model"),
    "chat": ("openai_model", "vllm_model", "local_model"),
    "messages": ("anthropic_model", "vllm_model", "local_model"),
}
"""Which built-in model types speak a dialect: what to tell a client that asks the wrong one."""

_SHORTEST_SECRET = 6
# A tab may stand in the value of a header; nobody's key has one.
_NOT_IN_KEYS = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_VALUES = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_NOT_IN_NAMES = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]|^$")


@dataclass(frozen=True, slots=True)
class Key:
    """A provider's key and the header it travels in."""

    header: bytes
    """`authorization` or `x-api-key`."""
    secret: str

    @classmethod
    def bearer(cls, secret: str | None) -> "Key | None":
        """Return a key for `Authorization: Bearer`; None for none or an empty one."""
        return cls(b"authorization", secret.strip()) if secret and secret.strip() else None

    @classmethod
    def x_api_key(cls, secret: str | None) -> "Key | None":
        """Return a key for `x-api-key`; None for none or an empty one."""
        return cls(b"x-api-key", secret.strip()) if secret and secret.strip() else None

    @property
    def value(self) -> bytes:
        """The header's value."""
        scheme = "Bearer " if self.header == b"authorization" else ""
        return f"{scheme}{self.secret}".encode()

    @property
    def needle(self) -> bytes | None:
        """What must never leave the process; None for a placeholder such as `EMPTY`."""
        return self.secret.encode() if len(self.secret) >= _SHORTEST_SECRET else None


def key_problem(secret: str) -> str | None:
    """Return why a key cannot travel in a header, without the key; None: it can."""
    if _NOT_IN_KEYS.search(secret.strip()):
        return "holds a line break or another control character"
    try:
        secret.encode()
    except UnicodeEncodeError:
        return "holds bytes that are no UTF-8"
    return None


@dataclass(frozen=True, slots=True)
class Provider:
    """One provider."""

    addresses: tuple[Address, ...]
    """Where it is; several are replicas of one another."""
    dialects: tuple[DialectName, ...]
    """What it speaks itself; the first one is how errors on neutral routes are told."""
    key: Key | None = None
    """None: the credentials that a client sends are passed on."""
    members: Members = field(default_factory=Members)
    """What is set in the body of every model call, the model's name first of all."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Added to every call, replacing what the client sent under these names."""
    limits: Limits = field(default_factory=Limits)
    retry: RetryRule = field(default_factory=RetryRule)
    max_body_bytes: int = 256 << 20
    """Longest request body that is unpacked."""
    name: str | None = None
    """What metrics and traces call it; None: `openai` or `anthropic`, by the dialect of a call."""
    secrets: frozenset[str] = field(init=False, repr=False)
    """What must never leave the process: the key, and what is secret in URLs and headers."""
    keys: frozenset[str] = field(init=False, repr=False)
    """Those of `secrets` that can be nothing else: looked for in answers that are no errors too."""
    needles: tuple[bytes, ...] = field(init=False, repr=False)
    """One of these is in every text that has one of `keys` in clear."""

    def __post_init__(self) -> None:
        """Gather the secrets."""
        named = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        keys = credentials_of(named, b"")
        if self.key is not None and self.key.needle is not None:
            keys |= {self.key.secret}
        for address in self.addresses:
            authorization = (address.authorization or "").encode()
            keys |= credentials_of([(b"authorization", authorization)], address.query.encode())
        secrets = keys | collect_secrets({"extra_headers": dict(self.headers)})
        object.__setattr__(self, "secrets", secrets)
        keys = frozenset(key for key in keys if looks_secret(key))
        # One that is in another need not be looked for by itself first.
        shortest = [key for key in keys if not any(k != key and k in key for k in keys)]
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "needles", tuple(key.encode() for key in shortest))


class ProviderConfig(BaseResponsesAPIModelConfig):
    """Settings that every model server in front of a provider has."""

    model_config = ConfigDict(regex_engine="python-re")  # for the pattern of a base URL

    extra_body: dict[str, object] = Field(default_factory=dict)
    """Set in the body of every model call, whatever the client sent."""
    default_params: dict[str, object] = Field(default_factory=dict)
    """Set where the client left them out: `temperature`, `max_output_tokens`, …"""
    extra_headers: dict[str, str] = Field(default_factory=dict)
    """Added to every call."""
    connect_timeout_s: float = Field(default=10.0, gt=0)
    """Until a connection stands, in seconds."""
    idle_timeout_s: float = Field(default=600.0, gt=0)
    """Longest silence of the provider, in seconds; an answer may take longer in all."""
    max_tries: int = Field(default=7, ge=1)
    """Tries of one call, the first one included."""
    retry_for_s: float = Field(default=60.0, ge=0)
    """No try begins later than this after the first, in seconds."""
    max_connections: int = Field(default=4096, ge=1)
    """Connections to the provider; calls beyond wait."""

    def provider(
        self,
        urls: str | Sequence[str],
        dialects: tuple[DialectName, ...],
        *,
        model: str | None,
        key: Key | None,
        name: str | None = None,
    ) -> Provider:
        """Return the provider at `urls`.

        Raises `ConfigMistake` for a URL that names no server, and for a key or a header that cannot
        be sent.
        """
        self._refuse_unsendable(key)
        always = {name: orjson.dumps(value) for name, value in self.extra_body.items()}
        if model:
            always = {"model": orjson.dumps(model), **always}
        absent = {name: orjson.dumps(value) for name, value in self.default_params.items()}
        return Provider(
            _addresses(urls, self.name),
            dialects,
            key,
            Members(always, absent),
            self.extra_headers,
            Limits(
                connect_s=self.connect_timeout_s,
                idle_s=self.idle_timeout_s,
                max_connections=self.max_connections,
            ),
            RetryRule(tries=self.max_tries, total_s=self.retry_for_s),
            name=name,
        )

    def _refuse_unsendable(self, key: Key | None) -> None:
        problem = None if key is None else key_problem(key.secret)
        if problem is not None:
            names = type(self).model_fields
            setting = next((f".{name}" for name in names if name.endswith("api_key")), "")
            raise ConfigMistake(
                f"the key of {self.name} {problem}",
                where=f"{self.name}{setting}",
                mend="give the key alone, on one line, in policy_api_key of env.yaml",
            )
        for name, value in self.extra_headers.items():
            if _NOT_IN_NAMES.search(name) or _NOT_IN_VALUES.search(value):
                raise ConfigMistake(
                    f"the header {name!r} of {self.name} has a name or a value that cannot be sent",
                    where=f"{self.name}.extra_headers",
                    mend="write it without line breaks, control characters and what is not Latin-1",
                )


def _addresses(urls: str | Sequence[str], server_name: str) -> tuple[Address, ...]:
    try:
        found = [parse_address(url) for url in ([urls] if isinstance(urls, str) else urls)]
    except AddressInvalid as problem:
        raise _unusable(server_name, str(problem)) from None
    if not found:
        raise _unusable(server_name, "the list is empty")
    return tuple(found)


def _unusable(server_name: str, why: str) -> ConfigMistake:
    return ConfigMistake(
        f"the base URL of {server_name} cannot be used: {why}",
        mend="give it as http://HOST:PORT or https://HOST/v1, in policy_base_url of env.yaml",
    )
