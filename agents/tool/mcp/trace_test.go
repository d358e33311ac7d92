//go:build unix

package mcp_test

import (
	"context"
	"encoding/json"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/aeemesh/aeemesh/agents/tool"
	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// A server gets the trace of a call, if there is one, and the call's idempotency key, over every
// transport.
func TestServersAreToldTheTrace(t *testing.T) {
	t.Parallel()
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "told", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		told := map[string]any{mcp.TraceMeta: req.Params.Meta[mcp.TraceMeta], mcp.KeyMeta: req.Params.Meta[mcp.KeyMeta]}
		return &sdk.CallToolResult{StructuredContent: told, Content: []sdk.Content{}}, nil
	})
	at := serveHTTP(t, s, nil).URL
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, server := range map[string]mcp.Server{
		"streamable HTTP": {URL: at + "/mcp"},
		"HTTP with SSE":   {URL: at + "/sse", Transport: "sse"},
		"WebSocket":       {URL: "ws" + at[len("http"):] + "/ws"},
	} {
		told := tools(t, open(t, newServers(t, server), "mcp://it"))["told"]
		ctx := tool.WithTrace(tool.WithKey(t.Context(), "key-1"), "x-their-own-header", parent)
		if got, err := told.Call(ctx, json.RawMessage(`{}`)); err != nil || string(got) != `{"aeemesh/idempotency-key":"key-1","traceparent":"`+parent+`"}` {
			t.Errorf("%s: %s, %v", name, got, err)
		}
		if got, err := told.Call(t.Context(), json.RawMessage(`{}`)); err != nil || string(got) != `{"aeemesh/idempotency-key":null,"traceparent":null}` {
			t.Errorf("%s, without a trace: %s, %v", name, got, err)
		}
	}
}
