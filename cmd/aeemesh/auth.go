package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/subject"
)

func (a *app) authCommand() *cobra.Command {
	return a.holder(&cobra.Command{
		Use:     "auth",
		Short:   "Print the NATS permissions that an agent needs",
		Example: `  aeemesh auth perms agent.reviewer`,
	}, a.authPermsCommand())
}

// permsFlags are the flags of "auth perms".
type permsFlags struct {
	client                       string
	nsc, durable, team, register bool
	calls, takesOver             []string
	maxTimeout                   time.Duration
}

func (a *app) authPermsCommand() *cobra.Command {
	f := &permsFlags{}
	c := &cobra.Command{
		Use:   "perms ENTITY|FILE...",
		Short: "Print the least NATS permissions of a worker, or of a client",
		Long: `Prints the least that a NATS user must be allowed for serving the entity: as
text for the server's configuration, as arguments for nsc, or as JSON.

In the place of an entity there may be the file of an agent's document: then it
prints what a worker of that agent needs, to call those whom the document names
as well. Whoever is named by something else than an entity, such as a skill, is
to be given with --calls, unless their document is among the files too. Several
of them are one user that serves them all.

For a person, such as human.ada, it prints what they need to see what agents ask
of them, and to answer.

With --client PREFIX it prints what somebody needs who sends tasks to the
entities, with PREFIX as the private prefix of reply subjects (--inbox-prefix).`,
		Example: `  aeemesh auth perms agent.reviewer
  aeemesh auth perms agent.reviewer --nsc
  aeemesh auth perms agent.reviewer --durable
  aeemesh auth perms team.yaml --durable
  aeemesh auth perms agent.team --durable --team --calls agent.writer
  aeemesh auth perms agent.refunds --durable --takes-over-from agent.front_desk
  aeemesh auth perms human.ada
  aeemesh auth perms agent.reviewer agent.writer --client _INBOX_ada

  # then:
  nats-server -c nats.conf      # with the text in users: [{user: reviewer, …}]
  nsc edit user reviewer …      # with the arguments of --nsc`,
		Args: arguments("ENTITY..."),
		RunE: a.do(func(_ context.Context, cmd *cobra.Command, args []string) error {
			m, err := a.subjects()
			if err != nil {
				return err
			}
			p, err := a.permissionsOf(cmd, m, f, args)
			if err != nil {
				return err
			}
			switch {
			case a.term.json:
				return a.term.object(permissionsJSON(p))
			case f.nsc:
				a.term.line("%s", nscArguments(p))
			default:
				a.term.line("%s", serverConfigText(p))
			}
			return nil
		}),
	}
	c.Flags().StringVar(&f.client, "client", "", "for a client instead of a worker, with this `prefix` of reply subjects")
	c.Flags().BoolVar(&f.nsc, "nsc", false, "as arguments for \"nsc edit user\"")
	c.Flags().BoolVar(&f.durable, "durable", false, "what the durable lane needs as well, with replies under _INBOX")
	c.Flags().BoolVar(&f.team, "team", false, "what a team needs as well to find its subagents; a FILE that has subagents implies it")
	c.Flags().StringArrayVar(&f.calls, "calls", nil, "what giving tasks to this `entity` needs as well, or handing them over to it; may be repeated")
	c.Flags().StringArrayVar(&f.takesOver, "takes-over-from", nil, "what answering durable tasks needs as well that were sent to this `entity`, the first one, and handed over; may be repeated")
	c.Flags().BoolVar(&f.register, "register", false, "what registering definitions needs as well: whoever has it says who any agent is")
	c.Flags().DurationVar(&f.maxTimeout, "max-timeout", mesh.DefaultMaxTimeout, "the longest task, as given to the worker")
	return c
}

// permissionsOf is what a user needs that serves, or calls, who is named.
func (a *app) permissionsOf(cmd *cobra.Command, m subject.Map, f *permsFlags, args []string) (mesh.Permissions, error) {
	var p mesh.Permissions
	var failed error
	add := func(more mesh.Permissions, err error) {
		if err != nil && failed == nil {
			failed = usagef(cmd, "%w", err)
		}
		p = mergePermissions(p, more)
	}
	named, err := a.permsFor(cmd, args)
	if err != nil {
		return p, err
	}
	calls, takesOver, team := append(f.calls, named.calls...), append(f.takesOver, named.takesOver...), f.team || named.team
	inbox := "_INBOX"
	if f.client != "" {
		if len(f.calls)+len(f.takesOver) > 0 {
			return p, usagef(cmd, "--calls and --takes-over-from are for workers, --client is not")
		}
		inbox, calls, takesOver, team = strings.TrimSuffix(f.client, "."), nil, nil, f.team
		add(mesh.ClientPermissions(m, inbox, named.entities...))
		if f.durable {
			add(mesh.DurableClientPermissions(m, named.entities...))
		}
	} else {
		for _, entity := range named.entities {
			if subject.EntityType(entity) == subject.TypeHuman {
				add(mesh.PersonPermissions(m, entity, inbox))
				continue
			}
			add(mesh.WorkerPermissions(m, entity, f.maxTimeout))
			if failed == nil && mesh.PublishesTo(entity) {
				return p, &usageError{
					err: fmt.Errorf("entity %s: a %s has no worker", entity, subject.EntityType(entity)), cmd: cmd,
					hint: "--client PREFIX prints what those need who send to it.",
				}
			}
			if f.durable && failed == nil {
				add(mesh.DurableWorkerPermissions(m, entity, inbox, true))
			}
		}
	}
	add(mesh.CallPermissions(m, f.durable, calls...))
	if f.durable || len(f.takesOver) > 0 {
		add(mesh.TakeoverPermissions(m, takesOver...))
	}
	if len(calls) > 0 && f.client == "" { // to hear their answers
		add(mesh.Permissions{Subscribe: []string{inbox + ".>"}}, nil)
	}
	if team || f.register {
		add(mesh.RegistryPermissions(m, inbox, f.register), nil)
	}
	return p, failed
}

// mergePermissions is what a user needs who does both.
func mergePermissions(p, q mesh.Permissions) mesh.Permissions {
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
	if q.AllowResponses != (mesh.AllowResponses{}) {
		p.AllowResponses = q.AllowResponses
	}
	return p
}

// serverConfigText writes permissions in the words of nats-server's
// configuration file.
func serverConfigText(p mesh.Permissions) string {
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
	if p.AllowResponses != (mesh.AllowResponses{}) {
		fmt.Fprintf(&b, "  # replies go to the asker's inbox: any number, for as long as a task may take\n")
		fmt.Fprintf(&b, "  allow_responses: { max: %d, expires: %q }\n", p.AllowResponses.Max, p.AllowResponses.Expires.String())
	}
	b.WriteString("}")
	return b.String()
}

// nscArguments writes permissions as flags of nsc add user and nsc edit user.
func nscArguments(p mesh.Permissions) string {
	var b strings.Builder
	for _, s := range p.Publish {
		fmt.Fprintf(&b, "--allow-pub %s ", shellWord(s))
	}
	for _, s := range p.Subscribe {
		fmt.Fprintf(&b, "--allow-sub %s ", shellWord(s))
	}
	if p.AllowResponses != (mesh.AllowResponses{}) {
		fmt.Fprintf(&b, "--allow-pub-response=%d --response-ttl %s", p.AllowResponses.Max, p.AllowResponses.Expires)
	}
	return strings.TrimSpace(b.String())
}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	if s != "" && !strings.ContainsAny(s, " \t\n'\"\\$`*>?;&|<(){}[]!#~") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// permissionsJSON has durations in words, as the server's configuration does.
func permissionsJSON(p mesh.Permissions) any {
	type responses struct {
		Max     int    `json:"max"`
		Expires string `json:"expires"`
	}
	out := struct {
		Publish        []string   `json:"publish"`
		Subscribe      []string   `json:"subscribe"`
		AllowResponses *responses `json:"allow_responses,omitempty"`
	}{Publish: p.Publish, Subscribe: p.Subscribe}
	if p.AllowResponses != (mesh.AllowResponses{}) {
		out.AllowResponses = &responses{p.AllowResponses.Max, p.AllowResponses.Expires.String()}
	}
	return out
}
