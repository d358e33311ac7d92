package openai_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

// picky refuses members of a request's body, each with its own text, and answers a request without
// them.
type picky struct {
	refuse map[string]string // member → answer's body
	status int
	mu     sync.Mutex
	bodies []string
}

func (p *picky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	p.bodies = append(p.bodies, string(raw))
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	var members map[string]json.RawMessage
	json.Unmarshal(raw, &members)
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		answer, ok := p.refuse[name]
		if !ok {
			answer, ok = p.refuse[name+"="+string(members[name])]
		}
		if ok {
			w.WriteHeader(p.status)
			io.WriteString(w, answer)
			return
		}
	}
	io.WriteString(w, fine)
}

// The texts are those of OpenAI, Mistral, xAI and servers in Python.
func TestRefusedParametersAreLeftOutAndLearned(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		provider string
		status   int
		refuse   map[string]string
		dropped  []string
		first    int // requests of the first call
	}{
		"a reasoning model of OpenAI": {"custom", 400, map[string]string{
			"temperature": `{"error":{"message":"Unsupported value: 'temperature' does not support 1.75 with this model. Only the default (1) value is supported.","type":"invalid_request_error","param":"temperature","code":"unsupported_value"}}`,
			"stop":        `{"error":{"message":"Unsupported parameter: 'stop' is not supported with this model.","type":"invalid_request_error","param":"stop","code":"unsupported_parameter"}}`,
			"max_tokens":  `{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.","type":"invalid_request_error","param":"max_tokens","code":"unsupported_parameter"}}`,
		}, []string{"stop", "temperature"}, 4},
		"an old deployment": {"azure_openai", 400, map[string]string{
			"max_completion_tokens": `{"error":{"message":"Unrecognized request argument supplied: max_completion_tokens","type":"invalid_request_error","param":null,"code":null}}`,
		}, nil, 2},
		"no limit at all": {"custom", 400, map[string]string{
			"max_tokens":            `{"error":{"message":"max_tokens is not supported"}}`,
			"max_completion_tokens": `{"error":{"message":"max_completion_tokens is not supported"}}`,
		}, []string{"max_tokens"}, 3},
		"a validator": {"custom", 422, map[string]string{
			"seed": `{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted","input":7}]}`,
		}, []string{"seed"}, 2},
		"a validator behind a proxy": {"custom", 422, map[string]string{
			"seed": `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted"}]},"type":"invalid_request_error"}`,
		}, []string{"seed"}, 2},
		"a reasoning model of xAI": {"xai", 400, map[string]string{
			"presence_penalty":  `{"code":"Client specified an invalid argument","error":"Argument not supported on this model: presencePenalty"}`,
			"frequency_penalty": `{"code":"Client specified an invalid argument","error":"Argument not supported on this model: frequencyPenalty"}`,
		}, []string{"frequency_penalty", "presence_penalty"}, 3},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			srv := &picky{refuse: c.refuse, status: c.status}
			m := as(t, c.provider, modeltest.Serve(t, srv))
			for i, want := range []int{c.first, c.first + 1} { // the second call knows
				res, err := m.Generate(t.Context(), everything(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(res.Dropped, c.dropped) || len(srv.bodies) != want {
					t.Errorf("call %d: dropped %q after %d requests, want %q after %d", i, res.Dropped, len(srv.bodies), c.dropped, want)
				}
			}
			other := everything()
			other.Model = "another"
			if _, err := m.Generate(t.Context(), other, nil); err != nil || len(srv.bodies) != 2*c.first+1 {
				t.Errorf("another model: %d requests in all, want %d; error %v", len(srv.bodies), 2*c.first+1, err)
			}
		})
	}
}

func TestRefusalsThatAreTheAuthorsOwn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ extended, refused, answer string }{
		"an extended parameter": {`{"temperature":1.75}`, "temperature", `{"error":{"message":"Unsupported value","param":"temperature","code":"unsupported_value"}}`},
		"an unknown one":        {`{"vendor_knob":1}`, "vendor_knob", `{"error":{"message":"Unrecognized request argument supplied: vendor_knob"}}`},
		"a value":               {`{}`, "temperature", `{"error":{"message":"temperature must be at most 1","param":"temperature","code":"invalid_value"}}`},
		"the messages":          {`{}`, "messages", `{"error":{"message":"role tool is not supported","param":"messages.[1].role","code":"unsupported_value"}}`},
	} {
		srv := &picky{refuse: map[string]string{c.refused: c.answer}, status: 400}
		req := everything()
		req.Params.Extended = json.RawMessage(c.extended)
		if _, err := as(t, "custom", modeltest.Serve(t, srv)).Generate(t.Context(), req, nil); !errors.Is(err, model.ErrBadRequest) || len(srv.bodies) != 1 {
			t.Errorf("%s: error %v after %d requests, want %v after one", name, err, len(srv.bodies), model.ErrBadRequest)
		}
	}
}

func TestRefusalsAreBoundedAndSafeTogether(t *testing.T) {
	t.Parallel()
	refuse := map[string]string{"messages": `{"error":{"message":"temperature top_p stop seed max_tokens max_completion_tokens presence_penalty frequency_penalty: not supported"}}`}
	srv := &picky{refuse: refuse, status: 400}
	if _, err := as(t, "custom", modeltest.Serve(t, srv)).Generate(t.Context(), everything(), nil); !errors.Is(err, model.ErrBadRequest) || len(srv.bodies) != 7 {
		t.Errorf("error %v after %d requests, want %v after seven", err, len(srv.bodies), model.ErrBadRequest)
	}

	srv = &picky{refuse: map[string]string{
		"max_tokens": `{"error":{"message":"max_tokens is not supported"}}`,
	}, status: 400}
	m := as(t, "custom", modeltest.Serve(t, srv))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			res, err := m.Generate(t.Context(), everything(), nil)
			if err != nil || len(res.Dropped) > 0 { // all of them use the other name, none drops the parameter
				t.Errorf("dropped %v, error %v", res, err)
			}
		})
	}
	wg.Wait()
}

func (s *refusesFormat) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ResponseFormat struct{ Type string } `json:"response_format"`
	}
	json.NewDecoder(r.Body).Decode(&req)
	s.asked = append(s.asked, req.ResponseFormat.Type)
	w.Header().Set("Content-Type", "application/json")
	if words, ok := s.words[req.ResponseFormat.Type]; ok {
		w.WriteHeader(400)
		io.WriteString(w, words)
		return
	}
	io.WriteString(w, fine)
}

// If the account may not stream a model, the whole answer is requested.
func TestStreamingThatIsRefused(t *testing.T) {
	t.Parallel()
	srv := &picky{status: 400, refuse: map[string]string{
		"stream": `{"error":{"message":"Your organization must be verified to stream this model.","type":"invalid_request_error","param":"stream","code":"unsupported_value"}}`,
	}}
	m := as(t, "custom", modeltest.Serve(t, srv))
	for _, want := range []int{2, 3} {
		var told string
		res, err := m.Generate(t.Context(), hi, func(d model.Delta) error { told += d.Text; return nil })
		if err != nil || told != "ok" || len(res.Dropped) > 0 || len(srv.bodies) != want {
			t.Errorf("response %+v, told %q, error %v after %d requests, want %d", res, told, err, len(srv.bodies), want)
		}
	}
}
