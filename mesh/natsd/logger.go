package natsd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
)

// logger hands nats-server's words to slog, and keeps the first fatal one:
// nats-server expects its logger to end the process then.
type logger struct {
	log   *slog.Logger
	fatal chan error // holds the first
}

func newLogger(log *slog.Logger) *logger {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &logger{log: log, fatal: make(chan error, 1)}
}

func (l *logger) debug() bool { return l.log.Enabled(context.Background(), slog.LevelDebug) }

func (l *logger) write(level slog.Level, format string, args []any) {
	if ctx := context.Background(); l.log.Enabled(ctx, level) {
		l.log.Log(ctx, level, "nats server", "text", fmt.Sprintf(format, args...))
	}
}

// Noticef, and the methods after it, are nats-server's Logger.
func (l *logger) Noticef(format string, args ...any) { l.write(slog.LevelInfo, format, args) }
func (l *logger) Warnf(format string, args ...any)   { l.write(slog.LevelWarn, format, args) }
func (l *logger) Errorf(format string, args ...any)  { l.write(slog.LevelError, format, args) }
func (l *logger) Debugf(format string, args ...any)  { l.write(slog.LevelDebug, format, args) }
func (l *logger) Tracef(format string, args ...any)  { l.write(slog.LevelDebug, format, args) }

func (l *logger) Fatalf(format string, args ...any) {
	l.write(slog.LevelError, format, args)
	select {
	case l.fatal <- fmt.Errorf(format, args...):
	default: // the first one is the cause
	}
}
