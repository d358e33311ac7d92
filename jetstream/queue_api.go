package jetstream

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// apiPrefix is what stands before the subjects of the JetStream API, with its
// closing dot.
func apiPrefix(js natsjs.JetStream) string {
	if p := kvPrefix(js); p != "" {
		return p
	}
	return natsjs.DefaultAPIPrefix
}

// request asks the JetStream API and decodes its answer, unless answer is nil.
// What the API refuses is a *natsjs.APIError.
func request(ctx context.Context, js natsjs.JetStream, subject string, body, answer any) error {
	var data []byte
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	// However long the caller would wait: what a dying server swallowed is never
	// answered.
	ctx, cancel := oneRequest(ctx)
	defer cancel()
	msg, err := js.Conn().RequestWithContext(ctx, apiPrefix(js)+subject, data)
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

// plainHeader copies headers without those that are the server's to act on.
func plainHeader(h nats.Header) nats.Header {
	out := make(nats.Header, len(h)+4)
	for k, v := range h {
		if !strings.HasPrefix(k, "Nats-") {
			out[k] = v
		}
	}
	return out
}
