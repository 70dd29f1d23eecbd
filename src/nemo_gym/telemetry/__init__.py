"""Metrics and traces: the only room that knows OpenTelemetry and psutil."""
