// Package room asks a NATS server how much storage it can reserve.
package room
