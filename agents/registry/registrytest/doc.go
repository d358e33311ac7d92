// Package registrytest is the conformance suite of [registry.Registry]:
//
//	registrytest.Run(t, func(t *testing.T) registry.Registry { return &registry.Mem{} })
package registrytest
