// Package service answers for an agent as a NATS micro service (ADR-32), and counts its answers.
//
// The library's own service runs handlers one after the other and measures only them. An agent's
// tasks run concurrently, so the agent keeps its own counters ([Stats]).
package service
