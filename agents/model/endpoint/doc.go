// Package endpoint is the HTTP client that the adapters of model providers share. It sends a
// request with a JSON body, retries it if that may help, and reads an answer that is one JSON
// document or a stream of server-sent events.
//
//	client := &endpoint.Client{HTTP: http.DefaultClient, Timeout: time.Minute, MaxBody: 32 << 20}
//	res, err := client.Post(ctx, "https://api.example.com/v1/messages", header, body)
//	if err != nil {
//		return err
//	}
//	defer res.Body.Close()
//	events := endpoint.NewEvents(res.Body, client.MaxBody)
//	for {
//		data, err := events.Next()
//		…
//	}
//
// It contains nothing about single providers: an adapter builds the request, chooses the headers,
// and interprets the answer and its status.
//
// # Answers that depart from their protocol
//
// [Decode], [Text] and [Count] read JSON leniently, because many servers deviate from their
// protocol: a member of the wrong type is ignored, and the others are read.
//
// # Guarantees
//
// A Client uses no environment variables, except those that its HTTP client uses. Every answer is
// bounded in bytes and, including its body, in time. A Client is safe for concurrent use; an Events
// is not.
package endpoint
