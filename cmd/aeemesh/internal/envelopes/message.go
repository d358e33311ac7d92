package envelopes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// MessageFlags are the flags from which "send" and "envelope new" make an
// envelope.
type MessageFlags struct {
	Kind   string // the envelope's type; "": a task, or an event to a bus or a person
	Stream bool   // ask for stream envelopes

	from, intent, corr, replyTo, priority, requires string
	decisionEvidence, format                        string
	humanApproval                                   bool
}

// MessageFlagNames are the flags of "send" that say what is in an envelope.
var MessageFlagNames = []string{"intent", "from", "corr", "priority", "requires", "decision-evidence", "human-approval", "format", "type", "stream"}

// Add adds the flags that both commands have.
func (f *MessageFlags) Add(flags *pflag.FlagSet) {
	flags.StringVarP(&f.intent, "intent", "i", "", "what is meant (default for a task: "+intents.AgentAsk+")")
	flags.StringVar(&f.from, "from", "", "who sends: an `entity` (default the key's, where it has one, else human.<your login>)")
	session.BindEnv(flags, "from", "AEEMESH_FROM")
	flags.StringVar(&f.corr, "corr", "", "correlation `id` (default a new one)")
	flags.StringVar(&f.priority, "priority", string(envelope.PriorityNormal), "low, normal, high or urgent")
	flags.StringVar(&f.requires, "requires", "", "constraints as a `JSON` object; the flags below add to it")
	flags.StringVar(&f.decisionEvidence, "decision-evidence", "", "ask how it was decided: none, minimal, standard or full")
	flags.BoolVar(&f.humanApproval, "human-approval", false, "ask for a person's approval")
	flags.StringVar(&f.format, "format", "", "format of the result that is wanted")
}

// humanMessage is the default intent of messages to a person's inbox.
const humanMessage = "human.message"

// Build makes the envelope. It is valid.
func (f *MessageFlags) Build(a *session.App, cmd *cobra.Command, to string, payload json.RawMessage) (*envelope.Envelope, error) {
	kind := envelope.Type(f.Kind)
	if kind == "" {
		kind = envelope.TypeTask
		if mesh.PublishesTo(to) {
			kind = envelope.TypeEvent
		}
	}
	if err := f.check(cmd); err != nil {
		return nil, err
	}
	intent := f.intent
	if err := intents.CheckName(intent); intent != "" && err != nil {
		return nil, outcome.Usagef(cmd, "--intent: %w", err)
	}
	switch {
	case intent != "":
	case kind == envelope.TypeTask:
		intent = intents.AgentAsk
	case kind == envelope.TypeEvent && subject.EntityType(to) == subject.TypeHuman:
		intent = humanMessage
	default:
		return nil, outcome.Usagef(cmd, "an envelope of type %s needs an --intent", kind)
	}
	e := envelope.New(kind, cmp.Or(f.from, a.DefaultFrom()), to, intent, payload)
	if f.corr != "" {
		e.Corr = f.corr
	}
	e.ReplyTo = f.replyTo
	e.Priority = envelope.Priority(f.priority)
	requires, err := f.requirements(a, cmd)
	if err != nil {
		return nil, err
	}
	e.Requires = requires
	if err := e.Validate(); err != nil {
		return nil, &outcome.UsageError{Err: err, Cmd: cmd}
	}
	if _, err := e.Requirements(); err != nil {
		return nil, &outcome.UsageError{Err: err, Cmd: cmd}
	}
	return e, nil
}

// check refuses wrong values of flags, before they are in an envelope, whose errors name its fields.
func (f *MessageFlags) check(cmd *cobra.Command) error {
	for _, w := range []struct {
		flag, value string
		allowed     []string
	}{
		{"type", f.Kind, []string{"task", "result", "event", "error", "stream"}},
		{"priority", f.priority, []string{"low", "normal", "high", "urgent"}},
		{"decision-evidence", f.decisionEvidence, []string{"none", "minimal", "standard", "full"}},
	} {
		if w.value == "" && w.flag != "priority" {
			continue
		}
		if err := outcome.OneOf(cmd, w.flag, w.value, w.allowed...); err != nil {
			return err
		}
	}
	if f.corr != "" && utf8.RuneCountInString(f.corr) < 8 {
		return outcome.Usagef(cmd, "--corr %q: it has at least 8 characters", f.corr)
	}
	return nil
}

// requireKeys are the keys of requires that this mesh knows
// (docs/nats-binding.md). Peers ignore other keys, so a misspelt key would have
// no effect.
var requireKeys = []string{"answer_by", "context", "decision_evidence", "escalate_to", "evidence", "format", "handed_by", "handoff", "human_approval",
	"lane", "mesh", "min_confidence", "not_before", "result_schema", "stream", "timeout_ms", "tree"}

// treeKeys are the members of requires.tree.
var treeKeys = []string{"deadline", "depth", "key", "max_depth", "max_iterations", "max_tasks", "root", "teams", "tokens", "usd", "waiting"}

// knownKeys refuses a member that is nearly a known one, and warns of other unknown ones.
func knownKeys(a *session.App, cmd *cobra.Command, where string, members map[string]json.RawMessage, known []string) error {
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if slices.Contains(known, name) || strings.HasPrefix(name, "x-") {
			continue
		}
		near := aaif.Nearest(name, known)
		if near == "" { // a part of a name is a misspelling, too: timeout for timeout_ms
			a.Term.Warn("%s: no agent of this mesh looks at %q; it is sent as it is", where, name)
			continue
		}
		return &outcome.UsageError{Err: fmt.Errorf("%s: %q is not a known key", where, name), Cmd: cmd, Hint: fmt.Sprintf("Did you mean %q? A key of your own begins with x-.", near)}
	}
	return nil
}

// requirements combines --requires and the flags that stand for its keys.
func (f *MessageFlags) requirements(a *session.App, cmd *cobra.Command) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if f.requires != "" {
		if err := json.Unmarshal([]byte(f.requires), &members); err != nil || members == nil {
			return nil, outcome.Usagef(cmd, "--requires %s: it must be a JSON object", f.requires)
		}
	}
	if err := knownKeys(a, cmd, "--requires", members, requireKeys); err != nil {
		return nil, err
	}
	var tree map[string]json.RawMessage
	if json.Unmarshal(members["tree"], &tree) == nil { // a misspelt bound would have no effect
		if err := knownKeys(a, cmd, "--requires: tree", tree, treeKeys); err != nil {
			return nil, err
		}
	}
	if f.decisionEvidence != "" {
		members["decision_evidence"] = envelope.AppendString(nil, f.decisionEvidence)
	}
	if f.format != "" {
		members["format"] = envelope.AppendString(nil, f.format)
	}
	if f.humanApproval {
		members["human_approval"] = json.RawMessage("true")
	}
	if f.Stream {
		members["stream"] = json.RawMessage("true")
	}
	if len(members) == 0 {
		return nil, nil
	}
	return json.Marshal(members)
}

// ParsePayload parses the argument PAYLOAD: a JSON object, "-" for stdin, @FILE, or
// plain text, which becomes {"text": …}.
func ParsePayload(a *session.App, cmd *cobra.Command, arg string) (json.RawMessage, error) {
	data, where := []byte(arg), "the payload"
	switch {
	case arg == "-":
		var err error
		if data, err = a.ReadWhole("-", maxInput); err != nil {
			return nil, err
		}
		where = "stdin"
	case strings.HasPrefix(arg, "@"):
		var err error
		if data, err = a.ReadWhole(arg[1:], maxInput); err != nil {
			return nil, err
		}
		where = arg[1:]
	}
	trimmed := bytes.TrimSpace(data)
	switch {
	case len(trimmed) == 0:
		return json.RawMessage("{}"), nil
	case trimmed[0] == '{':
		if !json.Valid(trimmed) {
			var v any
			return nil, outcome.Usagef(cmd, "%s is no JSON: %v", where, json.Unmarshal(trimmed, &v))
		}
		return trimmed, nil
	case trimmed[0] == '[' && json.Valid(trimmed):
		return nil, &outcome.UsageError{Err: fmt.Errorf("%s is a JSON array, and a payload must be an object", where), Cmd: cmd, Hint: "Give it a name: {\"items\": […]}."}
	}
	for at := 0; at < len(data); {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			return nil, &outcome.UsageError{Err: fmt.Errorf("%s is not UTF-8: byte 0x%02x at offset %d", where, data[at], at), Cmd: cmd,
				Hint: "Convert a text with iconv; bytes travel as base64 in a JSON object."}
		}
		at += n
	}
	return append(envelope.AppendString([]byte(`{"text":`), string(bytes.TrimRight(data, "\r\n"))), '}'), nil
}

// maxInput bounds the input from files and stdin; a NATS server accepts much
// less.
const maxInput = 64 << 20
