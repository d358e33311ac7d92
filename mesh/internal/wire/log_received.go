package wire

import (
	"context"
	"log/slog"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// LogReceived logs a received envelope at level debug: the fields of AEE validity rule 8,
// and never the payload.
func LogReceived(log *slog.Logger, e *envelope.Envelope) {
	logFields(log, "envelope received", e)
}

// LogRefused is [LogReceived] of an envelope that is refused. If it is not valid, e has the
// fields that could be read.
func LogRefused(log *slog.Logger, e *envelope.Envelope, code envelope.Code, more ...slog.Attr) {
	logFields(log, "envelope refused", e, append(more, slog.String("code", string(code)))...)
}

func logFields(log *slog.Logger, msg string, e *envelope.Envelope, more ...slog.Attr) {
	ctx := context.Background()
	if !log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	text := func(name, value string) slog.Attr { return slog.String(name, clip.Text(value, MaxName)) }
	log.LogAttrs(ctx, slog.LevelDebug, msg, append([]slog.Attr{text("id", e.ID), text("corr", e.Corr), text("intent", e.Intent),
		text("from", e.From), text("to", e.To), text("type", string(e.Type)), text("priority", string(e.Priority))}, more...)...)
}
