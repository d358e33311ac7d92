package state

import "github.com/google/uuid"

// The namespaces of our name-based UUIDs, chosen at random once. They must not change:
// see "Names that last" in the package's documentation.
var (
	runNamespace   = uuid.UUID{0x0e, 0x0b, 0x7c, 0x53, 0x8a, 0x1d, 0x4d, 0x7e, 0x9c, 0x36, 0x52, 0x1f, 0xd4, 0x3b, 0x90, 0x6a}
	agentNamespace = uuid.UUID{0x6f, 0x24, 0xd1, 0xb9, 0x35, 0xc8, 0x4a, 0x02, 0xb7, 0x5d, 0xe3, 0x88, 0x0f, 0x61, 0xc2, 0x17}

	endNamespace = uuid.UUID{0x3c, 0x95, 0x1e, 0xd8, 0x60, 0x2b, 0x4f, 0xa7, 0x83, 0x19, 0xe5, 0x7a, 0xc0, 0x46, 0xd1, 0x2e}

	adoptedNamespace = uuid.UUID{0xb0, 0xa1, 0xf3, 0xa6, 0x7d, 0x52, 0x4d, 0x0e, 0x8a, 0x37, 0x92, 0xc5, 0xe4, 0xb1, 0x68, 0x0f}
)

// RunID is the id of a task's run: the UUID version 5 (RFC 9562, section 5.5) of
// "<entity> <task id>" in the namespace 0e0b7c53-8a1d-4d7e-9c36-521fd43b906a. An entity
// contains no space, so different pairs have different names.
func RunID(entity, taskID string) string { return nameUUID(runNamespace, entity+" "+taskID) }

// AgentID is the id of an agent whose document has none: the UUID version 5 of the entity
// in the namespace 6f24d1b9-35c8-4a02-b75d-e3880f61c217.
func AgentID(entity string) string { return nameUUID(agentNamespace, entity) }

func nameUUID(namespace uuid.UUID, name string) string {
	return uuid.NewSHA1(namespace, []byte(name)).String()
}
