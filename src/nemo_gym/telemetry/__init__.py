"""Metrics and traces: the only room that knows OpenTelemetry and psutil.

Who calls what; all of it is cheap and silent while telemetry is off:

- a process begins with `providers.start_telemetry(settings, service_name=, instance=)`, keeps its
  loop under `observer.observe_event_loop(name)`, and ends with `handle.shutdown()`;
- the outermost layer of a server bumps `observer.request_counts()` and
  `live.server_counts(name)`; inside it is `trace_middleware.TraceMiddleware(app, name)`;
- the forwarder times a call with a `model_calls.ModelCall` of its own; others begin one with
  `model_calls.model_call_started(…)`, and who reads its usage calls `model_calls.count_tokens(…)`
  once;
- capture, agents, the driver and the transport call the functions of `work`; the driver bumps and
  records on `observer.driver_metrics()`, as `MeteredAdmission` and `count_resident` do for others;
- a client of another server calls `tracing.inject(headers)`; an agent or a driver wraps its steps
  in `tracing.span(…)`, the call of a tool in `work.tool_span(…)`;
- the head server answers with `figures.to_json([snapshot(name), …])` and
  `exposition.merge_expositions([…])`; at a run's end, `run_view.diagnose_run(snapshots)`.
"""
