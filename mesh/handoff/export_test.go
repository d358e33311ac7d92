package handoff

import (
	"context"
	"net/http"
)

// Status asks how far a handoff has come, as a client of another platform may; request is signed
// for [ActionStatus].
func (c *Client) Status(ctx context.Context, id, request string) (Status, error) {
	return c.ask(ctx, http.MethodGet, "/"+id, request)
}
