// Package adapters assembles the adapters of models, tools and secrets from the
// operator's configuration:
//
//	cfg, err := adapters.Read(data)               // YAML or JSON; the zero Config allows nothing
//	set, err := adapters.New(cfg, adapters.Options{Env: os.LookupEnv, Logger: log})
//	defer set.Close()
//
//	var opts agents.Options
//	set.Use(&opts)
//	a, err := agents.New(doc, opts)
//
// Package agents imports only the ports. A program that embeds it links only the adapters that it
// uses: all of them with this package, or single ones if it sets agents.Options itself.
//
// # The configuration
//
// A [Config] says what documents may use: which endpoints, servers and secrets, at which cost.
// Documents may be untrusted, so they can only request these. The file is YAML or JSON, and is read
// strictly: an unknown name is an error, so that a typing error never permits anything. [Check]
// reports all problems of a file, with their places.
package adapters
