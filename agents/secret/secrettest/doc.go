// Package secrettest supports tests of users and implementations of
// [secret.Vault]: [Vault] is a vault in memory, and [Run] the suite that every
// vault must pass.
//
//	secrettest.Run(t, func(t *testing.T) secrettest.Subject { … })
//
// [Find] finds secrets in texts, in all their forms.
package secrettest
