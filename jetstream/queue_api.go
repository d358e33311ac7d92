package jetstream

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// apiPrefix is the prefix of the JetStream API's subjects, with the final dot.
func apiPrefix(js natsjs.JetStream) string {
	if p := kvPrefix(js); p != "" {
		return p
	}
	return natsjs.DefaultAPIPrefix
}

// request sends a request to the JetStream API and decodes its answer, unless answer is
// nil. If the API refuses, the error is a *natsjs.APIError.
func request(ctx context.Context, js natsjs.JetStream, subject string, body, answer any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	msg, err := exchange(ctx, js.Conn(), &nats.Msg{Subject: apiPrefix(js) + subject, Data: data})
	if err != nil {
		return err
	}
	var failed struct {
		Error *natsjs.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return failed.Error
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(msg.Data, answer)
}

// plainHeader copies headers without the Nats- ones, which the server would act on.
func plainHeader(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+4)
	for k, v := range h {
		if !strings.HasPrefix(k, "Nats-") {
			out[k] = v
		}
	}
	return out
}
