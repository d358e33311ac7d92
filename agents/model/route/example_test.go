package route_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
	"github.com/aeemesh/aeemesh/agents/model/route"
)

// A router calls the second route if the first is over its rate limit.
func ExampleNew() {
	catalog := route.Builtin()
	busy := modeltest.New(modeltest.Turn{Fail: &model.Error{Kind: model.ErrRateLimited}})
	free := modeltest.New(modeltest.Turn{Text: "hello", Usage: model.Usage{InputTokens: 1000, OutputTokens: 100}})
	r, err := route.New([]route.Route{
		{Provider: "openai", Model: "gpt-4o", M: busy, Facts: catalog.Lookup("openai", "gpt-4o"), Extended: true},
		{Provider: "anthropic", Model: "claude-sonnet-4-5", M: free, Facts: catalog.Lookup("anthropic", "claude-sonnet-4-5")},
	}, route.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := r.Model().Generate(context.Background(), &model.Request{Messages: []model.Message{model.User("hi")}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s says %q for %s USD\n", res.Provider, res.Message.Content, res.Cost)
	fmt.Println(res.Tried)
	// Output:
	// anthropic says "hello" for 0.0045 USD
	// [openai/gpt-4o: model rate limited]
}

func BenchmarkRouter(b *testing.B) {
	fake := model.Func(func(context.Context, *model.Request, func(model.Delta) error) (*model.Response, error) {
		return answer("hello"), nil
	})
	r, err := route.New([]route.Route{{Provider: "a", Model: "m", M: fake}, {Provider: "b", Model: "m", M: fake}}, route.Options{})
	if err != nil {
		b.Fatal(err)
	}
	req := hello()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Generate(b.Context(), req, nil); err != nil {
			b.Fatal(err)
		}
	}
}
