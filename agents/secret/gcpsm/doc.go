// Package gcpsm reads secrets from Google Cloud Secret Manager.
//
//	v, err := gcpsm.New(gcpsm.Config{Project: "my-project"}, secret.Operator(os.LookupEnv))
//
// A path is a secret's name, in the configured project, or the whole
// projects/P/secrets/S, with /versions/V at its end or without. A version is a
// number, an alias, or latest; the reference's own takes precedence over the
// path's. A key is a member of the JSON object that the secret is.
//
// It speaks the service's REST API, one GET, with tokens of
// cloud.google.com/go/auth: a service account's key where the configuration
// names one, and otherwise the application default credentials, which a
// machine, a pod or gcloud has. The generated client
// (cloud.google.com/go/secretmanager) does the same call over gRPC; it and what
// it needs add 3.3 MB to the binary and ten seconds to a cold build. Values are
// verified by the checksum that the service sends.
package gcpsm
