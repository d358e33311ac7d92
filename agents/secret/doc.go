// Package secret is the port between an agent and the credentials that its
// document names: an environment variable, or an entry of a vault. A document
// never holds one (AAIF, Tool Definitions and Security Considerations).
//
//	set := &secret.Set{
//		Env: os.LookupEnv, AllowEnv: []string{"SENDGRID_API_KEY"},
//		Vaults: map[aaif.VaultProvider]secret.Vault{aaif.VaultHashiCorp: secret.Guard(vault, secret.Options{Allow: []string{"secret/agents/**"}})},
//	}
//	s, err := set.Resolve(ctx, tool.Auth) // at each call: vault_ref first, else env_var
//	req.Header.Set("Authorization", "Bearer "+s.Reveal())
//	text = set.Redactor().Scrub(text)     // what a server says may quote what it was sent
//
// # A value that does not print
//
// A [Secret] shows "[redacted]" however it is printed, logged or encoded, and
// whatever it is a part of. [Secret.Reveal] is the one way to its value: read
// where it is called to know where credentials go. A [Redactor] takes values
// that it knows out of texts that others wrote, in their usual encodings too.
// A [Set] knows all that it has given out.
//
// # Who may read what
//
// A document may be a stranger's, and names what it likes. So it reads an
// environment variable only if the operator allows that name (Set.AllowEnv),
// and a path of a vault only if a pattern of that vault allows it
// (Options.Allow). By default nothing is allowed. What lets a process into the
// mesh, NATS_* and AEEMESH_*, is never given to a document.
//
// A vault_ref that cannot be read fails the call, also where the document has an
// env_var besides: that is for runtimes without a vault_ref's vault, says the
// schema ("Used when vault_ref is not set"), and one credential for another may
// do harm.
//
// # Vaults
//
// A [Vault] is one small method. Those that there are live in folders below this
// one, and pass the suite in secrettest. [Guard] puts around any of them what
// all have in common: which paths are allowed, a time limit, a cache in memory
// for seconds, a bound on sizes. Nothing is ever kept on disk.
//
// # Errors
//
// An [*Error] names the reference (provider, path, key, version, or the
// variable), and never a value; errors.Is(err, secret.ErrNotFound) and its
// siblings tell what to do. What a vault says in its own words is scrubbed of
// what this side knows before it becomes part of an error.
package secret
