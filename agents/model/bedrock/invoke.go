package bedrock

import (
	"context"
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
)

// Invoke sends a body to a model in the model's own format, as embeddings need it, and
// returns the answer's body. Errors are those of Generate.
func (m *Model) Invoke(ctx context.Context, modelID string, body []byte) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	client, sign, secrets, err := m.credentials(ctx)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, m.cfg.RequestTimeout, errTimeout)
	defer cancel()
	out, err := client.InvokeModel(limited, &bedrockruntime.InvokeModelInput{
		ModelId: aws.String(modelID), Body: body, ContentType: aws.String("application/json"), Accept: aws.String("application/json"),
	}, sign)
	switch {
	case err == nil:
		return out.Body, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(context.Cause(limited), errTimeout):
		err = errTimeout
	}
	return nil, m.failure(err, secrets)
}
