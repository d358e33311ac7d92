package google

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

const scope = "https://www.googleapis.com/auth/cloud-platform"

// Credentials makes a [Config].Token from Google's application default credentials. file contains
// the credentials of a service account, a user or an external account. If file is empty, they come
// from the file that GOOGLE_APPLICATION_CREDENTIALS names, from the one that gcloud has written, or
// from the metadata server. Nothing is read before the first call. Tokens are cached until shortly
// before they expire. client fetches the tokens; nil means the library's own client. If the token
// endpoint cannot be reached, or has too much to do, the error is a model.ErrUnavailable.
//
// Concurrent calls share one fetch, which is bounded by 30 seconds; each waits for it until its own
// context ends.
func Credentials(file string, client *http.Client) func(ctx context.Context) (string, error) {
	return (&tokens{file: file, client: client}).get
}

// fetchTimeout bounds the fetch of a token.
const fetchTimeout = 30 * time.Second

// tokens gives the tokens of credentials.
type tokens struct {
	file   string
	client *http.Client
	creds  *auth.Credentials // only the running fetch uses it

	mu      sync.Mutex
	token   *auth.Token // the newest; nil if there is none yet
	running *fetch      // nil if none runs
}

// fetch is one fetch of a token, for all calls that wait for it.
type fetch struct {
	done  chan struct{} // closed when token or err is set
	token *auth.Token
	err   error
}

// get returns a token, which it fetches if the newest one is about to expire.
func (t *tokens) get(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	f, token := t.join(ctx)
	if f == nil {
		return token, nil
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	if f.err != nil {
		return "", f.err
	}
	return f.token.Value, nil
}

// join returns the newest token if it is valid, and else the running fetch, which it begins if none
// runs. The end of ctx does not end the fetch: other calls may wait for it.
func (t *tokens) join(ctx context.Context) (*fetch, string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token.IsValid() {
		return nil, t.token.Value
	}
	if t.running == nil {
		t.running = &fetch{done: make(chan struct{})}
		go t.fill(context.WithoutCancel(ctx), t.running)
	}
	return t.running, ""
}

// fill fetches a token for the calls that wait for f.
func (t *tokens) fill(ctx context.Context, f *fetch) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	f.token, f.err = t.fetch(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running = nil; f.err == nil {
		t.token = f.token
	}
	close(f.done)
}

func (t *tokens) fetch(ctx context.Context) (*auth.Token, error) {
	if t.creds == nil {
		found, err := find(t.file, t.client)
		if err != nil {
			return nil, err
		}
		t.creds = found
	}
	token, err := t.creds.Token(ctx)
	if err != nil {
		return nil, unfetched(err)
	}
	return token, nil
}

// status finds the HTTP status in those errors of the library that have it in their text alone,
// before what the server says.
var status = pattern.Of(`^[a-z: ]*(?:status code|compute: Received) (\d{3})\b`)

// unfetched returns the error of a token that could not be fetched, without the texts of the library,
// which quote the answer. It is a model.ErrUnavailable if it says nothing about the credentials.
func unfetched(err error) error {
	code, after := 0, time.Duration(0)
	var refused *auth.Error
	if errors.As(err, &refused) && refused.Response != nil {
		code, after = refused.Response.StatusCode, model.RetryAfter(refused.Response.Header, time.Now())
	} else if found := status.RE().FindStringSubmatch(err.Error()); found != nil {
		code, _ = strconv.Atoi(found[1])
	}
	var request *url.Error
	var connection *net.OpError
	var syntax *json.SyntaxError
	switch {
	case code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout:
		e := model.Errorf(model.ErrUnavailable, "fetch a token: HTTP %d", code)
		e.RetryAfter = after
		return e
	case code != 0:
		return fmt.Errorf("fetch a token: HTTP %d", code)
	case errors.As(err, &request), errors.As(err, &connection), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, context.DeadlineExceeded):
		return model.Errorf(model.ErrUnavailable, "fetch a token: the token endpoint cannot be reached")
	case errors.As(err, &syntax): // a proxy's page, perhaps
		return model.Errorf(model.ErrUnavailable, "fetch a token: the token endpoint does not answer as it should")
	}
	return errors.New("fetch a token: the token endpoint does not answer as it should")
}

func find(file string, client *http.Client) (*auth.Credentials, error) {
	opts := &credentials.DetectOptions{Scopes: []string{scope}, Client: client, DisableAsyncRefresh: true}
	if file == "" {
		creds, err := credentials.DetectDefault(opts)
		if err != nil {
			return nil, errors.New("no application default credentials were found")
		}
		return creds, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the credentials: %w", err)
	}
	opts.CredentialsJSON = text
	creds, err := credentials.DetectDefault(opts)
	if err != nil { // its text may quote the file
		return nil, fmt.Errorf("%s has no credentials of Google's", file)
	}
	return creds, nil
}
