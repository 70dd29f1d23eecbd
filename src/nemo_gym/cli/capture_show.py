"""`gym capture show`: the model calls of one rollout as a conversation."""

import json
import sys
from collections.abc import Generator
from pathlib import Path

import click

from nemo_gym.capture.reading import StoredExchange
from nemo_gym.capture.store import CaptureStore
from nemo_gym.cli.capture_dir import capture_dir_option, open_store
from nemo_gym.cli.options import example, json_option
from nemo_gym.errors import UserMistake
from nemo_gym.files.jsonl import Damaged
from nemo_gym.observability.raw_lines import raw_lines
from nemo_gym.records.model_call import ModelCallRecord, build
from nemo_gym.records.retries import superseded_calls
from nemo_gym.wire.transcript import Utterance, request_utterances, response_utterances

__all__ = ["show"]

_LABELS = {"reasoning": " (reasoning)", "tool_call": " calls", "refusal": " refuses"}


@click.command(epilog=example("gym capture show 0-0 --dir results/model-calls"))
@click.argument("rollout")
@capture_dir_option
@json_option
@click.option("--raw", is_flag=True, help="Print the stored lines as they are.")
def show(rollout: str, directory: Path | None, *, as_json: bool, raw: bool) -> None:
    """Show the model calls of ROLLOUT as a readable conversation."""
    store = open_store(directory)
    try:
        lines = list(raw_lines(store, rollout)) if raw else []
        items = [] if raw else store.read(rollout)
    except OSError as error:
        raise UserMistake(
            f"the calls of rollout {rollout!r} cannot be read: {error.strerror or error}",
            where=str(store.directory),
            mend="look at who may read the files there",
        ) from error
    if not items and not lines:
        raise UserMistake(
            f"no model calls of rollout {rollout!r} in {store.directory}",
            mend="'gym capture ls' lists the rollouts there are",
        )
    for line in lines:
        sys.stdout.buffer.write(line.body + b"\n")
    if raw:
        return
    records = _records(items)
    if as_json:
        click.echo(json.dumps([_plain(record) for record in records], ensure_ascii=False, indent=2))
        return
    for text in _conversation(store, rollout, records):
        click.echo(text)


def _records(items: list[StoredExchange | Damaged]) -> list[ModelCallRecord | Damaged]:
    """Return each call as a record, numbered from 0; a damaged line has no number."""
    records: list[ModelCallRecord | Damaged] = []
    number = 0
    for item in items:
        if isinstance(item, Damaged):
            records.append(item)
        else:
            records.append(build(item, number))
            number += 1
    return records


def _plain(record: ModelCallRecord | Damaged) -> dict[str, object]:
    if isinstance(record, Damaged):
        return {"damaged": str(record)}
    return record.model_dump(mode="json")


def _conversation(
    store: CaptureStore, rollout: str, records: list[ModelCallRecord | Damaged]
) -> Generator[str]:
    before: list[Utterance] = []
    again = superseded_calls(r for r in records if isinstance(r, ModelCallRecord))
    for record in records:
        if isinstance(record, Damaged):
            yield click.style(f"-- damaged line: {record}", fg="red")
            continue
        yield _headline(record, again.get(record.call_index))
        asked = request_utterances(record.request or {})
        shown = _common(before, asked)
        if shown:
            yield click.style(f"   ({shown} earlier messages as in the calls before)", dim=True)
        answered = response_utterances(record.response or {})
        for utterance in (*asked[shown:], *answered):
            yield from _lines(utterance)
        for name, text in (("request", record.request_raw), ("response", record.response_raw)):
            if text and getattr(record, name) is None:
                yield f"   {name} as text: {text}"
        yield ""
        before = [*asked, *answered]
    if store.is_pending(rollout):
        yield click.style("-- a call of this rollout is under way", fg="yellow")
    if store.is_incomplete(rollout):
        yield click.style("-- a call of this rollout is known to be missing", fg="red")


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
    line = click.style("── " + " · ".join(fact for fact in facts if fact), bold=True)
    if record.error_category:
        line += click.style(f" · {record.error_category}", fg="red", bold=True)
    if tried_again_as is not None:
        line += f" · tried again as call {tried_again_as}"
    return line


def _lines(utterance: Utterance) -> Generator[str]:
    label = click.style(f"{utterance.role}{_LABELS.get(utterance.kind, '')}:", fg="cyan")
    first, *rest = utterance.text.split("\n")
    yield f"   {label} {first}"
    for line in rest:
        yield f"      {line}"


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
