// Package telemetry makes the OpenTelemetry spans of received tasks ([Span]) and the metrics
// of tasks ([Telemetry]) and of the durable lanes ([Lane]). Package tracing makes the spans
// of sent tasks. docs/telemetry.md lists them.
//
// It stands mainly on the OpenTelemetry API and package tracing. It identifies an agent by its
// entity, and a task by its envelope.
package telemetry
