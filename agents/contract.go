package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/intents"
)

// contract holds the intents and schemas of the tasks that an agent accepts and
// of the results that it returns.
type contract struct {
	registry *intents.Registry
	// enforced is the intent whose schemas apply to tasks of unregistered
	// intents; "" if the document has no io schemas.
	enforced string
}

// RunIntent is the intent under which an agent publishes its document's io
// schemas: the entity id and ".run", as in agent.invoice_chaser.run. Characters
// that are not allowed in an intent become "_".
func RunIntent(entity string) string { return intents.RunIntent(entity) }

// newContract registers the agent's own intents: [RunIntent] with the
// document's io schemas; agent.ask, if unknown intents are refused, so that
// plain text still has an intent; and those of the operator's folder, which may
// hold the schema of RunIntent's errors.
func newContract(entity string, def *aaif.Definition, opts Options) (*contract, error) {
	c := &contract{registry: intents.NewRegistry()}
	if entity == "" {
		return c, nil // notices have reported it already
	}
	var in, out json.RawMessage
	if io := def.Agent.IO; io != nil {
		in, out = io.InputSchema, io.OutputSchema
	}
	run := intents.FromIO(RunIntent(entity), in, out)
	var bad []error
	if err := c.registry.Register(run); err != nil {
		bad = append(bad, fmt.Errorf("/agent/io: %w", err))
	} else if in != nil || out != nil {
		c.enforced = run.Intent
	}
	if opts.IntentsDir != "" {
		if err := c.loadDir(opts.IntentsDir, run); err != nil {
			bad = append(bad, fmt.Errorf("intents of %s: %w", opts.IntentsDir, err))
		}
	}
	if opts.RefuseUnknown && len(bad) == 0 && !c.registry.Has(intents.AgentAsk) {
		if err := c.registry.Register(intents.FromIO(intents.AgentAsk, in, out)); err != nil {
			bad = append(bad, err)
		}
	}
	return c, errors.Join(bad...)
}

// loadDir registers the intents of the operator's folder. For the agent's own
// intent the folder may hold the error schema only, for which documents have no
// member.
func (c *contract) loadDir(dir string, run intents.Definition) error {
	found, err := intents.ReadFS(os.DirFS(dir))
	if err != nil {
		return err
	}
	own := slices.IndexFunc(found, func(d intents.Definition) bool { return d.Intent == run.Intent })
	if own < 0 {
		return c.registry.Register(found...)
	}
	if found[own].Task != nil || found[own].Result != nil {
		return fmt.Errorf("%s: its input and output schemas are the document's (io); only %[1]s.error.schema.json may be here", run.Intent)
	}
	run.Error = found[own].Error
	return errors.Join(c.registry.Replace(run), c.registry.Register(slices.Delete(found, own, own+1)...))
}

// schema returns the schema of an intent's results, nil if there is none.
func (c *contract) schema(intent string) *intents.Schema {
	if !c.registry.Has(intent) && c.enforced != "" {
		intent = c.enforced
	}
	return c.registry.Schema(intent, intents.Result)
}

// fits validates a result's payload against its intent's schema.
func (c *contract) fits(intent string, payload json.RawMessage) error {
	s := c.schema(intent)
	if s == nil {
		return nil
	}
	return s.Validate(payload)
}
