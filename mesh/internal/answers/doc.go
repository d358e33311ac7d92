// Package answers knows what an answer to a task is: which replies a sender may believe, of
// live and of durable tasks, and how a reply is written before it is stored.
package answers
