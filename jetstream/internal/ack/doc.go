// Package ack reads the subjects on which messages of JetStream are acknowledged: they say which
// message it is.
package ack
