package orchestrate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/schema"
)

// Extension is the root extension of a document. Its member orchestration holds
// the settings of a team for which AAIF has no field. Other runtimes ignore it;
// without it the defaults apply.
const Extension = "x-aeemesh"

// DefaultWidth is how many members of a swarm work at once, unless the document
// says otherwise.
const DefaultWidth = 64

// Extras are a document's settings of its team beyond AAIF.
type Extras struct {
	// Steps are settings of single members, by the alias of a subagent, or by
	// its ref if it has none.
	Steps map[string]StepExtras `json:"steps,omitempty"`

	// VoteOn is the JSON Pointer (RFC 6901) of the part of each output that
	// counts in a majority vote. Default "", the whole output.
	VoteOn string `json:"vote_on,omitempty"`
	// Tie decides a vote that several outputs win, and between several outputs
	// with the highest score. Default fail, of scores first.
	Tie Tie `json:"tie,omitempty"`
	// Synthesizer is the alias of the subagent that merges. Default: the
	// subagent whose definition has the role synthesizer, or whose alias is
	// "synthesizer".
	Synthesizer string `json:"synthesizer,omitempty"`
	// Width is how many members of a swarm work at once. Default [DefaultWidth].
	Width int `json:"width,omitempty"`
	// MinResults is how many members must succeed for a swarm to go on. Default 1.
	MinResults int `json:"min_results,omitempty"`
	// Tree limits the tree of tasks below a task of the team.
	Tree TreeExtras `json:"tree,omitzero"`
}

// TreeExtras are a document's limits for the tree of tasks below its team.
type TreeExtras struct {
	// MaxIterations is how many turns all agents of the tree, including the
	// team's own model, may take for one task of the team. Default: the mesh's
	// limit for a tree.
	MaxIterations int64 `json:"max_iterations,omitempty"`
}

// Tie decides a vote without a single winner.
type Tie string

// The rules for ties.
const (
	TieFail  Tie = "fail"  // the task fails; the default of a vote
	TieFirst Tie = "first" // the first in document order wins; the default of scores
	TieMerge Tie = "merge" // all outputs are merged, as without a vote
)

// OnError decides about a step that has failed for good.
type OnError string

// The values of OnError.
const (
	OnErrorFail     OnError = "fail"     // the task fails; the default in pipelines and routers
	OnErrorSkip     OnError = "skip"     // the next step gets this one's input
	OnErrorFallback OnError = "fallback" // the subagent of role fallback does the step instead
)

// StepExtras are a document's settings of one member.
type StepExtras struct {
	// Input computes the member's input: {"lang": "jmespath", "expr": …} over
	// the facts of a condition. Default: the output of the previous step, or
	// the task's own payload.
	Input *aaif.Condition `json:"input,omitempty"`
	// Intent is the intent of the member's tasks. Default: its entity and
	// ".run".
	Intent string `json:"intent,omitempty"`
	// TimeoutSeconds is the timeout of each try. Default: the task's remaining
	// time.
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty"`
	// MaxRetries is how often a transient failure is retried. Default on the
	// live lane: runtime.max_retries of the member's definition if it is known,
	// else 2. Default on the durable lane: 0, because the member itself
	// retries.
	MaxRetries *int `json:"max_retries,omitempty"`
	// RetryBackoff is fixed, linear or exponential. Default: the one of the
	// member's definition.
	RetryBackoff string `json:"retry_backoff,omitempty"`
	// OnError decides how the task continues when the step has failed for good.
	OnError OnError `json:"on_error,omitempty"`
	// EscalateTo receives the task if it was not done in time, mostly by a
	// person: an alias or an entity.
	EscalateTo string `json:"escalate_to,omitempty"`
	// ResultSchema is a JSON Schema that a person's answer must fit; the person
	// is shown it. Default: none, and for judges the schema of their answers.
	ResultSchema json.RawMessage `json:"result_schema,omitempty"`
}

// Limits of the settings of a step.
const (
	MaxTimeoutSeconds = 10 * 366 * 24 * 60 * 60 // ten years
	MaxStepRetries    = 1000
)

// Timeout is TimeoutSeconds as a duration; 0: none.
func (s StepExtras) Timeout() time.Duration {
	return time.Duration(s.TimeoutSeconds * float64(time.Second))
}

// ExtrasOf reads the extension. An unknown member is an error, because a typo
// must not silently change what an agent does.
func ExtrasOf(def *aaif.Definition) (Extras, error) {
	var x Extras
	var root map[string]json.RawMessage
	if len(def.Extensions) == 0 {
		return x, nil
	}
	if err := json.Unmarshal(def.Extensions, &root); err != nil {
		return x, err
	}
	var ours struct {
		Orchestration json.RawMessage `json:"orchestration"`
	}
	if raw := root[Extension]; raw != nil {
		if err := json.Unmarshal(raw, &ours); err != nil {
			return x, fmt.Errorf("/%s: %w", Extension, err)
		}
	}
	if ours.Orchestration == nil {
		return x, nil
	}
	dec := json.NewDecoder(bytes.NewReader(ours.Orchestration))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&x); err != nil {
		return x, fmt.Errorf("/%s/orchestration: %w", Extension, err)
	}
	return x, x.check()
}

func (x *Extras) check() error {
	at := "/" + Extension + "/orchestration/"
	switch x.Tie {
	case "", TieFail, TieFirst, TieMerge:
	default:
		return fmt.Errorf("%stie: %q is none of fail, first, merge", at, x.Tie)
	}
	if x.Tree.MaxIterations < 0 {
		return fmt.Errorf("%stree/max_iterations: it cannot be negative", at)
	}
	if x.Width < 0 || x.MinResults < 0 {
		return fmt.Errorf("%swidth, min_results: neither can be negative", at)
	}
	if _, err := ParsePointer(x.VoteOn); err != nil {
		return fmt.Errorf("%svote_on: %w", at, err)
	}
	var schemas schema.Pool
	for alias, s := range x.Steps {
		at := stepPointer(alias) + "/"
		switch s.OnError {
		case "", OnErrorFail, OnErrorSkip, OnErrorFallback:
		default:
			return fmt.Errorf("%son_error: %q is none of fail, skip, fallback", at, s.OnError)
		}
		switch s.RetryBackoff {
		case "", "fixed", "linear", "exponential":
		default:
			return fmt.Errorf("%sretry_backoff: %q is none of fixed, linear, exponential", at, s.RetryBackoff)
		}
		if s.ResultSchema != nil {
			if _, err := schemas.Compile(s.ResultSchema); err != nil {
				return fmt.Errorf("%sresult_schema: %w", at, err)
			}
		}
		if s.Intent != "" {
			if err := intents.CheckName(s.Intent); err != nil {
				return fmt.Errorf("%sintent: %w", at, err)
			}
			if intents.Reserved(s.Intent) {
				return fmt.Errorf("%sintent: %s is reserved: names under aee. and mesh. are not an application's", at, s.Intent)
			}
		}
		if s.TimeoutSeconds > MaxTimeoutSeconds {
			return fmt.Errorf("%stimeout_seconds: it is more than %d, ten years", at, MaxTimeoutSeconds)
		}
		if s.MaxRetries != nil && *s.MaxRetries > MaxStepRetries {
			return fmt.Errorf("%smax_retries: it is more than %d", at, MaxStepRetries)
		}
		if s.TimeoutSeconds < 0 || s.MaxRetries != nil && *s.MaxRetries < 0 {
			return fmt.Errorf("%stimeout_seconds, max_retries: neither can be negative", at)
		}
	}
	return nil
}

// stepPointer returns the JSON pointer of a step's extras.
func stepPointer(alias string) string {
	return string(jsontext.Pointer("/" + Extension + "/orchestration/steps").AppendToken(alias))
}
