// Package payloads decides which payloads an agent takes and gives: whether a task's payload fits
// its intent, whether the agent can give a result as the task requires it, and whether its result
// or error is one.
//
// It is pure: it needs only the agent's schemas.
package payloads
