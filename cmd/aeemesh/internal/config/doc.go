// Package config reads the settings of a worker from section worker of its
// configuration file, in YAML or JSON, and describes them as a JSON Schema.
//
//	settings := []config.Setting{{Flag: "lease", Kind: config.Duration}, {Flag: "tool", Kind: config.List}}
//	file, err := config.Read("worker.yaml", text, settings)
//	for _, v := range file { set(v.Flag, v.Values) }
//
// A setting has the name of its flag, with underscores: --max-timeout is
// max_timeout. The other sections of the file are what agents may have (package
// adapters), and are not looked at here.
//
// Reading is strict, and reports all problems at once, each with its place. A secret
// is not written into the file: a [Setting] that is one is given as NAME_file, the path
// of a file that holds it, and a URL with a password is refused.
//
// The package does no I/O and keeps nothing. Its functions may be called at once.
package config
