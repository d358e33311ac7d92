package topology

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
)

// ApplyCommand is "aeemesh apply".
func ApplyCommand(a *session.App) *cobra.Command {
	f := &topologyFlags{}
	var yes bool
	c := session.Connects(&cobra.Command{
		Use:   "apply",
		Short: "Create or correct the mesh's streams, buckets and consumers",
		Long: `Creates the missing streams and buckets of the mesh and, for each --entity, its
work consumers, and corrects the settings that the mesh relies on. "aeemesh
plan" with the same flags shows the changes before.

It deletes nothing, and lowers a limit only where the stored data fits. A change
that was asked for and not made is reported, with exit status 4, and so is what
cannot be corrected without losing what a stream holds. Where the account, or a
server that stands alone, has no room for everything that is missing, nothing is
created. It may run again at any time, and several times at once. It leaves
alone what a newer aeemesh made. On a terminal it asks first; elsewhere it needs
--yes.`,
		Example: `  aeemesh apply
  aeemesh apply --yes --replicas 3        # on a cluster
  aeemesh apply --yes --entity agent.reviewer --lease 10s
  aeemesh apply --yes --limit AEE_BUS=max_bytes:64MiB --limit aee_state=max_bytes:128MiB
  aeemesh apply --yes --prefix acme --placement-cluster east

  # what apply does not do, do with the nats CLI:
  nats stream edit AEE_BUS --max-age 24h --no-ack`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error {
			return withTopology(a, ctx, cmd, f, func(ctx context.Context, js natsjs.JetStream, opts jetstream.Options) error {
				return makeTopology(a, ctx, cmd, js, opts, yes)
			})
		}),
	})
	f.add(c)
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func planned(a *session.App, ctx context.Context, js natsjs.JetStream, opts jetstream.Options) ([]jetstream.Change, error) {
	ctx, cancel := bound(ctx, a)
	defer cancel()
	return jetstream.Plan(ctx, js, opts)
}

func makeTopology(a *session.App, ctx context.Context, cmd *cobra.Command, js natsjs.JetStream, opts jetstream.Options, yes bool) error {
	plan, err := planned(a, ctx, js, opts)
	if err != nil {
		return err
	}
	t := Count(plan)
	tellVersions(a, t)
	troubled := tellGroups(a, plan)
	if t.Todo() > 0 && !yes {
		for _, c := range plan {
			if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionUpdate {
				a.Term.Say("%s", c)
			}
		}
		if err := Agreed(a, cmd); err != nil {
			return err
		}
	}
	ctx, cancel := bound(ctx, a)
	defer cancel()
	opts.Done = func(c jetstream.Change) {
		if c.Action == jetstream.ActionCreate || c.Action == jetstream.ActionUpdate {
			a.Term.Progress("%s", c)
		}
	}
	report, err := jetstream.Apply(ctx, js, opts)
	done := report[:0:0]
	for _, c := range report {
		if c.Action != jetstream.ActionNone {
			done = append(done, c)
		}
	}
	if err := showChanges(a, done); err != nil {
		return err
	}
	if err != nil {
		return RoomHint(err)
	}
	left := notDone(report, cmd.Flags().Changed("storage"))
	tellNotDone(a, left, "keeps")
	broken := tellBroken(a, report)
	if t := Count(report); t.Todo() > 0 {
		a.Term.Good("%d made, %d changed", t.create, t.update)
	} else if t.newer == 0 && len(left)+broken+troubled == 0 {
		a.Term.Good("everything is as it should be")
	}
	if len(left) > 0 {
		return outcome.Hinted(outcome.Conflict("%s not as asked", term.Counted(len(left), "setting is", "settings are")), "The lines above say why, and what would do it.")
	}
	if askedOfNewer(cmd, opts, report) {
		return outcome.Hinted(outcome.Conflict("a newer aeemesh manages this mesh: what was asked for was not done"), "Update this aeemesh. Without those flags \"apply\" leaves the mesh alone.")
	}
	return nil
}

// unmet is a requested setting that is not in effect.
type unmet struct {
	jetstream.Change
	jetstream.Difference
}

// notDone returns the requested settings that stay as they are. Storage counts
// as requested if its flag is set, whatever its value.
func notDone(changes []jetstream.Change, storage bool) (out []unmet) {
	for _, c := range changes {
		for _, d := range c.Differences {
			if d.Kept != "" && (d.Asked || storage && d.Field == "storage") && c.Action != jetstream.ActionConflict && c.Action != jetstream.ActionNewer {
				out = append(out, unmet{c, d})
			}
		}
	}
	return out
}

// askedOfNewer reports whether the flags ask for something of a stream, bucket or consumer that
// is left to a newer aeemesh. It may be as asked: it is not compared.
func askedOfNewer(cmd *cobra.Command, opts jetstream.Options, changes []jetstream.Change) bool {
	ofAll := false
	for _, flag := range []string{"replicas", "storage", "placement-cluster", "placement-tag"} {
		ofAll = ofAll || cmd.Flags().Changed(flag)
	}
	for _, c := range changes {
		_, limited := opts.Limits[strings.TrimSuffix(c.Name, opts.Map.Suffix())]
		if c.Action == jetstream.ActionNewer && (ofAll || limited || c.Kind == jetstream.KindConsumer) { // consumers are those of --entity
			return true
		}
	}
	return false
}

// tellBroken warns of settings that break a promise of the mesh and that "apply" does not correct. It
// returns their number.
func tellBroken(a *session.App, changes []jetstream.Change) (n int) {
	for _, c := range changes {
		for _, d := range c.Differences {
			if d.Breaks {
				a.Term.Warn("%s keeps %s %s, should be %s: %s", c.Name, d.Field, limitText(d.Field, d.Have), d.Want, d.Kept)
				n++
			}
		}
	}
	return n
}

// setting formats a setting's value for people.
func setting(field, value string) string {
	if field == "storage" {
		return strings.ToLower(value)
	}
	return limitText(field, value)
}

// tellNotDone prints for each such setting its current value, and how to change
// it.
func tellNotDone(a *session.App, list []unmet, keeps string) {
	for _, n := range list {
		a.Term.Warn("%s %s %s %s (asked: %s): %s", n.Name, keeps, n.Field, setting(n.Field, n.Have), setting(n.Field, n.Want), n.Kept)
		stream := map[jetstream.Kind]string{jetstream.KindBucket: "KV_", jetstream.KindObjects: "OBJ_"}[n.Kind] + n.Name
		switch n.Field {
		case "max_bytes", "max_age":
			value := n.Want
			if value == "no limit" {
				value = "0s"
			}
			ack := ""
			if strings.HasPrefix(n.Name, jetstream.StreamBus) {
				ack = " --no-ack" // which "nats stream edit" takes away otherwise
			}
			a.Term.Hint(fmt.Sprintf("nats stream edit %s --%s=%s%s", stream, strings.ReplaceAll(n.Field, "_", "-"), value, ack))
		}
	}
}

// RoomHint adds a hint to errors about a small disk, limits of the account, too few servers, or
// another domain.
func RoomHint(err error) error {
	var refused *natsjs.APIError
	if errors.As(err, &refused) {
		if refused.ErrorCode == replicasUnsupported {
			return outcome.Hinted(outcome.Conflict("%w", err), "A server on its own keeps one replica: three, or five, take a cluster of that many.")
		}
		if hint := accountHints[refused.ErrorCode]; hint != "" {
			return outcome.Hinted(outcome.Conflict("%w", err), "%s", hint)
		}
	}
	if errors.Is(err, jetstream.ErrAccountLimit) {
		return outcome.Hinted(err, "Raise the account's limit of streams: max_streams in the server's configuration, or \"nsc edit account --js-streams\".")
	}
	if errors.Is(err, jetstream.ErrElsewhere) {
		return outcome.Hinted(err, "Name the domain of its streams with --js-domain, or give this mesh another --prefix. docs/operations.md, \"Leaf nodes\".")
	}
	if !errors.Is(err, jetstream.ErrNoRoom) {
		return err
	}
	return outcome.Hinted(err, "Give it less with --limit NAME=max_bytes:64MiB, for this one or another; \"aeemesh plan\" shows what each takes.")
}

// replicasUnsupported is nats-server's error code for replicas without a
// cluster.
const replicasUnsupported natsjs.ErrorCode = 10074

// accountHints are the hints for nats-server's refusals because of a limit of the account.
var accountHints = map[natsjs.ErrorCode]string{
	10026: "Each agent that takes durable tasks has four consumers on AEE_WORK and one on AEE_SCHEDULE. Raise the account's limit of consumers: max_consumers in the server's configuration, or \"nsc edit account --js-consumer\".",
	10113: "AEE_SCHEDULE has no size: a full one would drop delayed tasks. Let the account have such streams: no max_bytes_required in the server's configuration, or \"nsc edit account --js-max-bytes-required=false\".",
	10120: "The account has limits for other numbers of replicas only: choose one of those with --replicas, or add this tier (\"nsc edit account --js-tier\").",
	10122: "Give it less with --limit NAME=max_bytes:64MiB, or raise the account's limit of a stream (\"nsc edit account --js-max-disk-stream\"); \"aeemesh plan\" shows what each stream takes.",
}

// Agreed asks at a terminal whether to make the changes that were listed. Without a yes it returns
// the command's error.
func Agreed(a *session.App, cmd *cobra.Command) error {
	if a.Term.Records != nil || !a.Interactive() {
		return outcome.Usagef(cmd, "there is no terminal to ask on: give --yes")
	}
	fmt.Fprint(a.Term.Words, "Do this? [y/N] ")
	answer, err := bufio.NewReader(a.Stdin).ReadString('\n')
	if errors.Is(err, outcome.ErrInterrupted) {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) { // end of input counts as no
	case "y", "yes":
		if err == nil {
			return nil
		}
	}
	a.Term.Say("nothing was done")
	return outcome.ErrQuiet
}
