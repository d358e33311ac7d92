// Package azurekv reads secrets from Azure Key Vault, with the official SDK.
//
//	v, err := azurekv.New(azurekv.Config{URLs: []string{"https://myvault.vault.azure.net"}}, secret.Operator(os.LookupEnv))
//
// A path is a secret's name, or its identifier with the vault's URL,
// https://myvault.vault.azure.net/secrets/sendgrid-key, of a vault that the
// operator's configuration names: no token is sent anywhere else. An identifier
// may end with a version, and the reference's own version goes before it. A key
// is a member of the JSON object that the secret is.
//
// It signs in with a client secret where the configuration has one, and otherwise
// where every program of Azure does, with the SDK's default credential:
// environment, workload identity, managed identity, and a developer's tools.
package azurekv
