package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents/adapters"
)

// operatorFlags are an operator's word about what documents may have.
type operatorFlags struct {
	file string
}

func (f *operatorFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "config", "", "`FILE` (YAML) of what agents may have here: endpoints, servers, secrets, models, budgets")
}

// adapters makes the adapters of a command's agents. Its caller closes them.
func (a *app) adapters(cmd *cobra.Command, f *operatorFlags) (*adapters.Set, error) {
	var cfg adapters.Config
	if f.file != "" {
		data, err := a.readFile(f.file, adapters.MaxConfig+1)
		if err != nil {
			return nil, err
		}
		if cfg, err = adapters.Read(data); err != nil {
			return nil, usagef(cmd, "%s: %w", f.file, err)
		}
	}
	return adapters.New(cfg, adapters.Options{
		Env:    func(name string) (string, bool) { v := a.env(name); return v, v != "" },
		Logger: a.log,
	})
}
