// Package health serves what orchestrators and monitoring ask a process over
// HTTP:
//
//	GET /healthz   200 as long as the process answers
//	GET /readyz    200 where all checks hold, 503 otherwise; both with the checks as JSON
//	GET /metrics   what Prometheus collects
//
// Nothing is asked for a password, so the answers hold nothing that is secret:
// names of agents and instances, states and counts. Bind the address where only
// those can reach it who may know that.
package health
