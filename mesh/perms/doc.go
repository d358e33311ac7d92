// Package perms tells which NATS permissions a worker, a sender, a person, an operator and a
// viewer need, and no more (docs/nats-binding.md, section 11).
package perms
