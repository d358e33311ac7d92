package hosted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/aeemesh/aeemesh/agents/embedding"
	"github.com/aeemesh/aeemesh/agents/model"
)

// Call sends a request's body to a model, and returns the answer's.
type Call func(ctx context.Context, model string, body []byte) ([]byte, error)

// atOnce is how many requests of one Embed are under way at once: some models take one text
// a request.
const atOnce = 4

type embedder struct {
	provider, model string
	call            Call
	format          format
}

// Bedrock returns an embedder for a model of Amazon Bedrock: Amazon's Titan text embeddings
// or Cohere's Embed, also of an inference profile such as us.cohere.embed-v4:0. provider is
// the first part of the embedder's name.
func Bedrock(provider, modelID string, call Call) (embedding.Embedder, error) {
	return newEmbedder(provider, modelID, call, titan, cohere)
}

// Vertex returns an embedder for a text embedding model of Vertex AI. provider is the first
// part of the embedder's name.
func Vertex(provider, modelID string, call Call) (embedding.Embedder, error) {
	return newEmbedder(provider, modelID, call, gemini, gecko)
}

func newEmbedder(provider, modelID string, call Call, formats ...format) (embedding.Embedder, error) {
	if provider == "" || modelID == "" || call == nil {
		return nil, errors.New("hosted embedder: the provider, the model and the call must be given")
	}
	known := ""
	for _, f := range formats {
		if f.of(modelID) {
			return &embedder{provider, modelID, call, f}, nil
		}
		known += ", " + f.known
	}
	return nil, fmt.Errorf("%s: embeddings of this model are not supported; those of %s are", modelID, known[len(", "):])
}

// Name is the provider and the model.
func (e *embedder) Name() string { return e.provider + "/" + e.model }

// Embed implements [embedding.Embedder]. A long text is cut.
func (e *embedder) Embed(ctx context.Context, texts []string) ([][]float32, error) {
	if err := ctx.Err(); err != nil || len(texts) == 0 {
		return nil, err
	}
	texts = embedding.Sendable(texts, e.format.maxText)
	all := make([][]float32, len(texts))
	batches, running := errgroup.WithContext(ctx)
	batches.SetLimit(atOnce)
	for from := 0; from < len(texts) && running.Err() == nil; from += e.format.batch {
		to := min(from+e.format.batch, len(texts))
		batches.Go(func() error {
			vectors, err := e.batch(running, texts[from:to])
			copy(all[from:to], vectors)
			return err
		})
	}
	if err := batches.Wait(); err != nil || ctx.Err() != nil {
		return nil, context.Cause(running)
	}
	if err := embedding.Units(all, len(texts)); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Name(), err)
	}
	return all, nil
}

func (e *embedder) batch(ctx context.Context, texts []string) ([][]float32, error) {
	body, err := json.Marshal(e.format.ask(texts))
	if err != nil {
		return nil, err
	}
	raw, err := e.call(ctx, e.model, body)
	if err != nil {
		return nil, err
	}
	vectors, err := e.format.answer(raw)
	if err != nil {
		return nil, model.Errorf(model.ErrUnavailable, "the answer is not an embeddings answer")
	}
	if len(vectors) != len(texts) {
		return nil, fmt.Errorf("%w: %d for %d texts", embedding.ErrBadVectors, len(vectors), len(texts))
	}
	return vectors, nil
}
