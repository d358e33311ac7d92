package sdsi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// An Offer is one scenario of one agent.
type Offer struct {
	Entity  string `json:"entity"`
	Workers int    `json:"workers"` // number of workers that answered
	template.Listed
}

// ErrNotOffered is wrapped by the error for a scenario that no answering agent offers, and for an
// agent that does not answer or has no templates.
var ErrNotOffered = errors.New("no agent that answers offers it")

// notOfferedError is an ErrNotOffered whose text lists the offers that exist.
type notOfferedError string

func (e notOfferedError) Error() string        { return string(e) }
func (e notOfferedError) Is(target error) bool { return target == ErrNotOffered }

// Find returns the offers of agents that answer within wait, ordered by scenario: of one entity or
// of all (""), for one scenario or for all (""). It asks the agents whose NATS micro metadata lists
// templates. If a scenario or an entity is named and no offer matches, the error wraps
// [ErrNotOffered] (SDSI 3.2). A search for one entity needs the permissions of its senders, a
// search for all entities those of a viewer; without them the error wraps
// [nats.ErrPermissionViolation].
func (c *Client) Find(ctx context.Context, entity, scenario string, wait time.Duration) ([]Offer, error) {
	found, err := c.discover(ctx, entity, wait)
	if err != nil {
		return nil, err
	}
	workers := map[string]int{}
	var others []string // other scenarios that are offered
	for _, i := range found {
		names := i.Info.Metadata[mesh.MetaScenarios]
		switch {
		case names == "":
		case scenario != "" && !mayHave(names, scenario):
			others = append(others, strings.Split(names, ",")...)
		default:
			workers[i.Entity]++
		}
	}
	var out []Offer
	var failed error
	for e, n := range workers {
		var list template.ListResult
		if _, err := c.query(ctx, e, intents.SchemaList, struct{}{}, &list); err != nil {
			failed = fmt.Errorf("%s: %w", e, err)
			continue
		}
		for _, l := range list.Scenarios {
			if scenario == "" || l.Scenario == scenario {
				out = append(out, Offer{e, n, l})
			}
		}
	}
	if len(out) == 0 && failed != nil {
		return nil, failed
	}
	if len(out) == 0 && (entity != "" || scenario != "") {
		return nil, notOffered(entity, scenario, others)
	}
	SortOffers(out)
	return out, nil
}

// discover returns the workers that answer, of one entity or of all ("").
func (c *Client) discover(ctx context.Context, entity string, wait time.Duration) ([]mesh.Instance, error) {
	since := denial.Now(c.node.Conn())
	look := c.node.Discover
	if entity != "" {
		look = c.node.Workers
	}
	found, err := look(ctx, entity, wait)
	if err != nil || len(found) > 0 {
		return found, err
	}
	if d, denied := since.Find(func(d denial.Denial) bool { return d.Op == denial.Publish && strings.HasPrefix(d.Subject, "$SRV.") }); denied {
		return nil, fmt.Errorf("agents cannot be discovered: %w", d.Err)
	}
	return nil, nil
}

// mayHave reports whether a scenario may be in the list of an agent's metadata. The list may be
// truncated, and names may contain commas.
func mayHave(names, scenario string) bool {
	return strings.Contains(","+names+",", ","+scenario+",") || strings.HasSuffix(names, ",…")
}

// SortOffers sorts offers by scenario, and by entity.
func SortOffers(offers []Offer) {
	sorted.By(offers, func(a, b Offer) int {
		return strings.Compare(a.Scenario+"\x00"+a.Entity, b.Scenario+"\x00"+b.Entity)
	})
}

func notOffered(entity, scenario string, others []string) error {
	slices.Sort(others)
	there := ""
	if others = slices.Compact(others); len(others) > 0 {
		there = "; there is " + clip.Text(strings.Join(others, ", "), 300)
	}
	switch {
	case entity == "":
		return notOfferedError(fmt.Sprintf("no agent that answers has the scenario %s%s", scenario, there))
	case scenario == "":
		return notOfferedError(entity + " does not answer, or publishes no templates")
	}
	return notOfferedError(fmt.Sprintf("%s does not answer, or does not have the scenario %s%s", entity, scenario, there))
}
