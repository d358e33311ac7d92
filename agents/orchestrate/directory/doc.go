// Package directory resolves the references of subagents in a document (AAIF,
// Orchestration Topology). It implements [orchestrate.Directory] for a mesh.
//
//	dir := directory.New(directory.Config{Policy: policy})
//	opts.Directory = dir.For(directory.Asker{Entity: "agent.team", Folder: "agents"})
//	…
//	dir.Use(node, jetstream.NewAgents(js, m)) // once connected
//	go dir.Run(ctx)                           // optional: refreshes its caches
//
// # Forms of a reference
//
//	agent.reviewer                        an entity id, unchanged; also service.* and human.*
//	6f0c…-…                               an agent_id: the registry, then the running workers
//	urn:uuid:6f0c…-…                      the same
//	nats://registry/<name>                only the registry: agent_id, entity, alias, or the entity's name
//	file:///srv/agents/x.yaml, ./x.yaml   a definition in a file that the operator allows
//	https://example.com/x.json            a definition at a URL that the operator allows
//	skill:<name>                          a healthy agent that has the skill
//	reviewer                              any other text: the registry's names, an agent_id, agent.<name>
//
// A registration names its entity. A definition in a file or at a URL stands
// for the entity under which its agent_id is registered, else for the one that
// is made from its name ([aaif.EntityName]).
//
// Find does not check whether a worker serves the entity: a durable task waits
// for one, and a live task fails at once without one. Only a skill is resolved
// to an agent that is running.
//
// # Skills
//
// The candidates are running agents that list the skill in their NATS micro
// metadata or in their registration. Their health is requested
// (aee.status.health) in order of load: running and waiting tasks, and choices
// made since the load was read, divided by the agent's concurrency; equal loads
// are ordered by entity. The first healthy agent is chosen, else the first
// degraded one. An agent that is unhealthy, draining, or does not answer within
// a second is not chosen, nor is the agent that asks. Find chooses anew each
// time; a caller that must stay with one agent has to remember it.
//
// # Requests and caching
//
// The directory asks the mesh for its running workers only when a reference
// needs them, at most every three seconds, or every second if a reference could
// not be resolved. Health is cached for one second. The registry is watched
// while Run runs, and otherwise listed at most every two seconds. Files are
// read again after two seconds, URLs after a minute, failures after five
// seconds. No request takes longer than ten seconds, or than its context.
//
// # Errors
//
// [orchestrate.ErrUnknown]: the reference can never be resolved with this
// document and configuration. [orchestrate.ErrUnanswered]: it cannot be resolved
// now. All errors are a [*Problem], with a hint for operators.
package directory
