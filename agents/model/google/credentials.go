package google

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
)

const scope = "https://www.googleapis.com/auth/cloud-platform"

// Credentials makes a [Config].Token from Google's application default credentials. file contains
// the credentials of a service account, a user or an external account. If file is empty, they come
// from the file that GOOGLE_APPLICATION_CREDENTIALS names, from the one that gcloud has written, or
// from the metadata server. Nothing is read before the first call. Tokens are cached until shortly
// before they expire. client fetches the tokens; nil means the library's own client.
func Credentials(file string, client *http.Client) func(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var creds *auth.Credentials
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if creds == nil {
			found, err := find(file, client)
			if err != nil {
				return "", err
			}
			creds = found
		}
		token, err := creds.Token(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			var refused *auth.Error
			if errors.As(err, &refused) && refused.Response != nil { // its text quotes the answer
				return "", fmt.Errorf("fetch a token: HTTP %d", refused.Response.StatusCode)
			}
			return "", errors.New("fetch a token: the token endpoint does not answer as it should")
		}
		return token.Value, nil
	}
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
