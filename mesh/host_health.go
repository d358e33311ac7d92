package mesh

import "maps"

// Health is an agent's health, as the agent itself reports it.
type Health struct {
	Status  string         // "healthy", "degraded" or "unhealthy" (AEE, aee.status.health)
	Details map[string]any // shown with it
}

// health returns the agent's own health, degraded or unhealthy if the mesh sees a problem: the
// worker drains, its queue is full, or its durable lane has a problem.
func (h *host) health() Health {
	out := Health{Status: "healthy"}
	if h.Health != nil {
		out = h.ownHealth()
	}
	details := map[string]any{
		"running": h.active.Load(), "queued": h.queue.Len(),
		"concurrency": h.Concurrency, "queue": max(0, h.Queue),
	}
	maps.Copy(details, out.Details)
	out.Details = details
	switch {
	case out.Status == "healthy" && h.stopping.Load():
		out.Status = "degraded"
		details["reason"] = "shutting down"
	case out.Status == "healthy" && h.Queue > 0 && h.queue.Len() >= h.Queue:
		out.Status = "degraded"
		details["reason"] = "the queue is full"
	}
	if h.durable != nil {
		lane, status, reason := h.durable.report()
		details["durable"] = lane
		if status == "unhealthy" || status != "" && out.Status == "healthy" {
			out.Status = status
			details["reason"] = reason
		}
	}
	return out
}

// ownHealth calls Agent.Health. A panic counts as unhealthy.
func (h *host) ownHealth() (out Health) {
	defer func() {
		if p := recover(); p != nil {
			h.counts.panics.Add(1)
			h.log.Error("health check panicked", "panic", p)
			out = Health{Status: "unhealthy", Details: map[string]any{"reason": "the health check panicked"}}
		}
	}()
	return h.Health()
}
