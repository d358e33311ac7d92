package auth

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// permsRole is the user for whom "auth perms" prints permissions.
type permsRole struct {
	name  string // a key of permsFlagsOf
	named permsNamed
	inbox string // the prefix of reply subjects
}

// permsFlagsOf lists, by role, the flags that have an effect in addition to the
// common ones.
var permsFlagsOf = map[string][]string{
	"worker":   {"durable", "create", "team", "calls", "takes-over-from", "register", "shared-keys", "replay-scope", "journal", "answers", "templates"},
	"sender":   {"sender", "client", "from", "durable", "delayed", "streams", "team", "register", "shared-keys", "templates"},
	"person":   {"shared-keys"},
	"operator": {"operator", "from"},
	"viewer":   {"viewer", "from"},
}

// namedRole determines the role from the flags and arguments, and refuses flags
// that would have no effect.
func namedRole(a *session.App, cmd *cobra.Command, f *permsFlags, args []string) (r permsRole, err error) {
	sender := f.sender || f.client != ""
	roles := 0
	for _, role := range []struct {
		name string
		is   bool
	}{{"sender", sender}, {"operator", f.operator}, {"viewer", f.viewer}} {
		if role.is {
			r.name = role.name
			roles++
		}
	}
	switch {
	case roles > 1:
		return r, outcome.Usagef(cmd, "--sender, --operator and --viewer are three roles: give one")
	case f.operator || f.viewer:
		if len(args) > 0 {
			return r, outcome.Usagef(cmd, "--%s is for the whole mesh: it takes no ENTITY", r.name)
		}
	case len(args) == 0:
		return r, outcome.Usagef(cmd, "ENTITY is missing")
	}
	if r.named, err = permsFor(a, args); err != nil {
		return r, err
	}
	if r.name == "" {
		r.name = "worker"
		if !slices.ContainsFunc(r.named.entities, func(e string) bool { return subject.EntityType(e) != subject.TypeHuman }) {
			r.name = "person"
		}
	}
	for _, flags := range permsFlagsOf {
		for _, name := range flags {
			if fl := cmd.Flags().Lookup(name); fl.Changed && !a.ByEnv[name] && !slices.Contains(permsFlagsOf[r.name], name) {
				return r, outcome.Usagef(cmd, "--%s has no effect for a %s: leave it out", name, r.name)
			}
		}
	}
	for _, choice := range []error{
		outcome.OneOf(cmd, "replay-scope", f.replayScope, "auto", "process", "mesh"), outcome.OneOf(cmd, "journal", f.journal, "memory", "jetstream"),
		needsFlag(cmd, f.create, f.durable, "--create", "--durable"), needsFlag(cmd, f.delayed, f.durable, "--delayed", "--durable"),
		needsFlag(cmd, f.streams, f.durable, "--streams", "--durable"),
	} {
		if choice != nil {
			return r, choice
		}
	}
	speaks := f.from
	if len(r.named.entities) > 0 && (r.name == "worker" || r.name == "person") {
		speaks = r.named.entities[0]
	}
	switch {
	case f.client != "":
		r.inbox = strings.TrimSuffix(f.client, ".")
	case a.Conn.InboxPrefix != "":
		r.inbox = strings.TrimSuffix(a.Conn.InboxPrefix, ".")
	case speaks == "":
		return r, outcome.Hinted(outcome.Usagef(cmd, "--%s needs --from", r.name), "The entity that speaks determines the prefix of reply subjects; --inbox-prefix names another.")
	default:
		if err := subject.ValidateEntity(speaks); err != nil {
			if speaks != f.from {
				return r, outcome.Usagef(cmd, "%w", err)
			}
			return r, outcome.Usagef(cmd, "--from: %w", err)
		}
		r.inbox = perms.InboxPrefix(speaks)
	}
	for _, prefix := range append([]string{r.inbox}, f.answers...) {
		if !mesh.IsReplyInbox(prefix) {
			return r, outcome.Hinted(outcome.Usagef(cmd, "the prefix of reply subjects is %q, and workers answer on inboxes only", prefix), "It begins with \"_\", such as _INBOX_ada.")
		}
	}
	return r, nil
}

func needsFlag(cmd *cobra.Command, is, has bool, flag, needs string) error {
	if is && !has {
		return outcome.Usagef(cmd, "%s is about the durable lane: it needs %s", flag, needs)
	}
	return nil
}

// permissionsOf returns the permissions that a user of a role needs.
func permissionsOf(cmd *cobra.Command, m subject.Map, f *permsFlags, r permsRole) (perms.Permissions, error) {
	var p perms.Permissions
	var failed error
	add := func(more perms.Permissions, err error) {
		if err != nil && failed == nil {
			failed = outcome.Usagef(cmd, "%w", err)
		}
		p = mergePermissions(p, more)
	}
	switch r.name {
	case "operator":
		return perms.Operator(m, r.inbox), nil
	case "viewer":
		return perms.Viewer(m, r.inbox), nil
	case "sender":
		add(perms.Client(m, r.inbox, r.named.entities...))
		add(perms.Look(m, f.durable, r.named.entities...))
		if f.durable {
			add(perms.DurableClient(m, r.named.entities...))
		}
		if f.delayed {
			add(perms.Delay(m, r.named.entities...))
		}
		if f.streams {
			add(perms.Replay(m), nil)
		}
		if f.templates {
			add(perms.TemplateEvents(m, r.named.entities...))
		}
		if f.team || f.register {
			add(perms.Registry(m, r.inbox, f.register), nil)
		}
	default:
		for _, entity := range r.named.entities {
			if subject.EntityType(entity) == subject.TypeHuman {
				add(perms.Person(m, entity, r.inbox))
				continue
			}
			if mesh.PublishesTo(entity) {
				return p, &outcome.UsageError{
					Err: fmt.Errorf("entity %s: a %s has no worker", entity, subject.EntityType(entity)), Cmd: cmd,
					Hint: "--sender prints what its senders need.",
				}
			}
			workerPermissions(m, f, r, entity, add)
		}
		for _, flag := range []struct {
			name     string
			entities []string
		}{{"calls", f.calls}, {"takes-over-from", f.takesOver}} {
			for _, entity := range flag.entities {
				if err := subject.ValidateEntity(entity); err != nil {
					return p, outcome.Usagef(cmd, "--%s: %w", flag.name, err)
				}
			}
		}
		calls, takesOver := append(f.calls, r.named.calls...), append(f.takesOver, r.named.takesOver...)
		add(perms.Call(m, f.durable, calls...))
		if f.durable && slices.ContainsFunc(calls, func(e string) bool { return subject.EntityType(e) == subject.TypeHuman }) {
			add(perms.PeopleCall(m))
		}
		if f.durable || len(takesOver) > 0 {
			add(perms.Takeover(m, takesOver...))
		}
		if len(calls) > 0 { // to receive their answers
			add(perms.Permissions{Subscribe: []string{r.inbox + ".>"}}, nil)
		}
		if f.team || r.named.team || f.register {
			add(perms.Registry(m, r.inbox, f.register), nil)
		}
	}
	if f.sharedKeys {
		add(perms.SharedKeys(m), nil)
		add(perms.Permissions{Subscribe: []string{r.inbox + ".>"}}, nil)
	}
	return p, failed
}

// workerPermissions adds the permissions for serving an entity.
func workerPermissions(m subject.Map, f *permsFlags, r permsRole, entity string, add func(perms.Permissions, error)) {
	add(perms.Worker(m, entity, append(f.answers, r.inbox)...)) // workers of one agent ask one another
	if f.durable {
		add(perms.DurableWorker(m, entity, r.inbox))
	}
	if f.create {
		add(perms.Consumer(m, entity))
	}
	if f.durable && f.replayScope == "auto" || f.replayScope == "mesh" {
		add(perms.Seen(m, entity))
		add(perms.Permissions{Subscribe: []string{r.inbox + ".>"}}, nil)
	}
	if f.templates {
		add(perms.Templates(m, entity))
		add(perms.Permissions{Subscribe: []string{r.inbox + ".>"}}, nil)
	}
	if f.journal == "jetstream" {
		add(perms.Journal(m, entity))
		add(perms.Permissions{Subscribe: []string{r.inbox + ".>"}}, nil)
	}
}

// ConnectRoom is the maximum length, in bytes, of the rest of a client's
// CONNECT line beside a JWT; nats-server accepts lines of maxControlLine.
const (
	ConnectRoom    = 420
	MaxControlLine = 4096
)

// comment is the comment above the permissions in a server's configuration.
func (r permsRole) comment(f *permsFlags, p perms.Permissions, domain string) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, "# "+format+"\n", args...) }
	if domain != "" {
		say("For a user of a server outside the JetStream domain %s. For a user of a server", domain)
		say("of the domain itself, print them without --js-domain.")
	}
	if r.name == "worker" && f.durable {
		start := "--fenced --no-create"
		if f.create {
			start = "--fenced"
			say("--create lets this user have the server publish on any subject: who makes a")
			say("consumer chooses where it delivers. Prefer \"aeemesh apply --entity %s\".", strings.Join(r.named.entities, " --entity "))
		} else {
			say("An operator makes the consumers once:")
			say("  aeemesh apply --entity %s", strings.Join(r.named.entities, " --entity "))
		}
		say("Start the worker with %s --journal %s.", start, f.journal)
	}
	if r.name == "worker" && !f.durable && f.replayScope == "auto" {
		say("Each process remembers ids alone: this user may not use aee_seen, the replay window")
		say("of the mesh. --replay-scope mesh prints what that needs.")
	}
	if r.inbox != "" {
		say("Replies come under %s; --inbox-prefix %s names it where the entity does not.", r.inbox, r.inbox)
	}
	switch r.name {
	case "operator":
		say("This user may do everything in the mesh, and with JetStream in the whole account.")
	case "viewer":
		say("This user reads what tasks and runs of all agents hold.")
	case "person":
		say("This user reads the inboxes of all people: the server keeps them in one stream.")
	default:
		say("Other agents' records and replies stay closed. What one account cannot keep apart")
		say("(made-up events on bus.mesh.*, full streams, ids that are known): docs/threat-model.md.")
		say("Agents that may harm one another belong into accounts of their own.")
	}
	if size := jwtSize(p); size+ConnectRoom > MaxControlLine {
		say("As a user JWT they take %d bytes, and with nats-server's default the line that brings", size)
		say("them may have %d. Use a scoped signing key, whose users' JWTs are short, or set", MaxControlLine)
		say("max_control_line: %dKB on the servers.", (size+ConnectRoom)/1024+1)
	}
	return b.String()
}

// jwtSize returns the length of a user JWT with these permissions.
func jwtSize(p perms.Permissions) int {
	account, err := nkeys.CreateAccount()
	if err != nil {
		return 0
	}
	user, err := nkeys.CreateUser()
	if err != nil {
		return 0
	}
	id, err := user.PublicKey()
	if err != nil {
		return 0
	}
	claims := jwt.NewUserClaims(id)
	claims.Name = "worker"
	claims.Pub.Allow, claims.Sub.Allow = p.Publish, p.Subscribe
	token, err := claims.Encode(account)
	if err != nil {
		return 0
	}
	return len(token)
}
