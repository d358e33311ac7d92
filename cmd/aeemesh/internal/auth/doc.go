// Package auth has the commands of "aeemesh auth": they print the NATS
// permissions that workers, senders, operators and viewers need, as configuration
// of the server or as arguments of nsc.
package auth
