package hosted

import (
	"encoding/json"
	"strings"
)

// format is how a kind of model is asked, and how it answers.
type format struct {
	known   string // the models, for an error
	of      func(modelID string) bool
	batch   int // the most texts of one request
	maxText int // bytes of one text
	ask     func(texts []string) any
	answer  func(raw []byte) ([][]float32, error)
}

// titan is Amazon's: one text a request.
var titan = format{
	known:   "amazon.titan-embed-text",
	of:      func(id string) bool { return strings.Contains(id, "amazon.titan-embed-text") },
	batch:   1,
	maxText: 16 << 10,
	ask: func(texts []string) any {
		return map[string]any{"inputText": texts[0]}
	},
	answer: func(raw []byte) ([][]float32, error) {
		var a struct {
			Embedding []float32 `json:"embedding"`
		}
		err := json.Unmarshal(raw, &a)
		return [][]float32{a.Embedding}, err
	},
}

// cohere is Cohere's. A text that has more than 2,048 characters is refused by version 3.
var cohere = format{
	known:   "cohere.embed",
	of:      func(id string) bool { return strings.Contains(id, "cohere.embed") },
	batch:   96,
	maxText: 2000,
	ask: func(texts []string) any {
		return map[string]any{"texts": texts, "input_type": "clustering", "truncate": "END", "embedding_types": []string{"float"}}
	},
	answer: func(raw []byte) ([][]float32, error) {
		var a struct {
			Embeddings json.RawMessage `json:"embeddings"`
		}
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		var byType struct {
			Float [][]float32 `json:"float"`
		}
		if json.Unmarshal(a.Embeddings, &byType) == nil {
			return byType.Float, nil
		}
		var list [][]float32 // where embedding_types is not known
		err := json.Unmarshal(a.Embeddings, &list)
		return list, err
	},
}

// gemini is Vertex AI's format for gemini-embedding: one text a request.
var gemini = predictions("gemini-embedding", 1, func(id string) bool { return strings.Contains(id, "gemini-embedding") })

// gecko is Vertex AI's for its other text embedding models.
var gecko = predictions("text-embedding and text-multilingual-embedding", 5, func(id string) bool {
	return strings.Contains(id, "text-embedding") || strings.Contains(id, "text-multilingual-embedding")
})

func predictions(known string, batch int, of func(string) bool) format {
	type instance struct {
		Content string `json:"content"`
		Task    string `json:"task_type"`
	}
	return format{
		known: known, of: of, batch: batch, maxText: 4000, // some models take 2,048 tokens
		ask: func(texts []string) any {
			var all []instance
			for _, t := range texts {
				all = append(all, instance{t, "CLUSTERING"})
			}
			return map[string]any{"instances": all}
		},
		answer: func(raw []byte) ([][]float32, error) {
			var a struct {
				Predictions []struct {
					Embeddings struct {
						Values []float32 `json:"values"`
					} `json:"embeddings"`
				} `json:"predictions"`
			}
			err := json.Unmarshal(raw, &a)
			var all [][]float32
			for _, p := range a.Predictions {
				all = append(all, p.Embeddings.Values)
			}
			return all, err
		},
	}
}
