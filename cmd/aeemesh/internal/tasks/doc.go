// Package tasks has the commands that give tasks to agents and wait for their results:
// "aeemesh send", "ask" and "result".
package tasks
