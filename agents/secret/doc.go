// Package secret is the port between an agent and the credentials that its
// document names: an environment variable, or an entry of a vault. A document
// never contains one (AAIF, Tool Definitions and Security Considerations).
//
//	set := &secret.Set{
//		Env: os.LookupEnv, AllowEnv: []string{"SENDGRID_API_KEY"},
//		Vaults: map[aaif.VaultProvider]secret.Vault{aaif.VaultHashiCorp: secret.Guard(vault, secret.Options{Allow: []string{"secret/agents/**"}})},
//	}
//	s, err := set.Resolve(ctx, tool.Auth) // at each call: vault_ref first, else env_var
//	req.Header.Set("Authorization", "Bearer "+s.Reveal())
//	text = set.Redactor().Scrub(text)     // what a server says may quote what it was sent
//
// # Values are never printed
//
// A [Secret] shows "[redacted]" however it is printed, logged or encoded, and
// whatever it is a part of. Only [Secret.Reveal] returns its value: its callers
// show where credentials are sent. A [Redactor] removes known values from texts
// of others, in the usual encodings too. The Redactor of a [Set] knows all
// secrets that the Set has returned.
//
// # Permissions
//
// A document may come from a stranger and can name any secret. So it reads an
// environment variable only if the operator allows that name (Set.AllowEnv),
// and a path of a vault only if a pattern of that vault allows it
// (Options.Allow). By default nothing is allowed. NATS_* and AEEMESH_*, which
// give access to the mesh, are never returned to a document.
//
// A vault_ref that cannot be read fails the call, even if the document also has
// an env_var. By the schema the variable is "Used when vault_ref is not set",
// and using another credential than the intended one may do harm.
//
// # Vaults
//
// A [Vault] has one method. The implementations are in folders below this one,
// and pass the suite in secrettest. [Guard] adds what all have in common:
// permitted paths, a timeout, a short-lived cache in memory, a limit of sizes.
// Nothing is written to disk.
//
// # Errors
//
// An [*Error] names the reference (provider, path, key, version, or the
// variable), and never a value; errors.Is(err, secret.ErrNotFound) and its
// siblings tell what to do. A vault's own text is scrubbed of known secrets
// before it becomes part of an error.
package secret
