"""A stand-in for an OpenTelemetry collector: OTLP over HTTP and gRPC on loopback."""

import gzip
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as trace_grpc

__all__ = ["Received", "grpc_collector", "http_collector"]


@dataclass(slots=True)
class Received:
    """What a collector was sent."""

    endpoint: str = ""
    metrics: list[Any] = field(default_factory=list)
    traces: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)
    """Set unless a test clears it: then what came is held without an answer."""

    def __post_init__(self) -> None:
        self.may_answer.set()

    def points(self, name: str) -> list[Any]:
        """Return the data points of the metric `name` in the last request that has any."""
        for request in reversed(self.metrics):
            for group in request.resource_metrics:
                for scope in group.scope_metrics:
                    for metric in scope.metrics:
                        if metric.name == name:
                            return list(getattr(metric, metric.WhichOneof("data")).data_points)
        return []

    def names(self) -> set[str]:
        """Return the names of every metric that came."""
        return {
            metric.name
            for request in self.metrics
            for group in request.resource_metrics
            for scope in group.scope_metrics
            for metric in scope.metrics
        }

    def spans(self) -> list[Any]:
        """Return every span that came."""
        return [
            span
            for request in self.traces
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, str]:
        """Return the resource attributes of the first metrics request."""
        attributes = self.metrics[0].resource_metrics[0].resource.attributes
        return {a.key: a.value.string_value for a in attributes}


@contextmanager
def http_collector() -> Iterator[Received]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            received.headers.append({k.lower(): v for k, v in self.headers.items()})
            if self.path == "/v1/metrics":
                received.metrics.append(metrics_pb2.ExportMetricsServiceRequest.FromString(body))
            elif self.path == "/v1/traces":
                received.traces.append(trace_pb2.ExportTraceServiceRequest.FromString(body))
            received.came.set()
            received.may_answer.wait(10)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    received.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_collector() -> Iterator[Received]:
    received = Received()

    class Metrics(metrics_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name gRPC calls
            received.metrics.append(request)
            received.came.set()
            return metrics_pb2.ExportMetricsServiceResponse()

    class Traces(trace_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name gRPC calls
            received.traces.append(request)
            received.came.set()
            return trace_pb2.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    metrics_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    trace_grpc.add_TraceServiceServicer_to_server(Traces(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    received.endpoint = f"http://127.0.0.1:{port}"
    try:
        yield received
    finally:
        server.stop(grace=0.2).wait()
