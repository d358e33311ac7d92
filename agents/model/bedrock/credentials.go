package bedrock

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// access is the service's URL and the credential for its requests: an API key, or else an access
// key.
type access struct {
	base, region string
	apiKey       string
	accessKey    aws.Credentials
	secrets      []string // must not be quoted
}

// key returns the most sensitive secret.
func (to *access) key() string { return to.secrets[0] }

func (to *access) withAPIKey(key string) (*access, error) {
	if !strings.HasPrefix(to.base, "https:") { // an eavesdropper would get the key
		return nil, model.Errorf(model.ErrBadRequest, "an API key is sent over https only: base_url must begin with https://")
	}
	to.apiKey, to.secrets = key, []string{key}
	return to, nil
}

func (to *access) withAccessKey(c aws.Credentials) *access {
	to.accessKey, to.secrets = c, []string{c.SecretAccessKey, c.SessionToken, c.AccessKeyID}
	return to
}

// sign adds the signature or the API key to the header of a request.
func (to *access) sign(ctx context.Context, target string, header http.Header, body []byte) error {
	if to.apiKey != "" {
		header.Set("Authorization", "Bearer "+to.apiKey)
		return nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, nil)
	if err != nil {
		return err
	}
	req.Header, req.ContentLength = header, int64(len(body))
	sum := sha256.Sum256(body)
	return v4.NewSigner().SignHTTP(ctx, to.accessKey, req, hex.EncodeToString(sum[:]), "bedrock", to.region, time.Now())
}

// access returns the access for one call of Generate.
func (m *Model) access(ctx context.Context) (*access, error) {
	if m.cfg.Key == nil {
		return m.fromChain(ctx)
	}
	key, err := m.cfg.Key(ctx)
	if err != nil {
		return nil, model.KeyFailure(ctx, "key", err)
	}
	if key = strings.TrimSpace(key); key == "" {
		return nil, model.Errorf(model.ErrAuth, "the key is empty")
	}
	to := &access{base: cmp.Or(m.cfg.BaseURL, host(m.cfg.Region, false, false)), region: m.cfg.Region}
	if id, secret, session, ok := accessKey(key); ok {
		to = to.withAccessKey(aws.Credentials{AccessKeyID: id, SecretAccessKey: secret, SessionToken: session})
		to.secrets = append(to.secrets, key)
		return to, nil
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '"' }) {
		return nil, model.Errorf(model.ErrAuth, "the key is neither an API key nor an access key")
	}
	return to.withAPIKey(key)
}

var colons = pattern.Of(`^([A-Z0-9]{16,}):([^:\s]{16,})(?::([^:\s]+))?$`)

// accessKey reads an access key in either of its forms.
func accessKey(key string) (id, secret, session string, ok bool) {
	if key[0] == '{' {
		var sts struct{ AccessKeyID, SecretAccessKey, SessionToken string }
		err := json.Unmarshal([]byte(key), &sts)
		return sts.AccessKeyID, sts.SecretAccessKey, sts.SessionToken, err == nil && sts.AccessKeyID != "" && sts.SecretAccessKey != ""
	}
	parts := colons.RE().FindStringSubmatch(key)
	if parts == nil {
		return "", "", "", false
	}
	return parts[1], parts[2], parts[3], true
}

// chain has the configuration and credentials of AWS's default chain.
type chain struct {
	base, region string
	credentials  aws.CredentialsProvider
}

// fromChain returns the access by the default chain's current credentials.
func (m *Model) fromChain(ctx context.Context) (*access, error) {
	c, err := m.readChain(ctx)
	if err != nil {
		return nil, err
	}
	to := &access{base: c.base, region: c.region}
	if key := os.Getenv("AWS_BEARER_TOKEN_BEDROCK"); key != "" {
		return to.withAPIKey(key)
	}
	limited, cancel := context.WithTimeout(ctx, m.client.Timeout)
	defer cancel()
	found, err := c.credentials.Retrieve(limited)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		kind := model.ErrAuth
		if passing(err) {
			kind = model.ErrUnavailable
		}
		return nil, &model.Error{Kind: kind, Message: model.Quote("no credentials: " + last(err).Error()), Err: err}
	}
	return to.withAccessKey(found), nil
}

// passing reports whether the place that gives the credentials cannot be reached, or has too much to
// do: another try may have them. A metadata server that does not answer is the end of the chain on a
// machine outside of AWS, and means that there are no credentials.
func passing(err error) bool {
	var answer interface{ HTTPStatusCode() int }
	if errors.As(err, &answer) {
		code := answer.HTTPStatusCode()
		if code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout {
			return true
		}
	}
	var operation interface{ Service() string }
	if errors.As(err, &operation) && operation.Service() == "ec2imds" {
		return false
	}
	var request interface{ ConnectionError() bool }
	return errors.As(err, &request) && request.ConnectionError() || errors.Is(err, context.DeadlineExceeded) ||
		retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) == aws.TrueTernary // by its code, as Throttling
}

// last returns the innermost error, without the SDK's wrapping.
func last(err error) error {
	for {
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			if u.Unwrap() == nil {
				return err
			}
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			all := u.Unwrap()
			err = all[len(all)-1]
		default:
			return err
		}
	}
}

// readChain reads AWS's default chain, once if it can be read.
func (m *Model) readChain(ctx context.Context) (*chain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.chain != nil {
		return m.chain, nil
	}
	var opts []func(*config.LoadOptions) error
	if m.cfg.Region != "" {
		opts = append(opts, config.WithRegion(m.cfg.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, &model.Error{Kind: model.ErrAuth, Message: model.Quote("read AWS's configuration: " + err.Error()), Err: err}
	case cfg.Region == "":
		return nil, model.Errorf(model.ErrBadRequest, "no region is configured, and AWS's configuration has none")
	case !region.RE().MatchString(cfg.Region):
		return nil, model.Errorf(model.ErrBadRequest, "the region in AWS's configuration is not the name of one")
	}
	base, err := configured(ctx, &cfg, m.cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	m.chain = &chain{base, cfg.Region, cfg.Credentials}
	return m.chain, nil
}
