package traffic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/intents"
)

// sightingJSON is a line of the output of "watch --json".
type sightingJSON struct {
	Time     string            `json:"time"`
	Subject  string            `json:"subject"`
	Stored   bool              `json:"stored,omitempty"`
	ID       string            `json:"id,omitempty"`
	Type     envelope.Type     `json:"type"`
	From     string            `json:"from"`
	To       string            `json:"to"`
	Intent   string            `json:"intent"`
	Corr     string            `json:"corr,omitempty"`
	ReplyTo  string            `json:"reply_to,omitempty"`
	Priority envelope.Priority `json:"priority"`
	KID      string            `json:"kid,omitempty"`       // the key that the signature names
	Verified bool              `json:"verified,omitempty"`  // the signature is valid, by a key that is trusted here
	SigError envelope.Code     `json:"sig_error,omitempty"` // why it is not verified
	Status   string            `json:"status,omitempty"`
	Payload  json.RawMessage   `json:"payload,omitempty"`
}

// PrintSighting prints one line of traffic: time, type, from → to, intent, corr,
// status.
func PrintSighting(t *term.Terminal, s Sighting, payload bool) {
	e := s.Env
	if t.JSON {
		out := sightingJSON{
			Time: s.At.UTC().Format(envelope.TimeLayout), Subject: s.Subject, Stored: s.stored, ID: e.ID, Type: e.Type, From: e.From, To: e.To,
			Intent: e.Intent, Corr: e.Corr, ReplyTo: e.ReplyTo, Priority: e.Priority,
			KID: s.By.kid, Verified: s.By.kid != "" && s.By.err == "", SigError: s.By.err, Status: statusOf(e),
		}
		if payload {
			out.Payload = e.Payload
		}
		if err := t.Object(out); err != nil {
			t.Warn("%s", outcome.Text(err))
		}
		return
	}
	t.Line("%s", SightingText(t.Data, s, payload))
}

// SightingText formats the line.
func SightingText(t *term.Stream, s Sighting, payload bool) term.Painted {
	e := s.Env
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", t.Paint(term.StyleFaint, s.At.Local().Format("15:04:05.000")), t.Paint(term.StyleType[string(e.Type)], fmt.Sprintf("%-6s", e.Type)))
	fmt.Fprintf(&b, " %s → %s  %s", term.OneLine(e.From), term.OneLine(e.To), t.Paint(term.StyleStrong, term.OneLine(e.Intent)))
	if e.Corr != "" {
		fmt.Fprintf(&b, "  %s", t.Paint(term.StyleFaint, term.OneLine(e.Corr)))
	}
	if status := term.OneLine(strings.TrimSpace(statusOf(e) + " " + s.By.Words())); status != "" {
		style := term.StyleFaint
		if e.Type == envelope.TypeError || strings.HasPrefix(status, "E_") {
			style = term.StyleError
		}
		fmt.Fprintf(&b, "  %s", t.Paint(style, status))
	}
	if payload {
		fmt.Fprintf(&b, "\n    %s", plain.JSON(term.Compact(e.Payload)))
	}
	return term.Painted(b.String())
}

// statusOf describes an envelope in a few words: the code of an error, the
// number of a stream envelope, the content of a mesh event.
func statusOf(e *envelope.Envelope) string {
	var p struct {
		Seq      int             `json:"seq"`
		Task     string          `json:"task"`
		Sender   string          `json:"sender"`
		Duration float64         `json:"duration_ms"`
		Code     string          `json:"code"`
		Status   string          `json:"status"`
		Instance string          `json:"instance"`
		Error    json.RawMessage `json:"error"`
	}
	var parts []string
	known := json.Unmarshal(e.Payload, &p) == nil
	switch {
	case e.Type == envelope.TypeError:
		err := envelope.ErrorOf(e)
		parts = append(parts, string(err.Code))
		if err.Retryable {
			parts = append(parts, "retryable")
		}
	case e.Type == envelope.TypeResult:
		parts = append(parts, "ok")
	case e.Type == envelope.TypeStream && known && p.Seq > 0:
		parts = append(parts, fmt.Sprintf("#%d", p.Seq))
	case e.Type == envelope.TypeEvent && known && strings.HasPrefix(e.Intent, "mesh.task."):
		if len(p.Error) > 0 {
			parts = append(parts, string(envelope.ErrorOf(&envelope.Envelope{Payload: p.Error}).Code))
		}
		if e.Intent != intents.TaskStarted {
			parts = append(parts, fmt.Sprintf("%.1fms", p.Duration))
		}
		parts = append(parts, "for "+p.Sender)
	case e.Type == envelope.TypeEvent && intents.RunEvent(e.Intent):
		parts = append(parts, stepWords(e))
	case e.Intent == intents.AlertRaised && known:
		parts = append(parts, p.Code, "from "+p.Sender)
	case known && strings.HasPrefix(e.Intent, "mesh.agent."):
		parts = append(parts, p.Status, "instance "+p.Instance)
	}
	if e.Type == envelope.TypeTask && e.Priority != envelope.PriorityNormal {
		parts = append(parts, string(e.Priority))
	}
	return strings.Join(parts, " ")
}
