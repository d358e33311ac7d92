// Package near finds the name that somebody meant who has mistyped one: "did you
// mean agent.echo?".
package near
