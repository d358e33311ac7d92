// Package bench is "aeemesh bench": it measures requests, durable tasks and
// trees of tasks against raw NATS in the same run.
//
// The server, the responders and the clients are processes of their own, so
// that they compete for the machine as in production. [Command] has a hidden
// subcommand for each of these roles.
package bench
