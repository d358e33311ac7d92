// Package hashicorp reads secrets from HashiCorp Vault and from OpenBao, which
// speak the same API: key/value engines of version 1 and 2.
//
//	v, err := hashicorp.New(hashicorp.Config{
//		Address: "https://vault.internal:8200",
//		Kubernetes: &hashicorp.Kubernetes{Role: "aeemesh"},
//	}, secret.Operator(os.LookupEnv))
//
// A path has the form of the vault's own tool, secret/agents/mail, or of its
// API, secret/data/agents/mail. The engine's mount and version are requested
// from the vault (sys/internal/ui/mounts) once, and again when a read fails,
// unless the configuration sets them. A key names a member of the entry; without a key the entry must have
// only one member, or one named value. A version is a number, for engines of
// version 2.
//
// It logs in with a token, an AppRole or a Kubernetes service account, as the
// operator's configuration says, keeps the token in memory, and logs in again
// before it expires, or when the vault refuses it. If a login fails, the last
// token is used until it expires. A token that is configured
// is read from its reference at each call, so that an agent beside it may renew
// the file.
//
// The library reads VAULT_TOKEN, VAULT_NAMESPACE and others from the
// environment; this package overrides the important ones, so that only the
// configuration counts. VAULT_HEADERS is still honoured.
package hashicorp
