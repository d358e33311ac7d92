package chain

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
)

// Limits of a chain.
const (
	Max     = 64      // links
	maxLink = 8 << 10 // bytes of a link's text
)

// skew is how far the clocks of a task's sender and of an agent may be apart.
const skew = 5 * time.Minute

// About is the payload of a link: the task that is to be answered.
type About struct {
	Task   string `json:"task"`   // its id
	Caller string `json:"caller"` // the entity that sent it
}

// NewLink returns the link with which from delegates a task of a corr to another agent,
// unsigned.
func NewLink(from, to, corr string, about About) (*envelope.Envelope, error) {
	payload, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	e := envelope.New(envelope.TypeEvent, from, to, intents.TaskHanded, payload)
	e.Corr, e.ReplyTo = corr, about.Task
	return e, nil
}

// Text returns a link as it is sent.
func Text(link *envelope.Envelope) (string, error) {
	raw, err := link.AppendJSON(nil)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// A Chain has at least one link. They are in the order in which the task was delegated.
type Chain struct {
	Links []*envelope.Envelope
	About About // of every link
}

// Parse reads links in the order in which the task was delegated. Each link must continue
// the one before, all must be about one task of one corr, and no agent may come twice. The
// error is an [*envelope.Error]: E_TREE_LIMIT for a circle, else E_REQUIRES.
func Parse(texts []string) (Chain, error) {
	if len(texts) == 0 || len(texts) > Max {
		return Chain{}, bad("a chain has 1 to %d links, this one %d", Max, len(texts))
	}
	c := Chain{Links: make([]*envelope.Envelope, len(texts))}
	for i, text := range texts {
		e, about, err := parseLink(text)
		if err != nil {
			return Chain{}, bad("link %d: %v", i+1, err)
		}
		switch before := i - 1; {
		case i == 0:
			c.About = about
		case about != c.About || e.Corr != c.Links[0].Corr:
			return Chain{}, bad("link %d is about another task", i+1)
		case e.From != c.Links[before].To:
			return Chain{}, bad("link %d is from %s, and %s had the task", i+1, clip.Text(e.From, 128), clip.Text(c.Links[before].To, 128))
		}
		if slices.ContainsFunc(c.Links[:i], func(l *envelope.Envelope) bool { return l.From == e.To }) || e.From == e.To {
			return Chain{}, envelope.Errorf(envelope.CodeTreeLimit, "the task has come back to %s, which had delegated it", clip.Text(e.To, 128))
		}
		c.Links[i] = e
	}
	return c, nil
}

func parseLink(text string) (*envelope.Envelope, About, error) {
	var about About
	if len(text) > maxLink {
		return nil, about, fmt.Errorf("it has more than %d characters", maxLink)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, about, errors.New("it is no base64url")
	}
	e, err := envelope.ParseLimits(raw, envelope.Limits{MaxBytes: maxLink})
	if err != nil {
		return nil, about, err
	}
	if e.Type != envelope.TypeEvent || e.Intent != intents.TaskHanded {
		return nil, about, fmt.Errorf("it is no event of intent %s", intents.TaskHanded)
	}
	if err := jsonv2.Unmarshal(e.Payload, &about); err != nil || about.Task == "" || about.Caller == "" || e.ReplyTo != about.Task {
		return nil, about, errors.New("it does not say which task was delegated")
	}
	return e, about, nil
}

func bad(format string, args ...any) error {
	return envelope.Errorf(envelope.CodeRequires, "requires.handoff: "+format, args...)
}

// First returns the link of the agent that the task was sent to.
func (c Chain) First() *envelope.Envelope { return c.Links[0] }

// Last returns the link to the agent that has the task.
func (c Chain) Last() *envelope.Envelope { return c.Links[len(c.Links)-1] }

// Entities returns the agents that delegated the task, in order.
func (c Chain) Entities() []string {
	out := make([]string, len(c.Links))
	for i, l := range c.Links {
		out[i] = l.From
	}
	return out
}

// Verify verifies the signatures of all links by the rules for envelopes of their senders, at the
// time now. The task may have been worked on for long since it was delegated, so the key of a link
// may have expired since its ts ([sign.Verifier.VerifyLate]). A link is not older than the original
// task, whose id tells its time in most cases.
func (c Chain) Verify(v sign.Verifier, now time.Time) error {
	var since time.Time
	if at, ok := envelope.IDTime(c.About.Task); ok {
		since = at.Add(-skew)
	}
	for _, e := range c.Links {
		if _, err := v.VerifyLate(e, since, now); err != nil {
			return err
		}
	}
	return nil
}
