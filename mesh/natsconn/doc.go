// Package natsconn connects to NATS as its users expect: with the names and the
// credentials of the nats CLI, reconnecting for ever with jitter, and with errors that say
// what helps.
package natsconn
