// Package telemetry makes the OpenTelemetry spans and metrics of the mesh: of tasks
// ([Telemetry], [Span]) and of the durable lanes ([Lane]). docs/telemetry.md lists them.
//
// It stands on the OpenTelemetry API and package tracing. It knows an agent by its entity,
// and a task by its envelope.
package telemetry
