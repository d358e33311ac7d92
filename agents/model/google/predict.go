package google

import (
	"context"
	"io"
)

// Predict sends a body to a model of Vertex AI in the model's own format, as embeddings need
// it, and returns the answer's body. Errors are those of Generate.
func (m *Model) Predict(ctx context.Context, name string, body []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	secret, header, err := m.credential(ctx)
	if err != nil {
		return nil, err
	}
	target, err := m.method(name, "predict", "")
	if err != nil {
		return nil, err
	}
	header.Set("X-Server-Timeout", m.patience(ctx))
	res, err := m.client.Post(ctx, target, header, body)
	if err != nil {
		return nil, m.client.Failure(ctx, err, secret)
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return nil, m.client.Failure(ctx, reportOf(res), secret)
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, m.client.Failure(ctx, err, secret)
	}
	return answer, nil
}
