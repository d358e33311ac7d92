// Package handoff takes runs in that come from other platforms, and sends runs
// to them, over HTTPS (AAIF, "Cross-Platform Migration Protocol" and "Streaming
// Handoff Wire Format").
//
//	receiver, err := handoff.NewReceiver(handoff.ReceiverConfig{…})
//	server := &http.Server{Handler: handoff.Handler(receiver, …), TLSConfig: …}
//	err = server.ServeTLS(listener, cert, key)
//
//	client, err := handoff.NewClient("https://berlin.example:7443", handoff.ClientOptions{})
//	err = client.Send(ctx, token, document)
//	outcome, err := client.Commit(ctx, request)
//
// docs/migration.md has the protocol for other languages.
//
// # Who owns the run
//
// A [Receiver] keeps a record of each handoff, made with its token's id and
// changed by compare-and-swap only:
//
//	receiving → staged → accepted → running
//	         ↘        ↘
//	          refused  refused
//
// That it can be made only once is what makes the token good for one use. That
// only one of accepted and refused can follow staged decides who owns the run,
// once the source has let go of it: no clock has a part in that. Until it is
// accepted the run does not exist for any worker here.
//
// The source may ask again for each step, as often as it likes.
//
// # Limits
//
// What a stranger can make grow is bounded: how many streams are open, how
// long each may take and how large it may be, how many records of one issuer are
// kept that were not accepted and for how long, and how many bytes of all of them.
// Without a token that verifies nothing is kept; nor is the refusal of what never
// came, unless its issuer may hand runs over to here.
package handoff
