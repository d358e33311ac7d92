// Package health serves a process's health and metrics over HTTP, for
// orchestrators and monitoring:
//
//	GET /healthz   200 as long as the process answers
//	GET /readyz    200 where all checks hold, 503 otherwise; both with the checks as JSON
//	GET /metrics   metrics for Prometheus
//
// There is no authentication, so the answers contain no secrets: names of
// agents and instances, states and counts. Bind the address to a network whose
// clients may know these.
package health
