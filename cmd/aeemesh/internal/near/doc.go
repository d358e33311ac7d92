// Package near suggests names for a mistyped one: "did you mean agent.echo?".
package near
