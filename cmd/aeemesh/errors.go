package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/state"
)

// usageError is a command line that is wrong: exit 2.
type usageError struct {
	err  error
	hint string         // default: where to find the help
	cmd  *cobra.Command // may be nil
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...), cmd: cmd}
}

// arguments requires one argument for each name, and reports missing and
// surplus ones. A name in brackets is optional; a name that ends in "..." takes
// all that follow. RUN must not be empty: it may be the beginning of an id, and
// the empty text is the beginning of every id.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		var missing []string
		rest := false
		for i, name := range names {
			if i >= len(args) && !strings.HasPrefix(name, "[") {
				missing = append(missing, strings.TrimSuffix(name, "..."))
			}
			if name == "RUN" && i < len(args) && args[i] == "" {
				return usagef(cmd, "RUN is empty")
			}
			rest = rest || strings.HasSuffix(strings.TrimSuffix(name, "]"), "...")
		}
		switch {
		case len(missing) == 1:
			return usagef(cmd, "%s is missing", missing[0])
		case len(missing) > 1:
			return usagef(cmd, "%s are missing", strings.Join(missing, " and "))
		case len(args) > len(names) && !rest:
			return usagef(cmd, "%q is too much: \"%s\" takes %s", args[len(names)], cmd.CommandPath(), takes(names))
		}
		return nil
	}
}

func takes(names []string) string {
	if len(names) == 0 {
		return "no arguments"
	}
	return strings.Join(names, " ")
}

// hintedError is an error with a hint.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

func hinted(err error, format string, args ...any) error {
	return &hintedError{err, fmt.Sprintf(format, args...)}
}

func errorf(format string, args ...any) error { return fmt.Errorf(format, args...) }

// errQuiet is a failure that has been reported already.
var errQuiet = errors.New("failed")

// errInterrupted is the error of a command that a signal ended before it was
// done.
var errInterrupted = outcome.Stopped(context.Canceled, "interrupted")

// hintFor returns the hint that is printed under an error.
func hintFor(err error) string {
	var usage *usageError
	if errors.As(err, &usage) {
		switch {
		case usage.hint != "":
			return usage.hint
		case usage.cmd != nil:
			return fmt.Sprintf("Run \"%s --help\".", usage.cmd.CommandPath())
		}
		return "Run \"aeemesh --help\"."
	}
	var own *hintedError
	if errors.As(err, &own) {
		return own.hint
	}
	var refused *agents.Refusal
	if errors.As(err, &refused) {
		return acceptanceHint(refused)
	}
	var problem *envelope.Error
	if errors.As(err, &problem) {
		return hintForCode(problem)
	}
	switch {
	case errors.Is(err, natsd.ErrStoreLocked):
		return "Another server runs on this store. Give this one --store DIR of its own, or stop the other."
	case errors.Is(err, syscall.EADDRINUSE):
		return "Another process listens there already. Choose another with --port, or 0 for a free one."
	case errors.Is(err, natsconn.ErrKeyServesTwice):
		return "Make a key for envelopes alone: \"aeemesh keys new KID --from ENTITY\", then take the other out of the key directory. docs/signing.md says why."
	case errors.Is(err, nats.ErrNoServers):
		return "Is a server running there? \"aeemesh up\" starts one; --nats, NATS_URL or --context name another."
	case errors.Is(err, nats.ErrAuthorization):
		return "Check --creds, --nkey, --user and --password, --token, or the context."
	case (errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, jetstream.ErrDenied)) && strings.Contains(err.Error(), "Subscription to \"_INBOX."):
		return "The NATS user may not receive its answers there: AEEMESH_FROM sets the entity that speaks, --inbox-prefix the reply subjects; \"aeemesh auth perms\" prints both with the permissions."
	case errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, jetstream.ErrDenied):
		return "The NATS user may not do this. \"aeemesh auth perms ENTITY\" prints what a worker needs, with --sender what a sender does, with --durable also for durable tasks; --operator and --viewer what operators and viewers need."
	case errors.Is(err, jetstream.ErrNotFound):
		return "If it is one of the mesh's streams or buckets, \"aeemesh apply\" makes it."
	case errors.Is(err, jetstream.ErrUnavailable), errors.Is(err, nats.ErrJetStreamNotEnabled):
		return "JetStream is off on this server or for this account. Where it is on, \"aeemesh apply\" makes the mesh's streams."
	case errors.Is(err, state.ErrClear):
		return "Leave --state-key out if the agent's workers have none; --accept-clear-state believes what was stored before they had one."
	case errors.Is(err, state.ErrReplaced):
		return "Another client has written to the store of runs. \"aeemesh runs show RUN\" lists the revisions; \"aeemesh runs fork RUN --at REVISION\" goes on from one that is good."
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return ""
	}
	return ""
}

// hintForCode returns the hint for an error of the mesh or an agent.
func hintForCode(e *envelope.Error) string {
	switch e.Code {
	case envelope.CodeNoResponders:
		return "Is its worker running? \"aeemesh agents list\" shows who answers."
	case envelope.CodeTimeout:
		return "Give it longer with --timeout, or in the document where a step's or the run's timeout_seconds is over, or look at what it does with \"aeemesh watch\"."
	case envelope.CodeSigRequired:
		return "Sign with --sign KID; \"aeemesh keys new KID\" makes a key."
	case envelope.CodeKeyUnknown:
		if !e.FromPeer() {
			return "The answer is signed with a key that you do not trust: \"aeemesh keys trust\" it, or use the mesh's with --shared-keys."
		}
		return "The receiver does not know the key: \"aeemesh keys trust FILE --shared\" here and --shared-keys on its worker, or \"aeemesh keys trust\" on its side. --sign none sends unsigned, where it takes that."
	case envelope.CodeKeyInvalid:
		return "The key is revoked or out of its time. \"aeemesh keys list\" shows it; \"aeemesh keys new\" makes another."
	case envelope.CodeFromDenied:
		return "The key may not speak for this sender: use --from with an entity that it may, or another --sign KID."
	case envelope.CodeStale:
		return "The clocks differ, or the envelope is old. \"aeemesh doctor\" compares the clocks."
	case envelope.CodeReplay:
		return "The id was used before. A new envelope gets an id of its own."
	case envelope.CodeIntentUnknown:
		return "\"aeemesh agents describe ENTITY\" lists the intents that it knows."
	case envelope.CodeTooLarge:
		return "Put what is large where the agent can fetch it (\"nats object put\", a file, a URL) and send a reference. The server's max_payload can be raised; NATS advises against more than 8 MiB."
	case envelope.CodeInputSchema:
		return "\"aeemesh agents describe ENTITY --schema\" shows what it takes."
	}
	switch {
	case !e.Retryable:
		return ""
	case e.Code == envelope.CodeBusy, e.Code == envelope.CodeRateLimited, e.Code == envelope.CodeDraining:
		return "Trying again may help: --retries N does it more often for you." // nothing was done
	}
	return "Sending it again may help."
}
