package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// api FILE GATE: an HTTP API that notes its calls in FILE, a line each (method, URI,
// idempotency key, Authorization, X-Key and whether there is a traceparent), and sets
// API_URL. Its description is at /openapi.yaml. A PUT is answered once there is a file
// GATE.
func cmdAPI(ts *testscript.TestScript, _ bool, args []string) {
	file, gate := ts.MkAbs(args[0]), ts.MkAbs(args[1])
	var mu sync.Mutex
	note := func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		defer f.Close()
		fmt.Fprintln(f, r.Method, r.URL.RequestURI(), r.Header.Get("Idempotency-Key"), r.Header.Get("Authorization"), r.Header.Get("X-Key"), r.Header.Get("Traceparent") != "")
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/openapi.yaml" {
			_, _ = io.WriteString(w, apiDescription)
			return
		}
		note(r)
		for r.Method == http.MethodPut {
			if _, err := os.Stat(gate); err == nil {
				break
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/stock":
			fmt.Fprintf(w, `{"stock": %d, "sent": %q}`, 7, r.URL.RawQuery)
		case r.URL.Path == "/v1/moved":
			http.Redirect(w, r, "http://169.254.169.254/latest/meta-data/", http.StatusFound)
		default:
			fmt.Fprintf(w, `{"done": %s, "said": %q}`, body, r.Header.Get("Authorization"))
		}
	}))
	ts.Defer(srv.Close)
	ts.Setenv("API_URL", srv.URL)
}

const apiDescription = `
openapi: 3.1.0
info: {title: A shop, version: "1"}
servers: [{url: /v1}]
security: [{key: []}]
paths:
  /stock:
    get:
      operationId: stock
      summary: How many of an item there are.
      parameters: [{name: item, in: query, required: true, schema: {type: string}}]
      responses:
        200: {description: ok, content: {application/json: {schema: {type: object, required: [stock]}}}}
  /moved:
    get:
      operationId: moved
      responses: {200: {description: ok}}
components:
  securitySchemes:
    key: {type: apiKey, in: header, name: X-Key}
`
