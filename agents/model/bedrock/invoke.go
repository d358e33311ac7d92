package bedrock

import (
	"context"
	"io"
)

// Invoke sends a body to a model in the model's own format, as embeddings need it, and
// returns the answer's body. Errors are those of Generate.
func (m *Model) Invoke(ctx context.Context, modelID string, body []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	to, err := m.access(ctx)
	if err != nil {
		return nil, err
	}
	out, err := m.invoke(ctx, to, modelID, body)
	if err != nil {
		return nil, m.client.Failure(ctx, err, to.key())
	}
	return out, nil
}

func (m *Model) invoke(ctx context.Context, to *access, modelID string, body []byte) ([]byte, error) {
	res, err := m.post(ctx, to, modelID, "invoke", jsonType, body)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}
