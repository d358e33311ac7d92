// Package handoff receives runs from other platforms, and sends runs to them, over HTTPS (AAIF,
// "Cross-Platform Migration Protocol" and "Streaming Handoff Wire Format").
//
//	receiver, err := handoff.NewReceiver(handoff.ReceiverConfig{…})
//	server := &http.Server{Handler: handoff.Handler(receiver, …), TLSConfig: …}
//	err = server.ServeTLS(listener, cert, key)
//
//	client, err := handoff.NewClient("https://berlin.example:7443", handoff.ClientOptions{})
//	staged, err := client.Send(ctx, token, document)
//	outcome, err := client.Commit(ctx, id, request)
//
// docs/migration.md has the protocol for other languages.
//
// # Who owns the run
//
// A [Receiver] keeps a record of each handoff under its token's id, and changes it only by
// compare-and-swap:
//
//	receiving → staged → accepted → running
//	         ↘        ↘
//	          refused  refused
//
// The record can be made only once, so a token can be used only once. After staged, exactly one of
// accepted and refused is written; it decides who owns the run after the source has released it.
// No clock is involved. Until the run is accepted, it does not exist for any worker here.
//
// The source may repeat the request for each step.
//
// # Limits
//
// Everything that a peer can make grow is bounded: the number, duration and size of open streams,
// the number and life of an issuer's records that are not accepted, and the bytes of all its
// records. Without a valid token nothing is stored. The refusal of a handoff that never arrived is
// stored only if its issuer may transfer runs to this platform.
package handoff
