package state_test

import (
	"testing"

	"github.com/aeemesh/aeemesh/state"
)

// These names are wire format: after a change, workers of two releases would do one task
// twice.
func TestNamesAreStable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ got, want string }{
		{state.RunID("agent.reviewer", "01JD0000000000000000000000"), "ddc34a24-e07d-5931-8778-75186b323389"},
		{state.RunID("agent.reviewer", ""), "cd963acd-38cd-5f7c-a555-6448fd8b31da"},
		{state.RunID("agent.a", "b c"), "d14e7e36-f4ea-53ac-80f8-e3e03b5e0f72"},
		{state.RunID("service.größe", "a\x00b"), "db9b7f69-c77a-5759-8fa4-9430e66001fe"},
		{state.EffectKey("e3e7a7c2-bf6c-5a2b-86ec-3b6ce2354603", 2, 1), "e3e7a7c2-bf6c-5a2b-86ec-3b6ce2354603.2.1"},
		{state.ArgsHash([]byte(` {"b": 1.0, "a": "\u00f6"} `)), "sha256:cd13bdb8216a1f04307e12f9a3cfd071fb528db8ef7aa6bee016bd91717acf82"},
		{state.ArgsHash([]byte(`{"n": 12345678901234567890}`)), "sha256:43fc99fa47c4fc52878551b9fee3412ffc3f712fb7dd639028e48c0d06581f90"}, // no canonical form exists: hashed as it is
		{state.AdoptedTask("agent.reviewer", "7c0a3e1e-52c4-4f55-9f0e-0c6f0a4e0f11"), "53de2bd3-9109-5cb8-8830-4135590273cf"},
		{state.AgentID("agent.reviewer"), "c4f30c6e-546e-5e7a-ad1a-25a402eb19c9"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s, want %s", tt.got, tt.want)
		}
	}
}
