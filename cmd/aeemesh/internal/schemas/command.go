package schemas

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/intents/template"
)

// An Operator reads from an operator's configuration what commands need.
type Operator struct {
	// Filler makes the model of this name that fills in templates; config is the value of
	// --config. done ends the model.
	Filler func(cmd *cobra.Command, config, name string) (m template.Model, done func(), err error)
	// Learning puts the section learning of this file into a configuration, and returns
	// the name of its model, which is not made.
	Learning func(cmd *cobra.Command, config string, to *learn.Config) (model string, err error)
}

// Command returns "aeemesh schema". ask is "aeemesh ask", which is here, too.
func Command(a *session.App, o Operator, ask *cobra.Command) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "schema",
		Short: "Show what agents want to know, by scenario",
		Long: `An agent may publish schema templates: for each scenario the keys that a task's
payload has, with their types and meaning. A client fills one and sends it with
"ask" or "send"; the agent checks it and needs no model for that. "worker
--templates" publishes them; of a document's io.input_schema a worker makes one
by itself. With "worker --learn", what many clients want and no key has a place
for becomes a key: "stats" shows what, and "approve" lets it.`,
		Example: `  aeemesh schema list
  aeemesh schema list --scenario flight_booking
  aeemesh schema show agent.flights flight_booking
  aeemesh schema check templates/
  aeemesh schema stats agent.flights`,
	}, listCommand(a), showCommand(a), historyCommand(a), diffCommand(a), checkCommand(a), fillCommand(a, o), ask,
		statsCommand(a), pendingCommand(a), approveCommand(a), rejectCommand(a), forgetCommand(a), simulateCommand(a, o))
}

// withNode runs f with a node of the user.
func withNode(a *session.App, ctx context.Context, cmd *cobra.Command, f func(context.Context, *session.Session) error) error {
	s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true, Status: session.QuietAboutPermissions(session.ConnectionStatus(a.Term, false))})
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := a.Limited(ctx)
	defer cancel()
	return f(ctx, s)
}

// checkEntity refuses an argument that is no entity.
func checkEntity(cmd *cobra.Command, entity string) error {
	if err := subject.ValidateEntity(entity); err != nil {
		return outcome.Usagef(cmd, "%w", err)
	}
	return nil
}
