package wire

import (
	"context"
	"log/slog"

	"github.com/aeemesh/aeemesh/envelope"
)

// LogReceived logs a received envelope at level debug: the fields of AEE validity rule 8,
// and never the payload.
func LogReceived(log *slog.Logger, e *envelope.Envelope) {
	ctx := context.Background()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	log.LogAttrs(ctx, slog.LevelDebug, "envelope received", slog.String("id", e.ID), slog.String("corr", e.Corr), slog.String("intent", e.Intent),
		slog.String("from", e.From), slog.String("to", e.To), slog.String("type", string(e.Type)), slog.String("priority", string(e.Priority)))
}
