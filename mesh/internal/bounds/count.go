package bounds

import (
	"cmp"
	"context"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope"
)

// additions are the additions to a task's counters.
type additions []addition

// total waits for the totals, and returns the highest.
func (as additions) total(ctx context.Context) (most int64, err error) {
	for _, a := range as {
		total, e := a.total(ctx)
		most, err = max(most, total), cmp.Or(err, e)
	}
	return most, err
}

// count begins to add to the task's counters. If each of two concurrent calls is second at one of
// the counters, both are refused, although the bound has room for one.
func (p *Position) count(more int64, kind string, ids ...string) additions {
	counters := p.Counters()
	if p.task.ReplyTo == "" && (p.tree == nil || p.tree.Key == "") { // the task is the root of the tree
		counters = counters[:1]
	}
	var out additions
	for _, c := range counters {
		out = append(out, p.keeper.add(more, p.task.Corr, c.Owner, kind, append([]string{c.ID}, ids...)...))
	}
	return out
}

// Counted is a task that was counted; its totals may not have arrived yet.
type Counted struct {
	p     *Position
	added additions
}

// CountTask begins to count a task that the task's agent is about to send, or the task itself.
func (p *Position) CountTask() Counted { return Counted{p, p.count(1, CountTasks)} }

// Check waits for the totals. It fails with E_TREE_LIMIT if the tree has more tasks than
// allowed.
func (c Counted) Check(ctx context.Context) error {
	most := c.p.bounds().MaxTasks
	total, err := c.added.total(ctx)
	if err != nil {
		return err
	}
	if total > most {
		return envelope.Errorf(envelope.CodeTreeLimit, "agents have sent one another %d tasks in this tree, and %d are allowed", total-1, most)
	}
	return nil
}

// CheckBudget refuses a task whose tree has used up its token or cost budget.
func (p *Position) CheckBudget(ctx context.Context) error {
	b := p.bounds()
	counters := p.keeper.counters()
	if counters == nil || b.Tokens == 0 && b.USD == 0 {
		return nil
	}
	used := func(kind string) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, countPatience)
		defer cancel()
		most := int64(0)
		for _, c := range p.Counters() {
			total, err := counters.Add(ctx, 0, c.Owner, kind, c.ID)
			if err != nil {
				return 0, envelope.Errorf(envelope.CodeUnavailable, "the usage of this corr cannot be read for now: %w", err).WithBackoff(time.Second)
			}
			most = max(most, total)
		}
		return most, nil
	}
	if b.Tokens > 0 {
		if spent, err := used(CountTokens); err != nil {
			return err
		} else if spent >= b.Tokens {
			return envelope.Errorf(envelope.CodeBudget, "the runs of this corr have used %d tokens, and %d are allowed", spent, b.Tokens)
		}
	}
	if b.USD > 0 {
		if spent, err := used(CountUSD); err != nil {
			return err
		} else if model.USD(spent) >= b.USD {
			return envelope.Errorf(envelope.CodeBudget, "the runs of this corr have cost $%s, and $%s are allowed", model.USD(spent), b.USD)
		}
	}
	return nil
}
