// Package endpoint is the HTTP that the adapters of model providers share: a
// request with a JSON body, tried again where that may help, and an answer that
// is one JSON document or a stream of server-sent events.
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
// It knows no provider: an adapter builds the request, chooses the headers, and
// judges the answer and its status.
//
// # Answers that depart from their protocol
//
// [Decode], [Text] and [Count] read JSON as forgiving as the protocols' many
// servers need: a member of the wrong type is left out, and the rest is read.
//
// # Guarantees
//
// A client takes nothing from the environment but what its HTTP client does.
// Every answer is bounded in bytes and, with its body, in time. A Client serves
// any number of goroutines; an Events serves one.
package endpoint
