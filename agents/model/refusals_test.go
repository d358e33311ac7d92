package model_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
)

func TestRefusalsAreKeptByModelAndBounded(t *testing.T) {
	t.Parallel()
	var r model.Refusals
	if got := r.Of("a"); got == nil || len(got) != 0 {
		t.Errorf("at first: %v", got)
	}
	r.Keep("a", "temperature", 1)
	r.Keep("a", "max_tokens", 4096)
	r.Of("a")["seed"] = 1 // a copy
	if got, want := r.Of("a"), map[string]int64{"temperature": 1, "max_tokens": 4096}; !maps.Equal(got, want) || len(r.Of("b")) != 0 {
		t.Errorf("kept %v and %v, want %v and nothing", got, r.Of("b"), want)
	}
	for i := range 1000 {
		r.Keep("a", fmt.Sprint(i), 1)
		r.Keep(fmt.Sprint(i), "x", 1)
	}
	if n := len(r.Of("a")); n > 64 {
		t.Errorf("%d refusals of one model", n)
	}
	models := 0
	for i := range 1000 {
		models += len(r.Of(fmt.Sprint(i)))
	}
	if models > 256 || len(r.Of("999")) != 1 {
		t.Errorf("refusals of %d models, the last of which has %d", models, len(r.Of("999")))
	}
}
