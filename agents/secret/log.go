package secret

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
)

// LogHandler wraps a handler. It removes the secrets that r knows from messages
// and attribute values, in the form in which they would be logged. It is a last
// resort: log records should contain no secrets.
func LogHandler(next slog.Handler, r *Redactor) slog.Handler {
	if r == nil {
		return next
	}
	return logHandler{next, r}
}

type logHandler struct {
	next slog.Handler
	r    *Redactor
}

// Enabled calls next.
func (h logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle scrubs a record and passes it on.
func (h logHandler) Handle(ctx context.Context, rec slog.Record) error {
	clean := slog.NewRecord(rec.Time, rec.Level, h.r.Scrub(rec.Message), rec.PC)
	rec.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.next.Handle(ctx, clean)
}

// WithAttrs scrubs the attributes and passes them on.
func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return logHandler{h.next.WithAttrs(clean), h.r}
}

// WithGroup calls next.
func (h logHandler) WithGroup(name string) slog.Handler {
	return logHandler{h.next.WithGroup(name), h.r}
}

func (h logHandler) attr(a slog.Attr) slog.Attr {
	a.Value = a.Value.Resolve()
	switch a.Value.Kind() {
	case slog.KindString:
		a.Value = slog.StringValue(h.r.Scrub(a.Value.String()))
	case slog.KindGroup:
		var clean []slog.Attr
		for _, member := range a.Value.Group() {
			clean = append(clean, h.attr(member))
		}
		a.Value = slog.GroupValue(clean...)
	case slog.KindAny:
		// A handler may encode the value as text or as JSON.
		v := a.Value.Any()
		if b := reflect.ValueOf(v); b.Kind() == reflect.Slice && b.Type().Elem().Kind() == reflect.Uint8 {
			if text := string(b.Bytes()); h.r.Holds(text) {
				a.Value = slog.StringValue(h.r.Scrub(text))
			}
			break
		}
		asJSON, err := json.Marshal(v)
		switch text := fmt.Sprintf("%+v", v); {
		case err == nil && h.r.Holds(string(asJSON)): // as text, bytes would be printed as numbers
			a.Value = slog.StringValue(h.r.Scrub(string(asJSON)))
		case h.r.Holds(text):
			a.Value = slog.StringValue(h.r.Scrub(text))
		}
	}
	return a
}
