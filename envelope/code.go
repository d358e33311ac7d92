package envelope

// Code is the kind of failure that an error envelope reports. The constants below are all the codes
// of this mesh's own parts; docs/nats-binding.md lists them, and a golden file pins them. An agent
// may use codes of its own. They are passed on unchanged, and receivers react only to the error's
// Retryable.
type Code string

// The codes of the mesh. [Codes] says when each is used, and who can fix the cause.
const (
	CodeInvalidEnvelope Code = "E_INVALID_ENVELOPE"
	CodeTooLarge        Code = "E_TOO_LARGE"
	CodeEncoding        Code = "E_ENCODING"
	CodeWrongRecipient  Code = "E_WRONG_RECIPIENT"
	CodeUnexpectedType  Code = "E_UNEXPECTED_TYPE"
	CodeSigRequired     Code = "E_SIG_REQUIRED"
	CodeSigInvalid      Code = "E_SIG_INVALID"
	CodeSigUncheckable  Code = "E_SIG_UNCHECKABLE"
	CodeKeyUnknown      Code = "E_KEY_UNKNOWN"
	CodeKeyInvalid      Code = "E_KEY_INVALID"
	CodeFromDenied      Code = "E_FROM_DENIED"
	CodeReplay          Code = "E_REPLAY"
	CodeStale           Code = "E_STALE"
	CodeIntentUnknown   Code = "E_INTENT_UNKNOWN"
	CodeIntentReserved  Code = "E_INTENT_RESERVED"
	CodeInputSchema     Code = "E_INPUT_SCHEMA"
	CodeOutputSchema    Code = "E_OUTPUT_SCHEMA"
	CodeRequires        Code = "E_REQUIRES"
	CodeTimeout         Code = "E_TIMEOUT"
	CodeCancelled       Code = "E_CANCELLED"
	CodeBusy            Code = "E_BUSY"
	CodeRateLimited     Code = "E_RATE_LIMITED"
	CodeDraining        Code = "E_DRAINING"
	CodeNoResponders    Code = "E_NO_RESPONDERS"
	CodeUnavailable     Code = "E_UNAVAILABLE"
	CodeInternal        Code = "E_INTERNAL"
	CodeDenied          Code = "E_DENIED"
	CodeNotFound        Code = "E_NOT_FOUND"
	CodeHashMismatch    Code = "E_HASH_MISMATCH"
	CodeModel           Code = "E_MODEL"
	CodeTool            Code = "E_TOOL"
	CodeMaxIterations   Code = "E_MAX_ITERATIONS"
	CodeBudget          Code = "E_BUDGET"
	CodeSwarm           Code = "E_SWARM"
	CodeTreeLimit       Code = "E_TREE_LIMIT"
	CodeNoRoute         Code = "E_NO_ROUTE"
	CodeDeclined        Code = "E_DECLINED"
	CodeAgent           Code = "E_AGENT"
)

// CodeInfo documents one code.
type CodeInfo struct {
	Code      Code
	When      string // what has happened
	Retryable bool   // whether sending the task again, with a new id, can help
	Fixer     string // who can fix it: sender, operator, agent, or "nobody" if no fix is needed
}

// Codes documents the closed set of the mesh's codes.
var Codes = [...]CodeInfo{
	{CodeInvalidEnvelope, "the body is no valid AEE envelope; the message names the fields and the rules", false, "sender"},
	{CodeTooLarge, "the body, or the answer to it, is larger than the limit", false, "sender"},
	{CodeEncoding, "the Content-Type is neither JSON nor CBOR", false, "sender"},
	{CodeWrongRecipient, "the envelope's to is not the entity of the subject it came on", false, "sender"},
	{CodeUnexpectedType, "an envelope of this type is not accepted on this subject", false, "sender"},
	{CodeSigRequired, "the receiver requires a signature and there is none", false, "sender"},
	{CodeSigInvalid, "the signature does not verify, or is malformed", false, "sender"},
	{CodeSigUncheckable, "sig is a string, or names an algorithm that is not supported here", false, "sender"},
	{CodeKeyUnknown, "the receiver has no key with the signature's kid", false, "operator"},
	{CodeKeyInvalid, "the key is revoked, expired or not valid yet", false, "operator"},
	{CodeFromDenied, "the key may not speak for the envelope's from", false, "operator"},
	{CodeReplay, "an envelope with this id was seen within the replay window", false, "sender"},
	{CodeStale, "ts is further from the receiver's clock than the skew bound, or cannot be read", false, "sender"},
	{CodeIntentUnknown, "the agent's policy refuses intents that it does not know", false, "sender"},
	{CodeIntentReserved, "the intent is in a reserved namespace and no such intent exists", false, "sender"},
	{CodeInputSchema, "the task's payload violates the intent's task schema", false, "sender"},
	{CodeOutputSchema, "the agent's result violates the intent's result schema, or its error the error schema", false, "agent"},
	{CodeRequires, "a constraint in requires is malformed or cannot be met here", false, "sender"},
	{CodeTimeout, "the task was not done by its deadline", true, "nobody"},
	{CodeCancelled, "the task was cancelled by its sender or by an operator", false, "nobody"},
	{CodeBusy, "the worker has no room: its queue is full, or its program has not answered earlier tasks; nothing was done", true, "nobody"},
	{CodeRateLimited, "the sender is over its quota; nothing was done", true, "sender"},
	{CodeDraining, "the worker is shutting down and had not begun; nothing was done", true, "nobody"},
	{CodeNoResponders, "no worker of the entity is connected", true, "operator"},
	{CodeUnavailable, "the worker, or a service that it needs, is unreachable for now; the task may have begun", true, "operator"},
	{CodeInternal, "the agent failed for an internal reason; its log says more", false, "agent"},
	{CodeDenied, "the receiver's policy does not allow this", false, "operator"},
	{CodeNotFound, "what the task refers to was not found", false, "sender"},
	{CodeHashMismatch, "what was found does not have the hash that the sender expects", false, "sender"},
	{CodeModel, "the model refused, failed or answered with something unusable", false, "agent"},
	{CodeTool, "a tool that the agent cannot do without failed", false, "agent"},
	{CodeMaxIterations, "the agent did not finish within max_iterations", false, "agent"},
	{CodeBudget, "the next call would break the budget of the run, or of all runs of its corr", false, "operator"},
	{CodeSwarm, "too few of a swarm's members answered, or they do not agree as its document demands; the error's member swarm has their answers", false, "agent"},
	{CodeTreeLimit, "the task is too deep in its tree, or the tree has too many tasks, or the task was delegated in a circle or too often; the message names the bound", false, "operator"},
	{CodeNoRoute, "no subagent takes the task: no condition holds, and there is no fallback", false, "sender"},
	{CodeDeclined, "the person who was asked declined; the message is theirs", false, "nobody"},
	{CodeAgent, "the agent reports a failure without a code of its own", false, "agent"},
}

// Known reports whether c is one of the mesh's codes.
func (c Code) Known() bool {
	_, ok := c.info()
	return ok
}

// Retryable reports whether the mesh's own errors with this code are retryable.
func (c Code) Retryable() bool {
	info, _ := c.info()
	return info.Retryable
}

func (c Code) info() (CodeInfo, bool) {
	for _, info := range Codes {
		if info.Code == c {
			return info, true
		}
	}
	return CodeInfo{}, false
}
