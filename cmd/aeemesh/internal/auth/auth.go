package auth

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// Command is "aeemesh auth" with its subcommands.
func Command(a *session.App) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:     "auth",
		Short:   "Print the NATS permissions that an agent needs",
		Example: `  aeemesh auth perms agent.reviewer`,
	}, authPermsCommand(a))
}

// permsFlags are the flags of "auth perms".
type permsFlags struct {
	client, from, replayScope, journal     string
	sender, operator, viewer               bool
	nsc, durable, delayed, streams, create bool
	team, register, sharedKeys, templates  bool
	calls, takesOver, answers              []string
}

func authPermsCommand(a *session.App) *cobra.Command {
	f := &permsFlags{}
	c := &cobra.Command{
		Use:   "perms ENTITY|FILE... | --operator | --viewer",
		Short: "Print the least NATS permissions that workers and users need",
		Long: `Prints the least that a NATS user must be allowed: as text for the server's
configuration, as arguments for nsc, or as JSON.

Without a role it is for a worker that serves the entities. An argument may also
be the file of an agent's document: then it prints what a worker of that agent
needs, including the calls to the agents that the document names. Agents that it
names by anything but an entity, such as a skill, need --calls, unless their
document is among the files too. For a person, such as human.ada, it prints what
they need to see what agents ask of them, and to answer.

--sender is for a user who sends tasks to the entities, --viewer for one who
looks at the whole mesh and changes nothing, --operator for one who operates it.

Each user has a prefix of reply subjects of its own, which commands derive from
the entity; --inbox-prefix names another one. A worker's permissions end at its
own entities: an operator makes its consumers ("aeemesh apply --entity ENTITY").

--js-domain is for users of a server outside that domain, such as a leaf node,
who give it to their commands. A server of the domain itself checks the names
without it.`,
		Example: `  aeemesh auth perms agent.reviewer
  aeemesh auth perms agent.reviewer --nsc
  aeemesh auth perms agent.reviewer --durable
  aeemesh auth perms team.yaml --durable
  aeemesh auth perms agent.team --durable --team --calls agent.writer
  aeemesh auth perms agent.refunds --durable --takes-over-from agent.front_desk
  aeemesh auth perms human.ada
  aeemesh auth perms agent.reviewer agent.writer --sender --from human.ada --durable
  aeemesh auth perms --viewer --from human.eve
  aeemesh auth perms --operator --from human.ops
  aeemesh auth perms agent.reviewer --durable --js-domain hub

  # then:
  nats-server -c nats.conf      # with the text in users: [{user: reviewer, …}]
  nsc edit user reviewer …      # with the arguments of --nsc`,
		RunE: a.Do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			m, err := a.Subjects()
			if err != nil {
				return err
			}
			r, err := namedRole(a, cmd, f, args)
			if err != nil {
				return err
			}
			p, err := permissionsOf(cmd, m, f, r)
			if err != nil {
				return err
			}
			p = p.InDomain(a.Conn.Domain)
			switch {
			case a.Term.JSON:
				return a.Term.Object(p)
			case f.nsc:
				a.Term.Line("%s", nscArguments(p))
			default:
				a.Term.Line("%s%s", r.comment(f, p, a.Conn.Domain), serverConfigText(p))
			}
			return nil
		}),
	}
	flags := c.Flags()
	flags.BoolVar(&f.sender, "sender", false, "for a user who sends tasks to the entities")
	flags.StringVar(&f.client, "client", "", "the same, with this `prefix` of reply subjects")
	flags.BoolVar(&f.operator, "operator", false, "for an operator of the mesh")
	flags.BoolVar(&f.viewer, "viewer", false, "for a user who looks at the mesh and changes nothing")
	flags.StringVar(&f.from, "from", "", "the `entity` that the sender, viewer or operator speaks as; it names the prefix of reply subjects")
	session.BindEnv(flags, "from", "AEEMESH_FROM")
	flags.BoolVar(&f.nsc, "nsc", false, "as arguments for \"nsc edit user\"")
	flags.BoolVar(&f.durable, "durable", false, "what the durable lane needs as well")
	flags.BoolVar(&f.delayed, "delayed", false, "of a sender: let JetStream keep delayed tasks; its stream has no fences inside")
	flags.BoolVar(&f.streams, "streams", false, "of a sender: read stored streams of tasks, those of others too")
	flags.BoolVar(&f.create, "create", false, "of a worker: make its own consumers; with that permission it can publish anywhere")
	flags.BoolVar(&f.team, "team", false, "what finding agents by name, alias or skill needs as well; a FILE that has subagents implies it")
	flags.StringArrayVar(&f.calls, "calls", nil, "what sending or delegating tasks to this `entity` needs as well; may be repeated")
	flags.StringArrayVar(&f.takesOver, "takes-over-from", nil, "what answering durable tasks needs as well that were sent to this `entity` first and then delegated; may be repeated")
	flags.BoolVar(&f.register, "register", false, "what registering definitions needs as well; with that permission a user decides which entity any agent is")
	flags.BoolVar(&f.sharedKeys, "shared-keys", false, "what trusting the keys in the mesh's bucket needs as well")
	flags.BoolVar(&f.templates, "templates", false, "what a worker needs to publish schema templates and to learn; what a sender needs to hear of new ones")
	flags.StringVar(&f.replayScope, "replay-scope", "auto", "as given to the worker: auto, process or mesh")
	flags.StringVar(&f.journal, "journal", "memory", "as given to the worker: memory or jetstream")
	flags.StringArrayVar(&f.answers, "answers", nil, "of a worker: a `prefix` of its senders' reply subjects that is not below _INBOX; may be repeated")
	return c
}

// mergePermissions returns the permissions of a user that needs both.
func mergePermissions(p, q perms.Permissions) perms.Permissions {
	union := func(a, b []string) []string {
		seen := map[string]bool{}
		out := []string{}
		for _, s := range append(append([]string{}, a...), b...) {
			if !seen[s] {
				seen[s] = true
				out = append(out, s)
			}
		}
		return out
	}
	p.Publish, p.Subscribe = union(p.Publish, q.Publish), union(p.Subscribe, q.Subscribe)
	return p
}

// serverConfigText formats permissions for nats-server's configuration file.
func serverConfigText(p perms.Permissions) string {
	var b strings.Builder
	list := func(name string, subjects []string) {
		fmt.Fprintf(&b, "  %s: {\n    allow: [\n", name)
		for _, s := range subjects {
			fmt.Fprintf(&b, "      %q\n", s)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("permissions: {\n")
	list("publish", p.Publish)
	list("subscribe", p.Subscribe)
	b.WriteString("}")
	return b.String()
}

// nscArguments formats permissions as flags of nsc add user and nsc edit user.
func nscArguments(p perms.Permissions) string {
	var b strings.Builder
	for _, s := range p.Publish {
		fmt.Fprintf(&b, "--allow-pub %s ", plain.ShellWord(s))
	}
	for _, s := range p.Subscribe {
		fmt.Fprintf(&b, "--allow-sub %s ", plain.ShellWord(s))
	}
	return strings.TrimSpace(b.String())
}
