package schemas

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/intents/template"
)

func checkCommand(a *session.App) *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|DIR...",
		Short: "Check templates before they are published",
		Long: `Checks schema templates: files, or folders of files that end in .sdsi.json. It
prints all that is wrong with each, and connects to nothing.`,
		Example: `  aeemesh schema check templates/
  aeemesh schema check flight_booking.sdsi.json`,
		Args: outcome.Arguments("FILE|DIR..."),
		RunE: a.Do(func(_ context.Context, _ *cobra.Command, args []string) error {
			var bad []error
			for _, name := range args {
				all, err := template.Load(name)
				if err != nil {
					bad = append(bad, err)
				}
				for _, t := range all {
					if a.Term.JSON {
						if err := a.Term.Object(t.Listed()); err != nil {
							return err
						}
						continue
					}
					a.Term.Good("%s: scenario %s, %d keys", t.SchemaID, t.Scenario, len(t.Keys))
				}
			}
			return errors.Join(bad...)
		}),
	}
}
