package google

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"golang.org/x/sync/singleflight"

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
	file    string
	client  *http.Client
	fetches singleflight.Group
	creds   *auth.Credentials // only the running fetch uses it
}

// get returns a token. The end of ctx does not end the fetch: other calls may wait for it.
func (t *tokens) get(ctx context.Context) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	fetched := t.fetches.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		return t.fetch(ctx)
	})
	select {
	case f := <-fetched:
		token, _ := f.Val.(string)
		return token, f.Err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// fetch returns a token of the library, which caches it until shortly before it expires.
func (t *tokens) fetch(ctx context.Context) (string, error) {
	if t.creds == nil {
		found, err := find(t.file, t.client)
		if err != nil {
			return "", err
		}
		t.creds = found
	}
	token, err := t.creds.Token(ctx)
	if err != nil {
		return "", unfetched(err)
	}
	return token.Value, nil
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
	// Without a logger, the library would log tokens if GOOGLE_SDK_GO_LOGGING_LEVEL is debug.
	opts := &credentials.DetectOptions{Scopes: []string{scope}, Client: client, DisableAsyncRefresh: true, Logger: slog.New(slog.DiscardHandler)}
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
