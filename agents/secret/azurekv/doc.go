// Package azurekv reads secrets from Azure Key Vault, with the official SDK.
//
//	v, err := azurekv.New(azurekv.Config{URLs: []string{"https://myvault.vault.azure.net"}}, secret.Operator(os.LookupEnv))
//
// A path is a secret's name, or its identifier with the vault's URL,
// https://myvault.vault.azure.net/secrets/sendgrid-key, of a vault that the
// operator's configuration names: tokens are sent to no other. An identifier
// may end with a version; the reference's own version takes precedence. A key
// is a member of the JSON object that the secret is.
//
// It authenticates with a client secret if the configuration has one, and
// otherwise with the SDK's default credential: environment, workload identity,
// managed identity, and a developer's tools.
package azurekv
