package adapters

import (
	"fmt"
	"strings"

	"github.com/aeemesh/aeemesh/agents"
	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/model/builtin"
	"github.com/aeemesh/aeemesh/agents/sdsi"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
)

// Learning returns the configuration's section of that name.
func (s *Set) Learning() learn.Settings { return s.cfg.Learning }

// Filler returns the model PROVIDER/NAME for structured answers, as if a document named it.
func (s *Set) Filler(name string, opts agents.Options) (sdsi.Filler, error) {
	provider, preferred, ok := strings.Cut(name, "/")
	if !ok || preferred == "" {
		return sdsi.Filler{}, fmt.Errorf("%q: it is PROVIDER/NAME, such as openai/gpt-4o", name)
	}
	def := &aaif.Definition{Agent: aaif.Agent{Model: &aaif.Model{Provider: aaif.Provider(provider), Preferred: preferred}}}
	if provider == builtin.ProviderID {
		def.Agent.Model.Provider, def.Agent.Model.ProviderID = aaif.ProviderCustom, builtin.ProviderID
	}
	s.Use(&opts)
	m, _, err := opts.Models(def, opts)
	if err != nil {
		return sdsi.Filler{}, fmt.Errorf("%s: %w", name, err)
	}
	return sdsi.Filler{Model: m, Name: preferred}, nil
}
