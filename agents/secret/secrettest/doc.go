// Package secrettest has what the users and the makers of a [secret.Vault] test
// with: [Vault], a vault in memory, and [Run], the suite that every vault passes.
//
//	secrettest.Run(t, func(t *testing.T) secrettest.Subject { … })
//
// [Find] looks for secrets in texts, in every form that they may have there.
package secrettest
