"""`gym capture show`: the model calls of one rollout as a conversation."""

import errno
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import click

from nemo_gym.capture.reading import StoredExchange
from nemo_gym.capture.store import CaptureStore
from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.counted import counted
from nemo_gym.cli.json_text import json_text
from nemo_gym.cli.options import example, json_option
from nemo_gym.cli.output import print_json, print_stored_line, wants_colour
from nemo_gym.cli.printable import on_one_line, printable
from nemo_gym.errors import UserMistake
from nemo_gym.files.jsonl import Damaged
from nemo_gym.observability.missing import why_incomplete
from nemo_gym.observability.raw_lines import raw_lines
from nemo_gym.records.model_call import ModelCallRecord, build
from nemo_gym.records.retries import superseded_calls
from nemo_gym.wire.json import as_array, as_object
from nemo_gym.wire.transcript import Utterance, request_utterances, response_utterances

__all__ = ["show"]

_LONGEST_NOTE = 200
_ERRORS_OF_NO_FILE = frozenset({errno.EISDIR, errno.ENXIO, errno.ELOOP})
_NO_FILE = "move it away: only a regular file can hold calls"
_LABELS = {"reasoning": " (reasoning)", "tool_call": " calls", "refusal": " refuses"}


@click.command(epilog=example("gym capture show 0-0 --dir results/model-calls"))
@click.argument("rollout")
@capture_dir_option
@json_option
@click.option(
    "--raw",
    is_flag=True,
    help="Print the stored lines as they are; a terminal gets control characters escaped.",
)
def show(rollout: str, directory: Path | None, *, as_json: bool, raw: bool) -> None:
    """Show the model calls of ROLLOUT as a readable conversation."""
    store = open_store(directory)
    try:
        lines = list(raw_lines(store, rollout)) if raw else []
        items = [] if raw else store.read(rollout)
    except OSError as error:
        raise _unreadable(rollout, error, store.directory) from error
    if not items and not lines:
        raise UserMistake(
            f"no model calls of rollout {rollout!r} in {store.directory}",
            mend="'gym capture ls' lists the rollouts there are",
        )
    for line in lines:
        print_stored_line(line.body)
    if raw:
        return
    calls = _calls(items)
    if as_json:
        print_json([_plain(call) for call in calls])
        return
    for text in _conversation(store, rollout, calls):
        click.echo(text, color=wants_colour())


def _unreadable(rollout: str, error: OSError, directory: Path) -> UserMistake:
    mend = _NO_FILE if error.errno in _ERRORS_OF_NO_FILE else "look at who may read it"
    return UserMistake(
        f"the calls of rollout {rollout!r} cannot be read: {error.strerror or error}",
        where=str(error.filename or directory),
        mend=mend,
    )


class _Call(NamedTuple):
    record: ModelCallRecord
    beside: dict[str, object]
    """What the stored line has besides: `notes` and `upstream_attempts`, where there are any."""


def _calls(items: list[StoredExchange | Damaged]) -> list[_Call | Damaged]:
    """Return each call as a record, numbered from 0; a damaged line has no number."""
    calls: list[_Call | Damaged] = []
    number = 0
    for item in items:
        if isinstance(item, Damaged):
            calls.append(item)
        else:
            beside = {key: item[key] for key in ("notes", "upstream_attempts") if item.get(key)}
            calls.append(_Call(build(item, number), beside))
            number += 1
    return calls


def _plain(call: _Call | Damaged) -> dict[str, object]:
    if isinstance(call, Damaged):
        return {"damaged": str(call)}
    # Not `model_dump` of the whole: payloads are JSON already, and it gives up on 255 levels.
    reference = call.record.model_ref
    plain = {**dict(call.record), "model_ref": reference and reference.model_dump()}
    return plain | call.beside


def _conversation(
    store: CaptureStore, rollout: str, calls: list[_Call | Damaged]
) -> Generator[str]:
    before: list[Utterance] = []
    again = superseded_calls(c.record for c in calls if isinstance(c, _Call))
    for call in calls:
        if isinstance(call, Damaged):
            yield _styled(f"-- damaged line: {call}", fg="red")
            continue
        record = call.record
        yield _headline(record, again.get(record.call_index))
        yield from (_styled(f"   {text}", dim=True) for text in _beside(call.beside))
        asked = request_utterances(record.request or {})
        shown = _common(before, asked)
        if shown:
            earlier = counted(shown, "earlier message")
            yield click.style(f"   ({earlier} as in the calls before)", dim=True)
        answered = response_utterances(record.response or {})
        for utterance in (*asked[shown:], *answered):
            yield from _lines(utterance)
        for name, text in (("request", record.request_raw), ("response", record.response_raw)):
            if text and getattr(record, name) is None:
                yield printable(f"   {name} as text: {text}")
        yield ""
        before = [*asked, *answered]
    if store.is_pending(rollout):
        yield click.style("-- a call of this rollout is under way", fg="yellow")
    if store.is_incomplete(rollout):
        why = why_incomplete(store, rollout)
        yield from (_styled(f"-- incomplete: {reason}", fg="red") for reason in why)


def _headline(record: ModelCallRecord, tried_again_as: int | None) -> str:
    tokens = f"{_known(record.tokens_in)} → {_known(record.tokens_out)} tokens"
    facts = [
        f"call {record.call_index}",
        record.dialect,
        record.model,
        " ".join(str(v) for v in (record.status_code, record.response_status) if v is not None),
        tokens + (f" ({record.tokens_reasoning} reasoning)" if record.tokens_reasoning else ""),
        f"{record.latency_total_ms:.0f} ms" if record.latency_total_ms is not None else None,
        f"first token {record.latency_ttft_ms:.0f} ms" if record.latency_ttft_ms else None,
    ]
    line = _styled("── " + " · ".join(fact for fact in facts if fact), bold=True)
    if record.error_category:
        line += _styled(f" · {record.error_category}", fg="red", bold=True)
    if tried_again_as is not None:
        line += f" · tried again as call {tried_again_as}"
    return line


def _beside(beside: dict[str, object]) -> Generator[str]:
    """Yield what a reader should know of a call besides what was said."""
    attempts = [as_object(entry) or {} for entry in as_array(beside.get("upstream_attempts")) or ()]
    if attempts:
        yield f"{counted(len(attempts), 'attempt')}: {', '.join(map(_outcome, attempts))}"
    notes = as_object(beside.get("notes")) or {}
    if notes:
        yield f"notes: {', '.join(f'{key}: {_short(value)}' for key, value in notes.items())}"


def _outcome(attempt: dict[str, object]) -> str:
    ms = attempt.get("ms")
    took = f" after {ms:.0f} ms" if isinstance(ms, int | float) else ""
    return f"{attempt.get('status', attempt.get('error'))}{took}"


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json_text(value, indent=None)
    return text if len(text) <= _LONGEST_NOTE else f"{text[:_LONGEST_NOTE]}…"


def _lines(utterance: Utterance) -> Generator[str]:
    label = _styled(f"{utterance.role}{_LABELS.get(utterance.kind, '')}:", fg="cyan")
    first, *rest = printable(utterance.text).split("\n")
    yield f"   {label} {first}"
    for line in rest:
        yield f"      {line}"


def _styled(text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
    # The style itself is made of control characters, so the text is made safe first.
    return click.style(on_one_line(text), fg=fg, bold=bold or None, dim=dim or None)


def _known(count: int | None) -> str:
    return "?" if count is None else str(count)


def _common(before: list[Utterance], now: list[Utterance]) -> int:
    """Return how many utterances at the start were shown with the call before."""
    same = 0
    for a, b in zip(before, now, strict=False):
        if a != b:
            break
        same += 1
    return same
