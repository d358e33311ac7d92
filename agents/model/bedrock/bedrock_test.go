package bedrock_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestConforms(t *testing.T) {
	t.Parallel()
	modeltest.Run(t, func(t *testing.T, turns ...modeltest.Turn) model.Model {
		return newModel(t, double(t, turns...).URL)
	})
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	decode := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("decode %s: %v", s, err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}
