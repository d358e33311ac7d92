package awssm

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/envelope/pattern"
)

// Config says how AWS is reached. The zero Config uses the SDK's default chain
// for everything.
type Config struct {
	// Region is the region of secrets without an ARN, such as eu-west-1.
	// Default: the default chain's.
	Region string `json:"region,omitzero"`
	// Profile of the shared configuration files. Default: the default chain's.
	Profile string `json:"profile,omitzero"`
	// Endpoint replaces AWS's own, for a VPC endpoint or a double.
	Endpoint string `json:"endpoint,omitzero"`
	// AccessKeyID and SecretAccessKey, and SessionToken where there is one, are
	// used instead of the default chain's credentials.
	AccessKeyID     secret.Reference `json:"access_key_id,omitzero"`
	SecretAccessKey secret.Reference `json:"secret_access_key,omitzero"`
	SessionToken    secret.Reference `json:"session_token,omitzero"`

	// HTTPClient reaches AWS. Default: the SDK's, which honours AWS_CA_BUNDLE.
	HTTPClient *http.Client `json:"-"`
}

// Vault reads from AWS Secrets Manager. It is safe for concurrent use.
type Vault struct {
	cfg    Config
	lookup secret.Lookup

	mu     sync.Mutex
	client func() *secretsmanager.Client // nil until the first read
}

// New makes a Vault. It does no I/O.
func New(cfg Config, lookup secret.Lookup) (*Vault, error) {
	if (cfg.AccessKeyID == "") != (cfg.SecretAccessKey == "") || cfg.SessionToken != "" && cfg.AccessKeyID == "" {
		return nil, errors.New("access_key_id and secret_access_key go together")
	}
	return &Vault{cfg: cfg, lookup: lookup}, nil
}

// connect makes the client when it is first needed.
func (v *Vault) connect(ctx context.Context) (*secretsmanager.Client, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.client != nil {
		return v.client(), nil
	}
	options := []func(*config.LoadOptions) error{config.WithLogger(logging.Nop{}),
		config.WithRetryer(func() aws.Retryer { return retry.AddWithMaxAttempts(retry.NewStandard(), 2) })}
	if v.cfg.HTTPClient != nil {
		options = append(options, config.WithHTTPClient(v.cfg.HTTPClient))
	}
	if v.cfg.Region != "" {
		options = append(options, config.WithRegion(v.cfg.Region))
	}
	if v.cfg.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(v.cfg.Profile))
	}
	if v.cfg.AccessKeyID != "" {
		options = append(options, config.WithCredentialsProvider(v))
	}
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, err
	}
	client := secretsmanager.NewFromConfig(loaded, func(o *secretsmanager.Options) {
		if v.cfg.Endpoint != "" {
			o.BaseEndpoint = &v.cfg.Endpoint
		}
	})
	v.client = func() *secretsmanager.Client { return client }
	return client, nil
}

// Retrieve reads the configured credentials; it makes a Vault an
// [aws.CredentialsProvider]. They expire at once, because the SDK keeps others for
// ever, and they may have been rotated by the next use.
func (v *Vault) Retrieve(ctx context.Context) (aws.Credentials, error) {
	c := aws.Credentials{Source: "aeemesh", CanExpire: true, Expires: time.Now()}
	for to, r := range map[*string]secret.Reference{&c.AccessKeyID: v.cfg.AccessKeyID, &c.SecretAccessKey: v.cfg.SecretAccessKey, &c.SessionToken: v.cfg.SessionToken} {
		if r == "" {
			continue
		}
		s, err := v.lookup(ctx, r)
		if err != nil {
			return aws.Credentials{}, err
		}
		*to = s.Reveal()
	}
	return c, nil
}

// versionID matches the ids of versions; any other text is a stage.
var versionID = pattern.Of(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)

// Read reads a secret.
func (v *Vault) Read(ctx context.Context, ref aaif.VaultRef) (secret.Secret, error) {
	client, err := v.connect(ctx)
	if err != nil {
		return secret.Secret{}, failed(ref, err)
	}
	in := &secretsmanager.GetSecretValueInput{SecretId: &ref.Path}
	switch {
	case ref.Version == "" || ref.Version == "latest":
	case versionID.RE().MatchString(ref.Version):
		in.VersionId = &ref.Version
	default:
		in.VersionStage = &ref.Version
	}
	out, err := client.GetSecretValue(ctx, in, func(o *secretsmanager.Options) {
		if name, err := arn.Parse(ref.Path); err == nil && name.Region != "" {
			o.Region = name.Region
		}
	})
	switch {
	case err != nil:
		return secret.Secret{}, failed(ref, err)
	case out.SecretString != nil:
		return secret.Member(ref, *out.SecretString)
	}
	return secret.Member(ref, string(out.SecretBinary))
}

// failed converts an error of the SDK. It contains only the error's code,
// because the text may quote the request.
func failed(ref aaif.VaultRef, err error) error {
	var ours *secret.Error
	if errors.As(err, &ours) { // an error of Retrieve
		return secret.Errorf(secret.ErrUnavailable, ref, "its credential for the login cannot be read: %v", ours)
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		var missing *aws.MissingRegionError
		if errors.As(err, &missing) {
			return secret.Errorf(secret.ErrUnavailable, ref, "no region is configured")
		}
		return secret.Failed(ref, err)
	}
	code := api.ErrorCode()
	if !codeForm.RE().MatchString(code) {
		code = "an unknown error"
	}
	kind := secret.ErrUnavailable
	switch {
	case code == "ResourceNotFoundException", code == "InvalidRequestException": // the second means that it is scheduled for deletion
		kind = secret.ErrNotFound
	case code == "ValidationException", code == "InvalidParameterException":
		kind = secret.ErrInvalid
	case code == "DecryptionFailure", code == "SignatureDoesNotMatch", strings.HasPrefix(code, "AccessDenied"), strings.HasPrefix(code, "UnrecognizedClient"),
		strings.HasPrefix(code, "InvalidSignature"), strings.HasPrefix(code, "ExpiredToken"), strings.HasPrefix(code, "InvalidClientTokenId"),
		strings.HasPrefix(code, "MissingAuthenticationToken"), strings.HasPrefix(code, "NotAuthorized"):
		kind = secret.ErrDenied
	}
	return secret.Errorf(kind, ref, "%s", code)
}

var codeForm = pattern.Of(`^[A-Za-z]{1,60}$`)
