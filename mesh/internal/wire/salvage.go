package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope"
)

// MaxName bounds, in bytes, the fields id, from, intent and corr: they are remembered,
// repeated in replies and published on the bus.
const MaxName = 1024

// MaxCount bounds the counts that a peer states: a record holds integers up to 2^53-1 only, and what
// is counted here is added to them.
const MaxCount = 1 << 52

// Oversized is an envelope with a field that is longer than MaxName.
type Oversized struct {
	field string
	Env   *envelope.Envelope
}

// Error names the field.
func (o *Oversized) Error() string {
	return fmt.Sprintf("%s has more than %d bytes", o.field, MaxName)
}

// Bounded returns an [Oversized] if a field of e is longer than MaxName.
func Bounded(e *envelope.Envelope) error {
	if max(len(e.ID), len(e.From), len(e.Intent), len(e.Corr)) <= MaxName {
		return nil
	}
	field := "corr"
	switch {
	case len(e.ID) > MaxName:
		field = "id"
	case len(e.From) > MaxName:
		field = "from"
	case len(e.Intent) > MaxName:
		field = "intent"
	}
	return &Oversized{field, e}
}

// UnknownID stands for an id that could not be read, where an error envelope
// must name one.
const UnknownID = "00000000000000000000000000"

// Salvage fills in the fields that an answer to a broken message needs.
func Salvage(e *envelope.Envelope, entity string) *envelope.Envelope {
	usable := func(s string, least int) bool {
		return len(s) <= MaxName && utf8.RuneCountInString(s) >= least
	}
	out := envelope.New(envelope.TypeTask, "unknown", entity, intentRefused, nil)
	out.ID = UnknownID
	if usable(e.ID, 8) {
		out.ID = e.ID
	}
	if usable(e.Corr, 8) {
		out.Corr = e.Corr
	}
	if usable(e.From, 1) {
		out.From = e.From
	}
	if usable(e.Intent, 3) {
		out.Intent = e.Intent
	}
	return out
}

// SalvageFrom is [Salvage] of what an error of [Receive] says about the envelope.
func SalvageFrom(err error, entity string) *envelope.Envelope {
	return Salvage(Readable(err), entity)
}

// Readable returns the fields that could be read of an envelope that [Receive] has refused.
func Readable(err error) *envelope.Envelope {
	var bad *envelope.InvalidError
	var large *Oversized
	switch {
	case errors.As(err, &bad):
		return bad.Partial()
	case errors.As(err, &large):
		return large.Env
	}
	return &envelope.Envelope{}
}

// intentRefused is the intent of an answer to a message whose own intent could
// not be read.
const intentRefused = "mesh.envelope.refused"
