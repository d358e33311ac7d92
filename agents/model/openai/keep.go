package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/agents/model"
)

// kept has the thoughts of a turn that called tools: some providers refuse the conversation
// without them. They are stored in [model.Message].Provider under this package's name, with the
// provider that they belong to, because a conversation may move from one provider to another.
type kept struct {
	Of      string                     `json:"of"`
	Members map[string]json.RawMessage `json:"members"`
}

const keptUnder = "openai"

// pack returns the members of the turn that later requests need, for Message.Provider.
func (m *Model) pack(t *turn) (json.RawMessage, error) {
	members, err := t.keptMembers()
	if err != nil || len(members) == 0 {
		return nil, err
	}
	return json.Marshal(map[string]kept{keptUnder: {Of: m.provider.Name, Members: members}})
}

// unpack returns the kept members, which a message must have in a request.
func (m *Model) unpack(msg *model.Message) map[string]json.RawMessage {
	var all map[string]kept
	if len(m.provider.keep) == 0 || msg.Role != model.RoleAssistant {
		return nil
	}
	members := make(map[string]json.RawMessage)
	if len(msg.Provider) > 0 && json.Unmarshal(msg.Provider, &all) == nil && all[keptUnder].Of == m.provider.Name {
		for _, name := range m.provider.keep {
			if v, ok := all[keptUnder].Members[name]; ok {
				members[name] = v
			}
		}
	}
	if m.provider.keepEmpty && len(msg.ToolCalls) > 0 {
		for _, name := range m.provider.keep {
			if _, ok := members[name]; !ok {
				members[name] = json.RawMessage(`""`)
			}
		}
	}
	return members
}

// keepPiece adds a piece of a kept member; the pieces of a text or a list are concatenated.
func (t *turn) keepPiece(name string, raw json.RawMessage) {
	if len(raw) == 0 || string(raw) == "null" {
		return
	}
	if t.kept == nil {
		t.kept = make(map[string][]json.RawMessage)
	}
	t.kept[name] = append(t.kept[name], raw)
}

func (t *turn) keptMembers() (map[string]json.RawMessage, error) {
	out := make(map[string]json.RawMessage)
	for name, pieces := range t.kept {
		var text strings.Builder
		var list []json.RawMessage
		for _, p := range pieces {
			var s string
			var l []json.RawMessage
			switch {
			case json.Unmarshal(p, &s) == nil:
				text.WriteString(s)
			case json.Unmarshal(p, &l) == nil:
				list = append(list, l...)
			default:
				return nil, fmt.Errorf("%s is neither a text nor a list", name)
			}
		}
		var v any = text.String()
		if list != nil {
			v = list
		}
		if v == "" {
			continue
		}
		raw, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		out[name] = raw
	}
	return out, nil
}
