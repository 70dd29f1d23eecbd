"""What a process of a run shows of its own work: figures for the live view, metrics to scrape.

The parent asks its children over the pipes they were started with, so a run needs no further port.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from typing import Any

from nemo_gym.config.resolved import RunConfig
from nemo_gym.runtime.head import Answer
from nemo_gym.telemetry.exporting import exporting
from nemo_gym.telemetry.exposition import CONTENT_TYPE, Exposition, merge_expositions
from nemo_gym.telemetry.figures import snapshot
from nemo_gym.telemetry.observer import observe_event_loop
from nemo_gym.telemetry.providers import TelemetryHandle, start_telemetry
from nemo_gym.telemetry.settings import idle_settings, telemetry_options
from nemo_gym.telemetry.tracing import inject, tracer
from nemo_gym.telemetry.unread import unread_lines
from nemo_gym.transport.server_client import propagate_with

__all__ = ["ASK_FIGURES", "ASK_METRICS", "Ask", "ProcessTelemetry", "figures_of", "metrics_of"]

logger = logging.getLogger(__name__)

ASK_FIGURES = "figures"
ASK_METRICS = "metrics"
_PATIENCE_S = 2.0

Ask = Callable[[str], Awaitable[Any]]
"""Puts one of the questions above to a child and returns its answer."""
Beside = Callable[[], Awaitable[list[Exposition]]]


@dataclass(slots=True)
class ProcessTelemetry:
    """Telemetry of this process, on or off as the configuration says."""

    process: str
    handle: TelemetryHandle

    @classmethod
    def start(
        cls,
        config: RunConfig,
        process: str,
        run_id: str,
        notify: Callable[[str], None] = lambda _line: None,
    ) -> "ProcessTelemetry":
        """Begin as the `telemetry` section says; raises `UserMistake` for a wrong one.

        `notify` gets a line for each setting that is given and does nothing and for each standard
        variable that cannot be read, and one when a collector cannot be reached.
        """
        section = config.tree.get("telemetry")
        settings = section if isinstance(section, Mapping) else {}
        options = telemetry_options(settings)
        for line in (*idle_settings(options), *unread_lines(options), *_idle_capture(config)):
            notify(f"warning: {line}")
        service = "nemo_gym.driver" if process == "driver" else "nemo_gym.server"
        handle = start_telemetry(
            settings,
            service_name=service,
            instance=f"{run_id}/{process}",
            warned=_on_this_loop(notify),
        )
        if tracer() is not None:
            propagate_with(inject)
        if handle.scrape_url is not None:
            # The kernel has chosen the port, so nobody knows it otherwise.
            logger.info("%s answers GET %s", process, handle.scrape_url)
        return cls(process, handle)

    def observed_loop(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which this process's event loop is measured."""
        return observe_event_loop("driver" if self.process == "driver" else "server")

    def answer(self, question: str) -> Any:
        """Answer one of the questions as a JSON value."""
        if question == ASK_FIGURES:
            return asdict(snapshot(self.process))
        return self.handle.exposition()

    def shutdown(self) -> None:
        """Send what is recorded, within the budget of telemetry's end."""
        propagate_with(None)
        self.handle.shutdown()


def _idle_capture(config: RunConfig) -> list[str]:
    """Return a line where a command asks for captures in a directory and capture is off.

    A file may name the directory once for all commands, and `false` is said in so many words.
    """
    said = config.origins.get("model_call_capture_dir", "").startswith("override")
    if (
        not said
        or config.tree.get("observability_enabled")
        or ("observability_enabled" in config.origins)
    ):
        return []
    return ["model_call_capture_dir does nothing: capture is off; add ++observability_enabled=true"]


def _on_this_loop(notify: Callable[[str], None]) -> Callable[[str], None]:
    loop = asyncio.get_running_loop()

    def tell(line: str) -> None:
        loop.call_soon_threadsafe(notify, f"warning: {line}")

    return tell


def figures_of(own: ProcessTelemetry, children: Mapping[str, Ask]) -> Answer:
    """Return what the head server answers to `GET /figures`."""
    known: set[str] = set()

    async def answer() -> tuple[str, bytes]:
        told, silent = await _ask_all(children, ASK_FIGURES, known)
        processes = [own.answer(ASK_FIGURES), *(value for _, value in told)]
        return "application/json", json.dumps({"processes": processes, "silent": silent}).encode()

    return answer


def metrics_of(
    own: ProcessTelemetry, children: Mapping[str, Ask], beside: Beside | None = None
) -> Answer | None:
    """Return what the head server answers to `GET /metrics`; None where metrics are off.

    `beside` gives what processes expose that are none of its children.
    """
    if own.handle.instance_id is None or exporting() is None:
        return None

    known: set[str] = set()

    async def answer() -> tuple[str, bytes]:
        told, _ = await _ask_all(children, ASK_METRICS, known)
        parts = [(own.process, own.answer(ASK_METRICS)), *told]
        exposed = [Exposition(t, {"process": name}) for name, t in parts]
        if beside is not None:
            exposed += await beside()
        text = merge_expositions(exposed)
        return CONTENT_TYPE, text.encode()

    return answer


async def _ask_all(
    children: Mapping[str, Ask], question: str, known: set[str]
) -> tuple[list[tuple[str, Any]], list[str]]:
    """Ask every child; return who answered what, and the names of those that did not.

    `known` has those that did not the last time, of which a warning was given.
    """
    asked = [asyncio.wait_for(ask(question), _PATIENCE_S) for ask in children.values()]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    told: list[tuple[str, Any]] = []
    silent: list[str] = []
    for name, answer in zip(children, answers, strict=True):
        if isinstance(answer, BaseException) or answer is None:
            silent.append(name)
        else:
            told.append((name, answer))
    for name in silent:
        if name not in known:
            logger.warning("%s does not answer: its %s are left out", name, question)
    known.clear()
    known.update(silent)
    return told, silent
