// Package hashicorp reads secrets from HashiCorp Vault and from OpenBao, which
// speak the same API: key/value engines of version 1 and 2.
//
//	v, err := hashicorp.New(hashicorp.Config{
//		Address: "https://vault.internal:8200",
//		Kubernetes: &hashicorp.Kubernetes{Role: "aeemesh"},
//	}, secret.Operator(os.LookupEnv))
//
// A path is as the vault's own tool has it, secret/agents/mail, or as its API
// has it, secret/data/agents/mail. Where the engine is mounted, and which version
// it has, is asked of the vault once (sys/internal/ui/mounts), unless the
// configuration says. A key names a member of the entry; without one the entry
// must have one member, or one that is called value. A version is a number, of
// engines of version 2.
//
// It logs in with a token, an AppRole or a Kubernetes service account, as the
// operator's configuration says, keeps the token that it got in memory, and logs
// in anew before it ends, or when the vault does not take it any more. A token
// that is configured is read from its reference at each call, so that an agent
// beside it may renew the file.
//
// The library reads VAULT_TOKEN, VAULT_NAMESPACE and others from the environment:
// what decides is put in their place, so that the configuration alone holds.
// VAULT_HEADERS is still honoured.
package hashicorp
