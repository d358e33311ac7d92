// Package directory says who a document means by the reference of a subagent
// (AAIF, Orchestration Topology): it is the [orchestrate.Directory] of a mesh.
//
//	dir := directory.New(directory.Config{Policy: policy})
//	opts.Directory = dir.For(directory.Asker{Entity: "agent.team", Folder: "agents"})
//	…
//	dir.Use(node, jetstream.NewAgents(js, m)) // once connected
//	go dir.Run(ctx)                           // optional: keeps what it knows fresh
//
// # Forms of a reference
//
//	agent.reviewer                        an entity, as it is; so service.* and human.*
//	6f0c…-…                               an agent_id: the registry, then the workers that run
//	urn:uuid:6f0c…-…                      the same
//	nats://registry/<name>                the registry alone: agent_id, entity, alias, or the entity's name
//	file:///srv/agents/x.yaml, ./x.yaml   a definition in a file that the operator allows
//	https://example.com/x.json            a definition at a URL that the operator allows
//	skill:<name>                          a healthy agent that has the skill
//	reviewer                              any other text: the registry's names, an agent_id, agent.<name>
//
// A registration says itself which entity is meant. The definition behind a file
// or a URL means the entity under which its agent_id is registered, else the one
// that its name makes ([aaif.EntityName]).
//
// Whether anybody serves an entity is not asked: a durable task waits for him,
// and a live one is told at once. Only a skill means somebody who is there.
//
// # Skills
//
// Agents that run and show the skill in their NATS micro metadata, or whose
// registration has it, are asked how they are (aee.status.health), the least
// loaded first: tasks that run and wait, by place, and what was chosen since that
// was learnt. Of equals the first by entity comes. Who is healthy is taken,
// then who is degraded; who is unhealthy, draining, or does not answer within a
// second is not. The agent that asks is never the answer. Whoever must stay with
// a choice keeps it: Find chooses anew each time.
//
// # What is asked, and how often
//
// The whole mesh is asked who runs at most every three seconds, every second where
// somebody is missing, and only while somebody needs to know; a verdict about health holds for one second. The
// registry is watched while Run runs, and else listed at most every two seconds.
// Files are read again after two seconds, URLs after a minute, failures after
// five seconds. Nothing takes longer than ten seconds, or than its context.
//
// # Errors
//
// [orchestrate.ErrUnknown]: it can never be, as the document and the operator's
// configuration are. [orchestrate.ErrNobody]: not now. All are a [*Problem], with
// a hint for operators.
package directory
