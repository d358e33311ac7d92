// Package room asks a NATS server, and an account, how much storage they have left for streams.
package room
