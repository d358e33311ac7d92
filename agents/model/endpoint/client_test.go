package endpoint_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/endpoint"
)

// trip answers requests without a network.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, body string, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

func TestPostSendsTheBodyAndItsHeaders(t *testing.T) {
	t.Parallel()
	var got *http.Request
	var sent string
	c := &endpoint.Client{Timeout: time.Minute, MaxBody: 3, HTTP: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
		body, _ := io.ReadAll(r.Body)
		got, sent = r, string(body)
		return answer(418, "four"), nil
	})}}
	res, err := c.Post(t.Context(), "http://h/x?y=1", http.Header{"api-key": {"k"}, "Accept": {"text/event-stream"}}, []byte(`{"a":1}`))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if h := got.Header; got.Method != "POST" || got.URL.String() != "http://h/x?y=1" || sent != `{"a":1}` || got.ContentLength != 7 ||
		h.Get("Api-Key") != "k" || h.Get("Accept") != "text/event-stream" || h.Get("Content-Type") != "application/json" || h.Get("User-Agent") != "aeemesh" {
		t.Errorf("%s %s, %q, %v", got.Method, got.URL, sent, h)
	}
	if body, err := io.ReadAll(res.Body); res.StatusCode != 418 || string(body) != "fou" || err != model.ErrAnswerTooLarge {
		t.Errorf("status %d, %q, %v", res.StatusCode, body, err)
	}
	if _, err := c.Post(t.Context(), "http://h:x/", nil, nil); err == nil {
		t.Error("a URL that is none was asked")
	}
}

func TestRetries(t *testing.T) {
	t.Parallel()
	down := errors.New("down")
	for name, c := range map[string]struct {
		answers    []*http.Response // nil is no answer
		retries    int
		tries      int
		status     int // of the answer, 0 for an error
		least, all time.Duration
	}{
		"none asked for":        {[]*http.Response{answer(503, "")}, 0, 1, 503, 0, 0},
		"a good answer":         {[]*http.Response{answer(200, "")}, 3, 1, 200, 0, 0},
		"no answer":             {[]*http.Response{nil, nil, nil}, 2, 3, 0, 1125 * time.Millisecond, 1500 * time.Millisecond},
		"busy, then free":       {[]*http.Response{answer(500, ""), answer(408, ""), answer(409, ""), answer(200, "")}, 5, 4, 200, 2625 * time.Millisecond, 3500 * time.Millisecond},
		"waits are bounded":     {[]*http.Response{nil, nil, nil, nil, nil, nil, answer(200, "")}, 9, 7, 200, 17625 * time.Millisecond, 23500 * time.Millisecond},
		"a refusal":             {[]*http.Response{answer(400, "")}, 3, 1, 400, 0, 0},
		"a refusal for now":     {[]*http.Response{answer(400, "", "X-Should-Retry", "true"), answer(200, "")}, 3, 2, 200, 375 * time.Millisecond, 500 * time.Millisecond},
		"a good answer, again":  {[]*http.Response{answer(200, "", "X-Should-Retry", "true")}, 3, 1, 200, 0, 0},
		"a failure for ever":    {[]*http.Response{answer(500, "", "X-Should-Retry", "false")}, 3, 1, 500, 0, 0},
		"as long as is asked":   {[]*http.Response{answer(429, "", "Retry-After", "3"), answer(200, "")}, 3, 2, 200, 3 * time.Second, 3 * time.Second},
		"longer than is waited": {[]*http.Response{answer(429, "", "Retry-After", "9")}, 3, 1, 429, 0, 0},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				client := &endpoint.Client{Timeout: time.Minute, MaxBody: 100, Retries: c.retries, HTTP: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
					if body, _ := io.ReadAll(r.Body); string(body) != "{}" {
						t.Errorf("try %d sent %q", tries, body)
					}
					res := c.answers[tries]
					tries++
					if res == nil {
						return nil, down
					}
					return res, nil
				})}}
				began := time.Now()
				res, err := client.Post(t.Context(), "http://h/", nil, []byte("{}"))
				took := time.Since(began)
				if c.status == 0 && !errors.Is(err, down) || c.status != 0 && (err != nil || res.StatusCode != c.status) || tries != c.tries {
					t.Errorf("answer %v, error %v after %d tries, want %d after %d", res, err, tries, c.status, c.tries)
				}
				if took < c.least || took > c.all {
					t.Errorf("took %s, want %s to %s", took, c.least, c.all)
				}
				if res != nil {
					res.Body.Close()
				}
			})
		})
	}
}

func TestATryThatTakesTooLongIsTheLast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		c := &endpoint.Client{Timeout: time.Second, Retries: 3, HTTP: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			tries++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}}
		if _, err := c.Post(t.Context(), "http://h/", nil, nil); err != context.DeadlineExceeded || tries != 1 {
			t.Errorf("error %v after %d tries", err, tries)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := c.Post(ctx, "http://h/", nil, nil); err != context.Canceled || tries != 2 {
			t.Errorf("error %v after %d tries", err, tries)
		}
		// The delay before a retry ends with the context, too.
		ctx, cancel = context.WithCancel(t.Context())
		c.HTTP = &http.Client{Transport: trip(func(*http.Request) (*http.Response, error) {
			time.AfterFunc(time.Millisecond, cancel)
			return answer(503, ""), nil
		})}
		if _, err := c.Post(ctx, "http://h/", nil, nil); err != context.Canceled {
			t.Errorf("error %v", err)
		}
	})
}

// hanging is a body whose reads block until its request ends.
type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

func (h hanging) Close() error { return nil }

func TestTheTimeoutHoldsForTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked context.Context
		c := &endpoint.Client{Timeout: time.Second, MaxBody: 100, HTTP: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
			asked = r.Context()
			return &http.Response{StatusCode: 200, Body: hanging{r.Context()}}, nil
		})}}
		res, err := c.Post(t.Context(), "http://h/", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := io.ReadAll(res.Body); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
		res.Body.Close()

		if res, err = c.Post(t.Context(), "http://h/", nil, nil); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if asked.Err() != context.Canceled {
			t.Errorf("the try goes on behind a body that is closed: %v", asked.Err())
		}
	})
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var reached atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer elsewhere.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, elsewhere.URL+"/", http.StatusTemporaryRedirect)
		case "/here":
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		case "/round":
			http.Redirect(w, r, "/round", http.StatusTemporaryRedirect)
		default:
			if body, _ := io.ReadAll(r.Body); string(body) != "{}" || r.Header.Get("Api-Key") != "k" {
				t.Errorf("%s got %q, %v", r.URL, body, r.Header)
			}
		}
	}))
	defer srv.Close()
	post := func(client *http.Client, path string) (int, error) {
		c := &endpoint.Client{HTTP: client, Timeout: time.Minute, MaxBody: 100, Retries: 1}
		res, err := c.Post(t.Context(), srv.URL+path, http.Header{"Api-Key": {"k"}}, []byte("{}"))
		if err != nil {
			return 0, err
		}
		res.Body.Close()
		return res.StatusCode, nil
	}
	same, none := endpoint.SameOrigin(srv.Client()), endpoint.NoRedirects(srv.Client())
	if status, err := post(same, "/here"); status != 200 {
		t.Errorf("within the origin: status %d, error %v", status, err)
	}
	var failed *url.Error
	if status, err := post(same, "/away"); status != 0 || !errors.As(err, &failed) || !strings.Contains(err.Error(), "another origin") {
		t.Errorf("to another origin: status %d, error %v", status, err)
	}
	if status, err := post(same, "/round"); err == nil || !strings.Contains(err.Error(), "10 redirects") {
		t.Errorf("in a circle: status %d, error %v", status, err)
	}
	if status, err := post(none, "/here"); status != 307 {
		t.Errorf("not followed: status %d, error %v", status, err)
	}
	own := *srv.Client()
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if status, err := post(endpoint.SameOrigin(&own), "/here"); status != 307 {
		t.Errorf("the client's own rule: status %d, error %v", status, err)
	}
	if reached.Load() != 0 {
		t.Error("the request went to another origin")
	}
}

// A request to a server whose certificate is not trusted is not retried: the error says what is
// wrong, and what to do.
func TestAnUntrustedCertificateIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	tries := 0
	c := &endpoint.Client{Host: "here", Timeout: time.Minute, Retries: 3, HTTP: &http.Client{Transport: trip(func(r *http.Request) (*http.Response, error) {
		tries++
		return http.DefaultTransport.RoundTrip(r)
	})}}
	_, err := c.Post(t.Context(), srv.URL, nil, []byte("{}"))
	if got := c.Failure(t.Context(), err, "").Error(); tries != 1 || !strings.Contains(got, "the server's certificate is of an unknown authority") || !strings.Contains(got, "outbound.ca_file") {
		t.Errorf("%d tries: %s", tries, got)
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", endpoint.MaxName+1)
	for want, e := range map[string]*model.Error{
		"no [key]; bad; id": endpoint.Describe(&model.Error{Kind: model.ErrBadRequest}, "no secret1", []string{"secret1"}, "bad", "", "id"),
		"bad":               endpoint.Describe(&model.Error{Kind: model.ErrAuth}, "no secret1", nil, "bad", long),
		"no":                endpoint.Describe(&model.Error{Kind: model.ErrUnavailable}, "no", nil),
		"":                  endpoint.Describe(&model.Error{Kind: model.ErrAuth}, "no", nil),
	} {
		if e.Message != want {
			t.Errorf("%q, want %q", e.Message, want)
		}
	}
}
