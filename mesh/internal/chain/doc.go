// Package chain makes, reads and verifies the proof by which an agent answers a task that
// was sent to another agent and then delegated to it (docs/nats-binding.md, "Handed-over
// tasks").
//
// The proof is a chain of links. A link is an event envelope, signed by the agent that
// delegates the task, to the agent that receives it. The sender of the task knows the
// agent that it sent it to, and from there follows the links to the author of the reply.
// An agent that no link names cannot answer. Each link names the task and its sender, so
// that it cannot be used for another task.
//
// A link travels as text, base64url of its JSON: a member of requires and a header must
// not hold an envelope that could be routed (AEE, "Never nest an envelope").
//
// [Parse] checks the form of a chain that a peer sent, within limits; [Chain.Verify] checks
// the signatures. Both have no state and may run at once.
package chain
