package session

import (
	"github.com/aeemesh/aeemesh/intents"
	"github.com/aeemesh/aeemesh/mesh"
)

// Health returns the health of an agent's key: the agent is unhealthy if receivers refuse its
// answers. A nil keeper, before the process has started, adds nothing.
func (k *KeyKeeper) Health(entity string) mesh.Health {
	if k == nil || k.Trouble() == "" && k.whySpent(entity) == "" {
		return mesh.Health{Status: string(intents.Healthy)}
	}
	if why := k.whySpent(entity); why != "" {
		return mesh.Health{Status: string(intents.Unhealthy), Details: map[string]any{"reason": why}}
	}
	return mesh.Health{Status: string(intents.Degraded), Details: map[string]any{"reason": k.Trouble()}}
}
