package demo

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/examples/code-reviewer/review"
)

// demoToolInput is the size of the largest arguments of a tool of the demo, in bytes.
const demoToolInput = 8 << 20

// demoToolCommand is the program behind the function tools of the demo's team
// ("worker --tool"), so that the demo needs no program but this one.
func demoToolCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:    "tool NAME ROOT",
		Short:  "Call a tool of the demo's team",
		Hidden: true,
		Args:   outcome.Arguments("NAME", "ROOT"),
		RunE: a.Do(func(ctx context.Context, _ *cobra.Command, args []string) error {
			input, err := io.ReadAll(io.LimitReader(a.Stdin, demoToolInput))
			if err != nil {
				return err
			}
			result, err := review.Call(ctx, review.Tools(args[1], review.Checks{}), args[0], input)
			if err != nil {
				_ = a.Term.Object(map[string]string{"error": err.Error()}) // the worker tells the model
				return outcome.ErrQuiet
			}
			return a.Term.Object(json.RawMessage(result))
		}),
	}
}
