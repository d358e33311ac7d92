// Package operator has the flags and the file with which an operator permits what
// agents' documents may use: hosts, servers, secrets, models, budgets. [Flags.Adapters]
// makes of them what the agents get.
package operator
