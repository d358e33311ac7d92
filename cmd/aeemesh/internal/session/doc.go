// Package session connects commands to the mesh: an [App] is one execution of
// the program with its streams, its environment and the flags that many
// commands share; a [Session] is a connection with a node, for one command.
//
//	s, err := a.Open(ctx, cmd, session.Options{Entity: a.DefaultFrom(), Signed: true})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//
// Flags, environment, configuration file and NATS contexts are combined here,
// in this order. Keys are read from their directory and, where the mesh shares
// keys, watched. The package knows no command.
package session
