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

func (a *app) authPermsCommand() *cobra.Command {
	var client string
	var nsc, durable, team, register bool
	var maxTimeout time.Duration
	c := &cobra.Command{
		Use:   "perms ENTITY...",
		Short: "Print the least NATS permissions of a worker, or of a client",
		Long: `Prints the least that a NATS user must be allowed for serving the entity: as
text for the server's configuration, as arguments for nsc, or as JSON.

For a person, such as human.ada, it prints what they need to see what agents ask
of them, and to answer.

With --client PREFIX it prints what somebody needs who sends tasks to the
entities, with PREFIX as the private prefix of reply subjects (--inbox-prefix).`,
		Example: `  aeemesh auth perms agent.reviewer
  aeemesh auth perms agent.reviewer --nsc
  aeemesh auth perms agent.reviewer --durable
  aeemesh auth perms agent.team --durable --team
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
			var p mesh.Permissions
			if client != "" {
				p, err = mesh.ClientPermissions(m, strings.TrimSuffix(client, "."), args...)
				if err != nil {
					return usagef(cmd, "%w", err)
				}
				if durable {
					more, err := mesh.DurableClientPermissions(m, args...)
					if err != nil {
						return usagef(cmd, "%w", err)
					}
					p = mergePermissions(p, more)
				}
			}
			for _, entity := range args {
				if client != "" {
					break
				}
				if subject.EntityType(entity) == subject.TypeHuman {
					more, err := mesh.PersonPermissions(m, entity, "_INBOX")
					if err != nil {
						return usagef(cmd, "%w", err)
					}
					p = mergePermissions(p, more)
					continue
				}
				more, err := mesh.WorkerPermissions(m, entity, maxTimeout)
				if err != nil {
					return usagef(cmd, "%w", err)
				}
				if mesh.PublishesTo(entity) {
					return &usageError{
						err: fmt.Errorf("entity %s: a %s has no worker", entity, subject.EntityType(entity)), cmd: cmd,
						hint: "--client PREFIX prints what those need who send to it.",
					}
				}
				p = mergePermissions(p, more)
				if durable {
					more, err := mesh.DurableWorkerPermissions(m, entity, "_INBOX", true)
					if err != nil {
						return usagef(cmd, "%w", err)
					}
					p = mergePermissions(p, more)
				}
			}
			if team || register {
				inbox := "_INBOX"
				if client != "" {
					inbox = strings.TrimSuffix(client, ".")
				}
				p = mergePermissions(p, mesh.RegistryPermissions(m, inbox, register))
			}
			switch {
			case a.term.json:
				return a.term.object(permissionsJSON(p))
			case nsc:
				a.term.line("%s", nscArguments(p))
			default:
				a.term.line("%s", serverConfigText(p))
			}
			return nil
		}),
	}
	c.Flags().StringVar(&client, "client", "", "for a client instead of a worker, with this `prefix` of reply subjects")
	c.Flags().BoolVar(&nsc, "nsc", false, "as arguments for \"nsc edit user\"")
	c.Flags().BoolVar(&durable, "durable", false, "what the durable lane needs as well, with replies under _INBOX")
	c.Flags().BoolVar(&team, "team", false, "what a team needs as well to find its subagents; it also needs --client for each of them")
	c.Flags().BoolVar(&register, "register", false, "what registering definitions needs as well: whoever has it says who any agent is")
	c.Flags().DurationVar(&maxTimeout, "max-timeout", mesh.DefaultMaxTimeout, "the longest task, as given to the worker")
	return c
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
