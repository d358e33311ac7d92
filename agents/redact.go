package agents

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/tool"
)

// redacting removes secrets from a tool's description, results and errors: a service may send back
// the credential that it gets, which would then reach the model, the checkpoint and the logs.
type redacting struct {
	tool.Tool
	r *secret.Redactor
}

// redact wraps a tool in redacting, if there may be secrets to remove.
func redact(t tool.Tool, r *secret.Redactor) tool.Tool {
	if r == nil {
		return t
	}
	return redacting{t, r}
}

// RepeatSafe returns the tool's own declaration.
func (t redacting) RepeatSafe() bool { return tool.IsRepeatSafe(t.Tool) }

// Definition returns the tool's definition, with its schemas redacted. Arguments are validated by
// it, so the errors that quote it contain no secret either.
func (t redacting) Definition() tool.Definition {
	d := t.Tool.Definition()
	d.Description, d.Parameters, d.Output = t.r.Scrub(d.Description), t.r.JSON(d.Parameters), t.r.JSON(d.Output)
	return d
}

// Call calls the tool and redacts its result or error.
func (t redacting) Call(ctx context.Context, args json.RawMessage) (json.RawMessage, error) {
	result, err := t.Tool.Call(ctx, args)
	if err != nil {
		return nil, t.failure(err)
	}
	return t.r.JSON(result), nil
}

func (t redacting) failure(err error) error {
	var failed *tool.Error
	if !errors.As(err, &failed) {
		return t.r.Error(err)
	}
	clean := *failed
	clean.Message, clean.Err = t.r.Scrub(failed.Message), t.r.Error(failed.Err)
	return &clean
}
