package outcome

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/plain"
	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/state"
)

// Hint returns the hint that is printed under an error.
func Hint(err error) string {
	var about *aboutError
	if errors.As(err, &about) {
		// Other hints with ENTITY mean another entity, such as the sender.
		return strings.NewReplacer("agents describe ENTITY", "agents describe "+about.entity, "schema show ENTITY", "schema show "+about.entity).Replace(hintOf(err))
	}
	return hintOf(err)
}

func hintOf(err error) string {
	var own *hintedError
	usage, hinted := UsageErrorIn(err), errors.As(err, &own)
	switch {
	case usage != nil && usage.Hint != "":
		return usage.Hint
	case hinted && (usage == nil || own.hint != ""):
		return own.hint
	case usage != nil && usage.Cmd != nil:
		return fmt.Sprintf("Run \"%s --help\".", usage.Cmd.CommandPath())
	case usage != nil:
		return "Run \"aeemesh --help\"."
	}
	var refused refusal
	if errors.As(err, &refused) {
		return acceptanceHint(refused.Acceptable())
	}
	var routeless noRoute
	if errors.As(err, &routeless) {
		return routesHint(routeless.UnsetKeys())
	}
	var problem *envelope.Error
	if errors.As(err, &problem) {
		return HintForCode(problem)
	}
	var api *natsjs.APIError
	if errors.As(err, &api) && limitHints[api.ErrorCode] != "" {
		return limitHints[api.ErrorCode]
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "Another process listens there already. Choose another port, or 0 for a free one."
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
	case errors.Is(err, jetstream.ErrUnavailable) && !jetstream.Off(err):
		return "JetStream does not answer, or a stream has no leader: in a cluster more than half of its servers must run." + DoctorTells
	case errors.Is(err, jetstream.ErrUnavailable), errors.Is(err, nats.ErrJetStreamNotEnabled):
		return "JetStream is off on this server or for this account, or --js-domain names none that it has. Where it is on, \"aeemesh apply\" makes the mesh's streams."
	case errors.Is(err, sign.ErrRevoked), errors.Is(err, sign.ErrTaken):
		return "Its owner makes another key with a new id, \"aeemesh keys new KID --from ENTITY\"; \"aeemesh keys trust\" takes the record of that."
	case errors.Is(err, state.ErrClear):
		return "Leave --state-key out if the agent's workers have none; --accept-clear-state believes what was stored before they had one."
	case errors.Is(err, state.ErrReplaced):
		return "Another client has written to the store of runs. \"aeemesh runs show RUN\" lists the revisions; \"aeemesh runs fork RUN --at REVISION\" goes on from one that is good."
	case errors.Is(err, state.ErrUncertain):
		return "The connection was cut, or the server did not answer in time. It may have been stored: look before you do it again."
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return "The server did not answer in time, as after a cut connection or while it restarts. Try again." + DoctorTells
	}
	return ""
}

// DoctorTells ends hints that doctor itself leaves out.
const DoctorTells = " \"aeemesh doctor\" says what is missing."

// limitHints are the hints for nats-server's refusals because a limit on streams or consumers is
// reached.
var limitHints = map[natsjs.ErrorCode]string{
	10026: "The account or the stream has as many consumers as it may. Raise the limit: max_consumers in the server's configuration or of the stream, or \"nsc edit account --js-consumer\".",
	10027: "The account has as many streams as it may. Raise the limit: max_streams in the server's configuration, or \"nsc edit account --js-streams\".",
}

// codeHints are the hints for errors of a code.
var codeHints = map[envelope.Code]string{
	envelope.CodeNoResponders:  "Is its worker running? \"aeemesh agents list\" shows who answers.",
	envelope.CodeTimeout:       "Give it longer with --timeout (the agent gets a little less), or in the document where a step's or the run's timeout_seconds is over, or look at what it does with \"aeemesh watch\".",
	envelope.CodeSigRequired:   "Sign with --sign KID; \"aeemesh keys new KID\" makes a key.",
	envelope.CodeKeyInvalid:    "The key is revoked or out of its time. \"aeemesh keys list\" shows it; \"aeemesh keys new\" makes another.",
	envelope.CodeFromDenied:    "The key may not speak for this sender: use --from with an entity that it may, or another --sign KID.",
	envelope.CodeStale:         "The clocks differ, or the envelope is old. \"aeemesh doctor\" compares the clocks.",
	envelope.CodeReplay:        "The id was used before. A new envelope gets an id of its own.",
	envelope.CodeIntentUnknown: "\"aeemesh agents describe ENTITY\" lists the intents that it knows.",
	envelope.CodeTooLarge:      "Put what is large where the agent can fetch it (\"nats object put\", a file, a URL) and send a reference. The server's max_payload can be raised; NATS advises against more than 8 MiB.",
	envelope.CodeKeyUnknown:    "The receiver does not know the key. If it reads this key directory, it knows a new key after five seconds; else: \"aeemesh keys trust FILE --shared\" here and --shared-keys on its worker, or \"aeemesh keys trust\" on its side. --sign none sends unsigned, where it takes that.",
	envelope.CodeInputSchema:   "\"aeemesh agents describe ENTITY --schema\" shows what it takes.",
}

// HintForCode returns the hint for an error of the mesh or an agent.
func HintForCode(e *envelope.Error) string {
	switch hint, answer := codeHints[e.Code], strings.HasPrefix(e.Message, "reply from "); {
	case answer && e.FromPeer() && (e.Code == envelope.CodeSigRequired || e.Code == envelope.CodeFromDenied):
		return "" // the error came from an agent that it called
	case e.Code == envelope.CodeSigRequired && answer:
		return "The answer is not signed: let the agent's worker sign (--sign), or accept unsigned answers (--signatures verify-if-present)."
	case e.Code == envelope.CodeFromDenied && answer:
		return "The answer is signed with a key that may not speak for the agent."
	case e.Code == envelope.CodeKeyUnknown && !e.FromPeer():
		return "The answer is signed with a key that you do not trust: \"aeemesh keys trust\" it, or use the mesh's with --shared-keys."
	case e.Code == envelope.CodeTooLarge && strings.Contains(e.Message, " has more than "): // a name
		return "Choose a shorter one."
	case e.Code == envelope.CodeInputSchema && strings.Contains(e.Message, "does not fit the template "):
		return "\"aeemesh schema show ENTITY\" shows the template."
	case hint != "" || !e.Retryable:
		return hint
	case e.Code == envelope.CodeBusy, e.Code == envelope.CodeRateLimited, e.Code == envelope.CodeDraining:
		return "Trying again may help: --retries N does it more often for you." // nothing was done
	}
	return "Sending it again may help."
}

// A noRoute is the error of a document none of whose models can be used: *adapters.NoRouteError.
type noRoute interface {
	error
	UnsetKeys() []string
}

// routesHint says what to do where none of a document's models can be used.
func routesHint(unset []string) string {
	const all = "\"aeemesh models routes FILE\" shows each route, and why it is not taken."
	if len(unset) == 0 {
		return all + " " + RoutesHint(nil)
	}
	return RoutesHint(unset) + " " + all
}

// RoutesHint is what makes a route usable, for a command that has shown the routes. unset are the
// variables of the keys that are missing.
func RoutesHint(unset []string) string {
	if len(unset) == 0 {
		return "Change the document, or section models in the file of --config."
	}
	return "Set " + strings.Join(unset, " or ") + ", or name a key in the file of --config (models.providers.PROVIDER.key); --api-key-env names another variable for the first model."
}

// A refusal is the error of an agent that is not hosted: *agents.Refusal.
type refusal interface {
	error
	// Acceptable returns the places of the document that this runtime does not keep,
	// and for some of them the worker flag that would allow what they need.
	Acceptable() (unkept []string, permits map[string]string)
}

// acceptanceHint tells the operator how to host an agent all the same that is
// refused for what this runtime does not do, or is not allowed to do; "" where that
// cannot be. What it names is what these flags take.
func acceptanceHint(unkept []string, permitting map[string]string) string {
	var permits, accepts, hints []string
	for _, p := range unkept {
		if flag := permitting[p]; flag != "" {
			name, value, _ := strings.Cut(flag, " ")
			permits = append(permits, name+" "+plain.ShellWord(value))
		} else {
			accepts = append(accepts, "--accept-unhonoured "+plain.ShellWord(aaif.FieldPath(p)))
		}
	}
	flags := func(list []string) string {
		slices.Sort(list)
		return strings.Join(slices.Compact(list), " ")
	}
	if len(permits) > 0 {
		hints = append(hints, "Allow what its tools need: worker "+flags(permits))
	}
	if len(accepts) > 0 {
		hints = append(hints, "Change the document, or accept on your own account that it is not done: worker "+flags(accepts))
	}
	return strings.Join(hints, ". ")
}
