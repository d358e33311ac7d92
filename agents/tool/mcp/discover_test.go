package mcp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/tool/mcp"
)

// A server that refuses a request names the place of its metadata. It must not make this worker
// request an unlimited number of addresses, such as those of other servers that the operator
// allows.
func TestARefusalNamesFewPlaces(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(other.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, other.URL+"/mcp", nil)
	if err != nil {
		t.Fatal(err)
	}
	refused := &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Request: req}
	for i := range 300 {
		refused.Header.Add("WWW-Authenticate", fmt.Sprintf(`Bearer resource_metadata="%s/items/%d"`, other.URL, i))
	}
	if _, err := mcp.Discover(t.Context(), refused, other.Client()); err == nil || len(err.Error()) > 4<<10 {
		t.Errorf("the error has %d bytes: %.300v", len(fmt.Sprint(err)), err)
	}
	if n := asked.Load(); n < 4 || n > 10 {
		t.Errorf("%d requests were made", n)
	}
}
