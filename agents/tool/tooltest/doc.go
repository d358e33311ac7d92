// Package tooltest has what the users and the makers of a [tool.Tool] test
// with: [Fake], a tool that does what it is told to, and [Run], the conformance
// suite that every implementation passes.
//
//	tooltest.Run(t, func(t *testing.T, b tooltest.Behaviour) tool.Tool {
//		return newAdapter(t, serverThatBehaves(t, b))
//	})
package tooltest
