// Package agents has the commands about running agents: `aeemesh agents list`,
// `describe`, `ping` and `retire`. The commands about their definitions, which are
// subcommands of `aeemesh agents` too, are in package definitions.
package agents
