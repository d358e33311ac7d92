package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/workers"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// sender checks a sender for which no agent was named: it reports to which of
// the agents that answer it may send.
func (d *doctor) sender(ctx context.Context) {
	const named = "--entity ENTITY names an agent that this user sends to; \"aeemesh auth perms ENTITY --sender\" prints what that takes."
	if d.inbox = d.maySubscribe(d.conn.NewRespInbox()); !d.inbox {
		d.tell("permissions", "fail", "A sender needs an inbox prefix of its own: --inbox-prefix names it.", "this user may not listen for answers")
		return
	}
	node, err := d.node()
	if err != nil {
		d.tell("agent", "fail", "", "%s", outcome.Text(err))
		return
	}
	found, err := workers.Discover(ctx, node, "", d.app.Conn.Wait()/5)
	switch {
	case err != nil:
		d.tell("permissions", "warn", named, "not tried whether this user may send: no agent is named, and %s", outcome.Text(err))
		return
	case len(found) == 0:
		d.tell("permissions", "warn", named, "not tried whether this user may send: no agent is named, and none answers")
		return
	}
	entities := workers.TakersOf(found)
	var may, mayNot []string
	untried := ""
	for i, entity := range slices.Sorted(maps.Keys(entities)) {
		if i == maxPinged {
			untried = fmt.Sprintf("; %d more were not tried", len(entities)-i)
			break
		}
		turn, cancel := context.WithTimeout(ctx, d.app.Conn.Wait())
		err := workers.Ask(turn, node, entity, intents.StatusPing, nil)
		cancel()
		if workers.MayNotAsk(err) {
			mayNot = append(mayNot, entity)
		} else {
			may = append(may, entity)
		}
	}
	lacks := ""
	if len(mayNot) > 0 {
		lacks = "; not to " + fewNames(mayNot)
	}
	if len(may) == 0 {
		d.tell("permissions", "fail", named, "this user may send to none of the agents that answer: %s%s", strings.Join(mayNot, ", "), untried)
		return
	}
	d.tell("permissions", "ok", "", "this user may send to %s%s%s", fewNames(may), lacks, untried)
	for _, entity := range may {
		d.agent(ctx, node, entity)
	}
	d.tellClocks()
}

// node makes a node that asks. For a clock it does not
// matter which key signed the answer.
func (d *doctor) node() (*mesh.Node, error) {
	from := d.app.DefaultFrom()
	signer, err := d.app.Signer(from)
	if err != nil {
		d.tell("keys", "warn", outcome.Hint(err), "%s", outcome.Text(err))
	}
	return mesh.New(d.conn, mesh.Config{Prefix: d.subjects.Prefix(), Logger: d.app.Log, Entity: from, Signer: signer, Verifier: sign.Verifier{Mode: sign.Off}})
}
