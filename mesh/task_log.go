package mesh

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/mesh/internal/service"
	"github.com/aeemesh/aeemesh/mesh/internal/telemetry"
)

// laneNames are the endpoints' names in the log.
var laneNames = [service.NumEndpoints]string{service.Task: "live", service.Ask: "ask", service.Work: "durable"}

// startSpan begins the span of the task. header is that of its message.
func (t *Task) startSpan(header nats.Header) telemetry.Span {
	h := t.host
	return telemetry.Start(telemetry.Begun{Tracer: h.tracer, Entity: h.Entity, Subject: h.live, Name: h.TraceHeader, Header: header, Task: t.Envelope})
}

// logEnd logs one line per task when this worker has ended it: sender, lane, duration,
// outcome and tokens used. It never logs a payload.
func (h *host) logEnd(t *Task, problem *envelope.Error) {
	ctx := context.Background()
	if !h.log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	e := t.Envelope
	attrs := append(make([]slog.Attr, 0, 16), slog.String("id", e.ID), slog.String("corr", e.Corr), slog.String("intent", e.Intent), slog.String("from", e.From),
		slog.String("to", e.To), slog.String("priority", string(e.Priority)), slog.String("instance", h.id), slog.String("lane", laneNames[t.endpoint()]),
		slog.Float64("duration_ms", float64(time.Since(t.queued).Microseconds())/1000))
	if t.run != nil {
		attrs = append(attrs, slog.String("run", t.run.ID()))
	}
	if problem != nil {
		attrs = append(attrs, slog.String("code", string(problem.Code)))
	}
	var used struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	}
	if usage := t.usage.Load(); usage != nil && json.Unmarshal(*usage, &used) == nil && used.Input+used.Output > 0 {
		attrs = append(attrs, slog.Int64("input_tokens", used.Input), slog.Int64("output_tokens", used.Output))
	}
	h.log.LogAttrs(ctx, slog.LevelInfo, "task ended", attrs...)
}
