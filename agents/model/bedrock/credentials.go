package bedrock

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/smithy-go/auth/bearer"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// credentials are a client, what signs one call, and the secrets in it.
func (m *Model) credentials(ctx context.Context) (*bedrockruntime.Client, func(*bedrockruntime.Options), []string, error) {
	if m.cfg.Key == nil {
		client, err := m.fromChain(ctx)
		return client, func(*bedrockruntime.Options) {}, nil, err
	}
	key, err := m.cfg.Key(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, nil, nil, ctx.Err()
		}
		return nil, nil, nil, model.Errorf(model.ErrAuth, "resolve the key: %w", err)
	}
	if key = strings.TrimSpace(key); key == "" {
		return nil, nil, nil, model.Errorf(model.ErrAuth, "the key is empty")
	}
	if id, secret, session, ok := accessKey(key); ok {
		return m.client, func(o *bedrockruntime.Options) {
			o.Credentials = credentials.NewStaticCredentialsProvider(id, secret, session)
		}, []string{key, secret, session, id}, nil
	}
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' || r == '{' || r == '"' }) {
		return nil, nil, nil, model.Errorf(model.ErrAuth, "the key is neither an API key nor an access key")
	}
	if strings.HasPrefix(m.cfg.BaseURL, "http:") { // an eavesdropper would get the key
		return nil, nil, nil, model.Errorf(model.ErrBadRequest, "an API key is sent over https alone")
	}
	return m.client, func(o *bedrockruntime.Options) {
		o.BearerAuthTokenProvider = bearer.StaticTokenProvider{Token: bearer.Token{Value: key}}
		o.AuthSchemePreference = []string{"httpBearerAuth"}
	}, []string{key}, nil
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

// fromChain reads AWS's default chain, once if it can be read.
func (m *Model) fromChain(ctx context.Context) (*bedrockruntime.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		return m.client, nil
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
	}
	m.client = bedrockruntime.NewFromConfig(cfg, m.options)
	return m.client, nil
}

// marked marks the errors of the chain, which come out of the SDK in the midst
// of a request's.
type marked struct{ aws.CredentialsProvider }

var errCredentials = errors.New("no credentials")

func (m marked) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c, err := m.CredentialsProvider.Retrieve(ctx)
	if err != nil {
		err = errors.Join(errCredentials, err)
	}
	return c, err
}
