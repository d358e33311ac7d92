// Package client is the half of a node that sends: live and durable tasks, commands, plain
// text, and questions about workers, results and the inboxes of people. It needs a
// connection and no agent.
//
// A [Client] is part of each Node of package mesh, which embeds it: call its methods on the
// node. Package mesh has other names for the types here, so that programs need not import
// this package.
package client
