// Package adapters puts the adapters of models, tools and secrets together, as
// the operator's configuration says:
//
//	cfg, err := adapters.Read(data)               // YAML or JSON; the zero Config allows nothing
//	set, err := adapters.New(cfg, adapters.Options{Env: os.LookupEnv, Logger: log})
//	defer set.Close()
//	var opts agents.Options
//	set.Use(&opts)
//	a, err := agents.New(doc, opts)
//
// Package agents knows the ports only. Whoever embeds it links what he uses: all
// of them with this package, or single adapters by setting agents.Options
// himself.
//
// # The configuration
//
// A [Config] is the operator's word about what documents may have: which
// endpoints, which servers, which secrets, at which cost. Documents come from
// anywhere and can only ask. The file is YAML (or JSON), and strict: a name that
// is not known is an error, so that a typing error forbids rather than allows.
package adapters
