"""CPU per stream chunk and per stored line: the capture path beside the plain way.

    python bench/wire.py [--rounds 9] [--json FILE]

Chunk: one event of a typical size through tap, parser and assembler, including the end of the
call spread over its chunks, beside the plain way: keep every chunk, at the end join, split and
`json.loads` each event. Line: the stored line of a call with a 58 KB request and a 5 KB response
(bodies as sent, compact and pretty), beside `json.loads` of both and `json.dumps` of the whole.
Best of the rounds, user CPU; rounds take turns so that a drifting machine hits both alike.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nemo_gym.capture.exchange import exchange_line
from nemo_gym.capture.tap import ExchangeTap, Request, Tapped
from nemo_gym.wire.dialects import CHAT, MESSAGES, RESPONSES, Dialect

CHUNKS = 400
LINES = 200
WORDS = [
    "Once",
    "more",
    "the",
    "model",
    "writes",
    "a",
    "short",
    "word",
    "and",
    "then",
    "another",
    "one",
    ".",
]


@dataclass(frozen=True)
class Case:
    name: str
    ours: Callable[[], object]
    plain: Callable[[], object]
    per: int
    """Chunks or lines in one run."""


def event(data: dict[str, object], name: str | None = None) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


def chat_stream() -> list[bytes]:
    top = {
        "id": "chatcmpl-C5p7rKQeVbGJ7dG8N6m9H1kq2xYzA",
        "object": "chat.completion.chunk",
        "created": 1777319876,
        "model": "gpt-4.1-2025-04-14",
        "service_tier": "default",
        "system_fingerprint": "fp_799e4ca3f1",
    }
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    chunks = [
        event(
            {
                **top,
                "choices": [{**choice, "delta": {"content": f" {WORDS[i % 12]}"}}],
                "usage": None,
            }
        )
        for i in range(CHUNKS)
    ]
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 94, "completion_tokens": CHUNKS, "total_tokens": 94 + CHUNKS}
    tail = [event({**top, "choices": [last]}), event({**top, "choices": [], "usage": usage})]
    return [*chunks, *tail, b"data: [DONE]\n\n"]


def messages_stream() -> list[bytes]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    start: dict[str, object] = {
        "type": "message_start",
        "message": {**message, "usage": {"input_tokens": 9}},
    }
    block: dict[str, object] = {"type": "text", "text": ""}
    deltas = [
        event(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": f" {WORDS[i % 12]}"},
            },
            "content_block_delta",
        )
        for i in range(CHUNKS)
    ]
    end = {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn"},
        "usage": {"output_tokens": 9},
    }
    return [
        event(start, "message_start"),
        event(
            {"type": "content_block_start", "index": 0, "content_block": block},
            "content_block_start",
        ),
        *deltas,
        event({"type": "content_block_stop", "index": 0}, "content_block_stop"),
        event(end, "message_delta"),
        event({"type": "message_stop"}, "message_stop"),
    ]


def responses_stream() -> list[bytes]:
    text = "".join(f" {WORDS[i % 12]}" for i in range(CHUNKS))
    item = {"id": "msg_1", "type": "message", "role": "assistant"}
    done = {**item, "content": [{"type": "output_text", "text": text, "annotations": []}]}
    response: dict[str, object] = {
        "id": "resp_1",
        "object": "response",
        "status": "in_progress",
        "output": [],
    }
    deltas = [
        event(
            {
                "type": "response.output_text.delta",
                "sequence_number": i + 2,
                "item_id": "msg_0ca3f598125653cf01693c1f25167881959e4d4741c31622ce",
                "output_index": 0,
                "content_index": 0,
                "delta": f" {WORDS[i % 12]}",
                "logprobs": [],
                "obfuscation": "N2k6mzSqfIeWJk",
            },
            "response.output_text.delta",
        )
        for i in range(CHUNKS)
    ]
    added: dict[str, object] = {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**item, "content": []},
    }
    return [
        event({"type": "response.created", "response": response}, "response.created"),
        event(added, "response.output_item.added"),
        *deltas,
        event(
            {"type": "response.output_item.done", "output_index": 0, "item": done},
            "response.output_item.done",
        ),
        event(
            {
                "type": "response.completed",
                "response": {**response, "status": "completed", "output": [done]},
            },
            "response.completed",
        ),
    ]


def tap_stream(dialect: Dialect, chunks: list[bytes]) -> Tapped:
    tap = ExchangeTap(Request(dialect, "POST"), started_at=0.0, now=0.0)
    tap.response_start(200, [(b"content-type", b"text/event-stream")], 0.0)
    passes = None
    for chunk in chunks:
        if passes is None or not passes(chunk):
            tap.response_body(chunk, True, 0.0)
            passes = tap.passes_by
    return tap.finish(0.0)


def plain_stream(chunks: list[bytes]) -> list[object]:
    kept = list(chunks)
    lines = b"".join(kept).decode().split("\n")
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def bodies(indent: int | None) -> tuple[bytes, bytes]:
    turns = [{"role": "user", "content": 'Say "word" again.\n' * 24, "n": i} for i in range(112)]
    request = json.dumps({"model": "m", "input": turns}, indent=indent).encode()
    output = [
        {"type": "message", "content": [{"type": "output_text", "text": "An answer. " * 430}]}
    ]
    response = {"id": "r", "status": "completed", "output": output, "usage": {"input_tokens": 9}}
    return request, json.dumps(response, indent=indent).encode()


def tap_bodies(request: bytes, response: bytes) -> bytes:
    tap = ExchangeTap(Request(RESPONSES, "POST"), started_at=0.0, now=0.0)
    tap.request_body(request)
    tap.response_start(200, [(b"content-type", b"application/json")], 0.0)
    tap.response_body(response, False, 0.0)
    return exchange_line(tap.finish(0.0), None, model_call_id="0" * 32, model_ref_name="m")


def plain_bodies(request: bytes, response: bytes) -> bytes:
    row = {
        "model_call_id": "0" * 32,
        "request": json.loads(request),
        "response": json.loads(response),
    }
    return json.dumps(row).encode()


def cases() -> list[Case]:
    streams = [
        (CHAT, chat_stream()),
        (MESSAGES, messages_stream()),
        (RESPONSES, responses_stream()),
    ]
    found = [
        Case(
            f"chunk, {dialect.name} ({sum(map(len, chunks)) // len(chunks)} B)",
            lambda d=dialect, c=chunks: tap_stream(d, c),
            lambda c=chunks: plain_stream(c),
            len(chunks),
        )
        for dialect, chunks in streams
    ]
    for name, indent in (("compact", None), ("pretty", 1)):
        request, response = bodies(indent)

        def ours(request: bytes = request, response: bytes = response) -> None:
            for _ in range(LINES):
                tap_bodies(request, response)

        def plain(request: bytes = request, response: bytes = response) -> None:
            for _ in range(LINES):
                plain_bodies(request, response)

        title = f"line, {name} ({len(request) // 1000} KB + {len(response) // 1000} KB)"
        found.append(Case(title, ours, plain, LINES))
    return found


def best_us(case: Case, rounds: int) -> tuple[float, float]:
    best = {"ours": float("inf"), "plain": float("inf")}
    for _ in range(rounds):
        for name, run in (("ours", case.ours), ("plain", case.plain)):
            began = time.process_time()
            run()
            best[name] = min(best[name], (time.process_time() - began) / case.per * 1e6)
    return best["ours"], best["plain"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    figures = {}
    print(f"{'':40}{'capture µs':>12}{'plain µs':>12}{'ratio':>8}")
    for case in cases():
        ours, plain = best_us(case, options.rounds)
        figures[case.name] = {"capture_us": ours, "plain_us": plain}
        print(f"{case.name:40}{ours:12.2f}{plain:12.2f}{ours / plain:8.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
