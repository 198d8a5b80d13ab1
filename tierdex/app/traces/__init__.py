"""Traces of OpenTelemetry: kept span by span as they come, shown whole by their IDs."""
