package sdsi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/aeemesh/aeemesh/envelope"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/intents/schema"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/jetstream/denial"
	"github.com/aeemesh/aeemesh/mesh"
)

// A Client requests templates from agents, and sends payloads that fill them. If the node's
// Verifier requires signatures, the Client refuses an unsigned template (SDSI 7).
type Client struct {
	node *mesh.Node
	now  func() time.Time
	send mesh.SendOptions // of requests for templates

	mu       sync.Mutex
	known    map[question]*known
	asking   map[*known]question // requests that are not answered yet
	contents map[content]string  // hashes
}

// question identifies a requested template.
type question struct{ entity, scenario, language string }

// known is a template that a client remembers.
type known struct {
	answer *answer
	asked  time.Time
	stale  bool
}

// answer is an agent's answer: a template, and patches for it.
type answer struct {
	*template.GetResult

	mu    sync.Mutex
	whole *template.Template // the template with the patches that have not expired; nil: not computed yet
	until time.Time          // when the next of these patches expires; zero: none does
}

// template returns the template with the patches that have not expired. A patch that does not
// apply is left out: the agent accepts payloads without its keys.
func (a *answer) template(now time.Time) *template.Template {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.whole != nil && (a.until.IsZero() || now.Before(a.until)) {
		return a.whole
	}
	a.until = time.Time{}
	var patches []template.Patch
	for _, p := range a.Patches {
		if p.Expired(now) {
			continue
		}
		patches = append(patches, p)
		if a.until.IsZero() || p.Expires.Before(a.until) {
			a.until = p.Expires
		}
	}
	a.whole = withPatches(&a.Template, patches, func(template.Patch, error) {})
	return a.whole
}

// Whole returns the template of an answer with the patches that apply and have not expired at a
// time.
func Whole(got *template.GetResult, now time.Time) *template.Template {
	return (&answer{GetResult: got}).template(now)
}

// fresh is how long a client uses a template without asking whether it is still current.
const fresh = 30 * time.Second

// maxRemembered is how many templates a client remembers.
const maxRemembered = 256

// NewClient returns a client that sends as the node's entity.
func NewClient(node *mesh.Node) *Client {
	return &Client{node: node, now: time.Now, known: map[question]*known{}, asking: map[*known]question{}, contents: map[content]string{}}
}

// Retry makes the client send its requests for templates again, as [mesh.SendOptions] says of
// Retries and OnRetry. Default: it does not. Call it before the first request.
func (c *Client) Retry(retries int, onRetry func(attempt int, wait time.Duration, why *envelope.Error)) {
	c.send = mesh.SendOptions{Retries: retries, OnRetry: onRetry}
}

// ErrNone is wrapped by the error about an agent that publishes no templates.
var ErrNone = errors.New("the agent publishes no schema templates")

// offers asks an agent whether it publishes templates. An agent that publishes none might give a
// request for a template to its model as a task. One that does not know this question either, or
// takes it for a task, publishes none.
func (c *Client) offers(ctx context.Context, entity string) error {
	var can intents.CapabilityListResult
	_, err := c.query(ctx, entity, intents.CapabilityList, intents.CapabilityListTask{}, &can)
	var failed *envelope.Error
	if errors.As(err, &failed) && failed.FromPeer() && (failed.Code == envelope.CodeIntentUnknown || failed.Code == envelope.CodeInputSchema) {
		return fmt.Errorf("%s: %w: %w", entity, ErrNone, err)
	}
	if err != nil {
		return err
	}
	if len(can.Scenarios) == 0 {
		return fmt.Errorf("%s: %w", entity, ErrNone)
	}
	return nil
}

// Scenarios returns the scenarios for which an agent has templates. The error of an agent
// that has none wraps [ErrNone].
func (c *Client) Scenarios(ctx context.Context, entity string) ([]template.Listed, error) {
	if err := c.offers(ctx, entity); err != nil {
		return nil, err
	}
	var list template.ListResult
	if _, err := c.query(ctx, entity, intents.SchemaList, struct{}{}, &list); err != nil {
		return nil, err
	}
	return list.Scenarios, nil
}

// Template returns the current template of a scenario, with its patches, in the language that fits
// best; scenario "" means the agent's only scenario. A known template is requested again after half
// a minute, and the agent sends it only if it has changed. The caller must not change the template.
func (c *Client) Template(ctx context.Context, entity, scenario, language string) (*template.Template, error) {
	q := question{entity, scenario, language}
	c.mu.Lock()
	have := c.known[q]
	current := have != nil && !have.stale && c.now().Sub(have.asked) < fresh
	c.mu.Unlock()
	ask := template.GetTask{Scenario: scenario, Language: language}
	switch {
	case current:
		return have.answer.template(c.now()), nil
	case have != nil:
		ask.IfHash = have.answer.Hash
	default:
		if err := c.offers(ctx, entity); err != nil {
			return nil, err
		}
	}
	next := &known{}
	c.mu.Lock()
	c.asking[next] = q
	c.mu.Unlock()
	got, _, err := c.get(ctx, entity, ask)
	if err == nil && got.NotModified { // so a template is known
		next.answer = have.answer
	} else {
		next.answer = &answer{GetResult: got}
	}
	c.remember(q, next, err)
	if err != nil {
		return nil, err
	}
	return next.answer.template(c.now()), nil
}

// remember records the answer to a request; err is its error, or nil.
func (c *Client) remember(q question, next *known, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.asking, next)
	if err != nil {
		return
	}
	if len(c.known) >= maxRemembered && c.known[q] == nil {
		c.known = map[question]*known{}
	}
	next.asked = c.now()
	c.known[q] = next
}

// Get requests a template and its patches from an agent. Unlike [Client.Template] it always sends a
// request. reply is the agent's reply. If the agent publishes no templates, the error wraps
// [ErrNone].
func (c *Client) Get(ctx context.Context, entity string, ask template.GetTask) (got *template.GetResult, reply *envelope.Envelope, err error) {
	if err := c.offers(ctx, entity); err != nil {
		return nil, nil, err
	}
	return c.get(ctx, entity, ask)
}

// get requests a template from an agent. It refuses "not modified" for anything but the requested
// template, and a version whose content differs from an earlier answer.
func (c *Client) get(ctx context.Context, entity string, ask template.GetTask) (got *template.GetResult, reply *envelope.Envelope, err error) {
	if reply, err = c.query(ctx, entity, intents.SchemaGet, ask, nil); err != nil {
		return nil, nil, err
	}
	if got, err = template.ParseGetResult(reply.Payload); err != nil {
		return nil, nil, fmt.Errorf("template of %s: %w", entity, err)
	}
	if got.NotModified && (ask.IfHash == "" || got.Hash != ask.IfHash) {
		return nil, nil, fmt.Errorf("template of %s: it says \"not modified\" of a template that was not asked for", entity)
	}
	if ask.SchemaID != "" && got.SchemaID != ask.SchemaID {
		return nil, nil, fmt.Errorf("template of %s: it was asked for %s, and has sent %s", entity, ask.SchemaID, clip.Text(got.SchemaID, 128))
	}
	if !got.NotModified {
		if err := c.sameContent(entity, &got.Template); err != nil {
			return nil, nil, err
		}
	}
	return got, reply, nil
}

// query is [mesh.Node.Query] that accepts an answer of the agent itself only, not of an agent to
// which the task was delegated. If the server does not permit the request, it fails at once.
func (c *Client) query(ctx context.Context, entity, intent string, in, out any) (*envelope.Envelope, error) {
	ctx, stop := denial.Until(ctx, c.node.Conn(), func(d denial.Denial) error {
		if d.Op == denial.Publish && strings.HasSuffix("."+d.Subject, "."+entity) {
			return envelope.Errorf(envelope.CodeDenied, "this NATS user may not publish to %s; \"aeemesh auth perms %[1]s --sender\" prints what it needs", entity)
		}
		return nil
	})
	defer stop()
	reply, err := c.node.QueryWith(ctx, entity, intent, in, out, c.send)
	var denied *envelope.Error
	if err != nil && errors.As(context.Cause(ctx), &denied) {
		return nil, denied
	}
	if err == nil && reply.From != entity {
		return nil, envelope.Errorf(envelope.CodeInvalidEnvelope, "%s was asked for its templates, and another agent has answered", entity)
	}
	return reply, err
}

// Forget makes the client request an entity's templates again. It also discards an answer to a
// request that is under way.
func (c *Client) Forget(entity string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for q, have := range c.known {
		if q.entity == entity {
			have.stale = true
		}
	}
	for next, q := range c.asking {
		if q.entity == entity {
			next.stale = true
		}
	}
}

// ExchangeOptions configure [Client.Exchange].
type ExchangeOptions struct {
	// Send are the options of a live task. After a retry the outcome's Task has the id of the first
	// attempt.
	Send mesh.SendOptions
	// Durable sends the task over the durable lane. Submit are its options there.
	Durable bool
	Submit  mesh.SubmitOptions
	// Refill, if set, makes a payload for the current version if the agent does not know the
	// payload's version. Its NoUpdates is set if the first payload's was. Default: the same payload,
	// if its keys have not changed.
	Refill func(context.Context, *template.Template) (template.Payload, error)
}

// Exchanged is the outcome of [Client.Exchange].
type Exchanged struct {
	// Task is the task that was sent last. If it is durable, [mesh.Node.Result] reads its result
	// later.
	Task *envelope.Envelope
	// Stored confirms that a durable task is stored; its TaskID is "" if that failed.
	Stored mesh.Submitted
	// Envelope is the received result, or the error envelope; nil if none came.
	Envelope *envelope.Envelope
	// Suggestion is the patch that the agent suggests; nil if there is none. The next
	// [Client.Template] includes it.
	Suggestion *template.Patch
}

// Exchange sends values for a template's keys to an agent, and returns its result. If the
// agent does not know the version, Exchange gets the current one and tries once more. An
// error of the agent is an *[envelope.Error], as of [mesh.Node.Send]. When ctx ends, a durable
// task that is stored goes on: the outcome, which is never nil, names it.
func (c *Client) Exchange(ctx context.Context, entity string, p template.Payload, o ExchangeOptions) (*Exchanged, error) {
	out, err := c.exchange(ctx, entity, p, o)
	if isNotFound(err) {
		if again, ok := c.renewed(ctx, entity, p, o); ok {
			return c.exchange(ctx, entity, again, o)
		}
	}
	return out, err
}

func (c *Client) exchange(ctx context.Context, entity string, p template.Payload, o ExchangeOptions) (*Exchanged, error) {
	task := envelope.New(envelope.TypeTask, c.node.Entity(), entity, intents.Exchange, p.Encode())
	out := &Exchanged{Task: task}
	var err error
	if o.Durable {
		out.Stored, out.Envelope, err = c.node.Perform(ctx, task, o.Submit, mesh.ResultOptions{})
	} else {
		out.Envelope, err = c.node.Send(ctx, task, o.Send)
	}
	if err != nil {
		return out, err
	}
	reply := out.Envelope
	if reply.From != entity { // another agent's suggestion is ignored
		return out, c.holdsResponse(entity, p.SchemaID, reply)
	}
	var said struct {
		Suggestion json.RawMessage `json:"schema_update_suggestion"`
	}
	if json.Unmarshal(reply.Payload, &said) == nil && len(said.Suggestion) > 0 {
		// A suggestion that is not a patch of this template is ignored: the result is valid without
		// it.
		if patch, err := template.ParsePatch(said.Suggestion); err == nil && patch.ParentSchemaID == p.SchemaID {
			out.Suggestion = patch
			c.Forget(entity)
		}
	}
	return out, nil
}

// holdsResponse validates the result of another agent, to which the exchange was delegated, against
// the template's response schema, which that agent does not know. The entity's own [Desk] has
// validated its own results.
func (c *Client) holdsResponse(entity, schemaID string, reply *envelope.Envelope) error {
	_, t := c.filledIn(entity, schemaID)
	if t == nil || len(t.ResponseSchema) == 0 {
		return nil
	}
	responses, err := schema.Compile(t.ResponseSchema)
	if err != nil {
		return fmt.Errorf("template %s: response_schema: %w", schemaID, err)
	}
	if err := responses.Validate(reply.Payload); err != nil {
		return envelope.Errorf(envelope.CodeOutputSchema, "%s has answered for %s, and the result is not one of the template %s: %s", reply.From, entity, schemaID, err.Error())
	}
	return nil
}
