"""What the user asked for in, one `RunConfig` out: the only way a configuration is read.

Merged in this order, later over earlier: the configurations of the components named, `--config`
files, `env.yaml` of the working directory, the `--model…` flags, overrides. Then references are
resolved and everything is checked, so that a run never starts on a mistake.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nemo_gym.config.check_keys import KeyCheck
from nemo_gym.config.check_root import SectionCheck, check_root, none_wrong
from nemo_gym.config.components import (
    component_roots,
    config_of,
    find_component,
    resolve_input_path,
    root_of_config,
)
from nemo_gym.config.credentials import note_wanted
from nemo_gym.config.document import Document, KeyPath, dotted, read_document
from nemo_gym.config.fields import FieldsReader, SettingsFields, fields_in_source
from nemo_gym.config.merge import Layers
from nemo_gym.config.misfits import find_misfits
from nemo_gym.config.overrides import Override, apply_override, parse_override
from nemo_gym.config.problems import Problems
from nemo_gym.config.references import Resolved, resolve
from nemo_gym.config.resolved import RunConfig, ServerInstance
from nemo_gym.config.schema import CREDENTIAL_KEYS, RootSettings
from nemo_gym.config.secrets import collect_secrets
from nemo_gym.config.servers import (
    MISSING,
    bind_references,
    check_references,
    find_servers,
    is_server,
)
from nemo_gym.config.typed import field_types
from nemo_gym.errors import ConfigMistake, UserMistake

__all__ = ["ConfigRequest", "check_run_config", "load_run_config", "no_servers", "require_servers"]

ENV_FILE = "env.yaml"


@dataclass(frozen=True, slots=True)
class ConfigRequest:
    """What the user said on the command line."""

    resources_servers: tuple[str, ...] = ()
    """Components whose own configuration is taken, by name."""
    agent_types: tuple[str, ...] = ()
    model_types: tuple[str, ...] = ()
    config_files: tuple[str, ...] = ()
    """Paths as given: against the working directory, then the built-in components."""
    model: str | None = None
    model_url: str | None = None
    model_api_key: str | None = field(default=None, repr=False)
    overrides: tuple[str, ...] = field(default=(), repr=False)
    """In the order given: `key=value`, `+key=value`, `++key=value`, `~key`."""
    search_dirs: tuple[Path, ...] = ()
    """Component roots that are searched before the working directory."""
    working_dir: Path = field(default_factory=Path.cwd)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    fields_of: FieldsReader = fields_in_source
    """Says which settings a server's implementation reads."""
    telemetry_mistakes: SectionCheck = none_wrong
    """Says what the room of telemetry finds wrong with its section."""


def load_run_config(request: ConfigRequest) -> RunConfig:
    """Read, merge, resolve and check; raises one `UserMistake` that says all that is wrong."""
    problems = Problems()
    config = _Load(request, problems).run()
    problems.raise_any()
    if config is None:  # pragma: no cover - a load that gives up has noted why
        raise AssertionError(problems)
    return config


def check_run_config(request: ConfigRequest) -> tuple[UserMistake, ...]:
    """Return every mistake of a configuration; none when it is right."""
    problems = Problems()
    _Load(request, problems).run()
    return tuple(problems.found)


def require_servers(config: RunConfig) -> None:
    """Raise `ConfigMistake` when a configuration that is to be started defines no server."""
    if not config.servers:
        raise no_servers("nothing to start")


def no_servers(consequence: str) -> ConfigMistake:
    """Return the mistake of a configuration that defines no server, where one is wanted."""
    return ConfigMistake(
        f"{consequence}: the configuration defines no servers",
        where="the options of this command",
        mend="add --resources-server NAME and --model-type NAME, or --config FILE; "
        "'gym list resources-servers' and 'gym list models' show the names",
    )


@dataclass(slots=True)
class _Load:
    """One load, step by step; a step that later ones stand on ends it when something is wrong."""

    request: ConfigRequest
    problems: Problems
    layers: Layers = field(default_factory=Layers)
    _overrides: list[tuple[Override, bool]] = field(default_factory=list)

    def run(self) -> RunConfig | None:
        try:
            roots = component_roots(self.request.search_dirs, self.request.working_dir)
        except UserMistake as mistake:
            self.problems.take(mistake)
            return None
        documents = self._documents(roots)
        if self.problems.found:
            return None
        for document in documents:
            self.layers.add(document)
        self._add_flags()
        declared = frozenset(self.layers.origins)
        self._change()
        if self.problems.found:
            return None
        return self._finish(self._all_roots(roots), declared)

    def _documents(self, roots: tuple[Path, ...]) -> list[Document]:
        found = []
        for path, name in self._sources(roots):
            try:
                found.append(read_document(path, name))
            except UserMistake as mistake:
                self.problems.take(mistake)
        return found

    def _sources(self, roots: tuple[Path, ...]) -> Iterator[tuple[Path, str]]:
        request = self.request
        named = [
            *(("resources_servers", name) for name in request.resources_servers),
            *(("responses_api_agents", name) for name in request.agent_types),
            *(("responses_api_models", name) for name in request.model_types),
        ]
        for kind, name in named:
            try:
                path = config_of(find_component(roots, kind, name))
            except UserMistake as mistake:
                self.problems.take(mistake)
            else:
                yield path, self._shown(path)
        for text in request.config_files:
            try:
                path = self._config_file(text)
            except UserMistake as mistake:
                self.problems.take(ConfigMistake(mistake.what, where="--config", mend=mistake.mend))
            else:
                yield path, text
        env = request.working_dir / ENV_FILE
        if env.exists():
            yield env, ENV_FILE

    def _config_file(self, text: str) -> Path:
        return resolve_input_path(
            text, working_dir=self.request.working_dir, search_dirs=self.request.search_dirs
        )

    def _all_roots(self, roots: tuple[Path, ...]) -> tuple[Path, ...]:
        """Put the roots of configuration files before the built-in one: a file brings its own."""
        own = [root_of_config(self._config_file(text)) for text in self.request.config_files]
        return tuple(dict.fromkeys([*roots[:-1], *(root for root in own if root), roots[-1]]))

    def _shown(self, path: Path) -> str:
        """Return a path as the user would write it."""
        here = self.request.working_dir.resolve()
        return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)

    def _add_flags(self) -> None:
        flags = (
            ("policy_model_name", "--model", self.request.model),
            ("policy_base_url", "--model-url", self.request.model_url),
            ("policy_api_key", "--model-api-key", self.request.model_api_key),
        )
        for key, flag, value in flags:
            if value is not None:
                self.layers.put((key,), value.replace("${", "\\${"), flag)

    def _change(self) -> None:
        for text in self.request.overrides:
            try:
                override = parse_override(text)
                self._overrides.append((override, apply_override(self.layers, override)))
            except UserMistake as mistake:
                self.problems.take(mistake)

    def _finish(self, roots: tuple[Path, ...], declared: frozenset[KeyPath]) -> RunConfig:
        resolved = resolve(self.layers, self.request.environ, self.problems, needed=self._is_needed)
        tree = resolved.tree
        env = self.request.working_dir / ENV_FILE
        note_wanted(
            resolved.wanted,
            self.layers,
            self.problems,
            env_exists=env.exists(),
            env_folder=str(env.parent),
        )
        check_root(tree, self.layers, self.problems, self.request.telemetry_mistakes)
        servers = find_servers(tree, self.layers, roots, self.problems)
        bind_references(servers)
        check_references(servers, self.layers, self.problems)
        fields = {server.name: self.request.fields_of(server) for server in servers}
        self._check_keys(resolved, servers, fields, declared)
        self._check_missing(tree, ())
        origins = {dotted(path): origin for path, origin in self.layers.origins.items()}
        secrets = collect_secrets(tree) | resolved.secrets
        misfits = find_misfits(servers, fields, self.layers, roots, self.request.fields_of)
        return RunConfig(tree, servers, origins, secrets, misfits)

    def _is_needed(self, key: str) -> bool:
        """Whether this run reads a top-level key; credentials it reads through its servers."""
        read = key in field_types(RootSettings) and key not in CREDENTIAL_KEYS
        return read or is_server(self.layers.tree[key])

    def _check_keys(
        self,
        resolved: Resolved,
        servers: tuple[ServerInstance, ...],
        fields: Mapping[str, SettingsFields],
        declared: frozenset[KeyPath],
    ) -> None:
        check = KeyCheck(
            self.layers,
            declared,
            resolved.referenced,
            servers={server.name: server for server in servers},
            fields=fields,
            problems=self.problems,
        )
        for override, existed in self._overrides:
            check.override(override, existed=existed)
        check.files()
        check.settings()

    def _check_missing(self, value: object, path: KeyPath) -> None:
        if isinstance(value, dict):
            for key, below in value.items():
                self._check_missing(below, (*path, key))
        elif isinstance(value, list):
            for index, below in enumerate(value):
                self._check_missing(below, (*path, str(index)))
        elif value == MISSING == self.layers.get(path)[1]:  # not where a reference repeats it
            self.problems.add(
                f"{dotted(path)} has no value yet",
                where=f"{self.layers.origin(path)} ({dotted(path)})",
                mend=f"add {dotted(path)}=… to the command, or set it in a --config file",
            )
