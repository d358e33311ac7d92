package awssm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/secret"
	"github.com/aeemesh/aeemesh/agents/secret/awssm"
	"github.com/aeemesh/aeemesh/agents/secret/secrettest"
)

const (
	keyID, secretKey, sessionToken = "AKIDDOUBLE7XQ2M4K9", "aws-secret/K3y+8sQz=1", "session-Tk7==xyz"
	oldVersion                     = "3f2c6a80-8a3e-4d7c-9b1f-2f5f9a4e7d11"
	plainARN                       = "arn:aws:secretsmanager:us-east-2:123456789012:secret:plain-AbCdEf"
)

// double speaks GetSecretValue, in AWS's JSON 1.1, and denies with words that
// quote what it was sent.
type double struct {
	*httptest.Server
	down   atomic.Bool
	region atomic.Value
	token  atomic.Value // the session token that it accepts
}

func start(t *testing.T) *double {
	d := &double{}
	d.token.Store(sessionToken)
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *double) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, code, words string) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": words})
	}
	auth := r.Header.Get("Authorization")
	var in struct{ SecretId, VersionId, VersionStage string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	scope := strings.Split(strings.TrimPrefix(auth, "AWS4-HMAC-SHA256 Credential="), "/")
	if len(scope) > 2 {
		d.region.Store(scope[2])
	}
	answer := func(members map[string]any) {
		members["ARN"], members["Name"], members["VersionId"] = plainARN, in.SecretId, oldVersion
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_ = json.NewEncoder(w).Encode(members)
	}
	switch {
	case d.down.Load():
		fail(500, "InternalServiceError", auth)
	case r.Method != "POST" || r.Header.Get("X-Amz-Target") != "secretsmanager.GetSecretValue":
		fail(400, "UnknownOperationException", "")
	case scope[0] != keyID || r.Header.Get("X-Amz-Security-Token") != d.token.Load():
		fail(400, "UnrecognizedClientException", fmt.Sprintf("The security token %s included in the request is invalid.", r.Header.Get("X-Amz-Security-Token")))
	case in.SecretId == "prod/denied":
		fail(400, "AccessDeniedException", "User with "+r.Header.Get("X-Amz-Security-Token")+" is not authorized")
	case in.SecretId == "prod/deleted":
		fail(400, "InvalidRequestException", "marked for deletion")
	case in.SecretId == "bad name":
		fail(400, "ValidationException", "Invalid name")
	case in.VersionId == oldVersion || in.VersionStage == "AWSPREVIOUS":
		answer(map[string]any{"SecretString": secrettest.OldValue})
	case in.VersionId != "" || in.VersionStage != "" && in.VersionStage != "AWSCURRENT":
		fail(400, "ResourceNotFoundException", "Secrets Manager can't find the specified secret value for staging label")
	case in.SecretId == "prod/plain" || in.SecretId == plainARN:
		answer(map[string]any{"SecretString": secrettest.PlainValue})
	case in.SecretId == "prod/binary":
		answer(map[string]any{"SecretBinary": []byte{0, 1, 0xff}})
	case in.SecretId == "prod/map":
		text, _ := json.Marshal(map[string]any{secrettest.MemberKey: secrettest.MemberValue, "n": 42})
		answer(map[string]any{"SecretString": string(text)})
	default:
		fail(400, "ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
	}
}

func lookup(_ context.Context, r secret.Reference) (secret.Secret, error) {
	return secret.New(map[secret.Reference]string{"env:ID": keyID, "env:KEY": secretKey, "env:SESSION": sessionToken}[r]), nil
}

func open(t *testing.T, d *double) *awssm.Vault {
	t.Helper()
	v, err := awssm.New(awssm.Config{Region: "eu-west-1", Endpoint: d.URL, AccessKeyID: "env:ID", SecretAccessKey: "env:KEY", SessionToken: "env:SESSION"}, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func ref(path, key, version string) aaif.VaultRef {
	return aaif.VaultRef{Provider: aaif.VaultAWSSecretsManager, Path: path, Key: key, Version: version}
}

func TestVaultPassesTheSuite(t *testing.T) {
	t.Parallel()
	for old, version := range map[string]string{"by id": oldVersion, "by stage": "AWSPREVIOUS"} {
		t.Run(old, func(t *testing.T) {
			t.Parallel()
			secrettest.Run(t, func(t *testing.T) secrettest.Subject {
				d := start(t)
				return secrettest.Subject{Vault: open(t, d), Plain: ref("prod/plain", "", ""), Member: ref("prod/map", secrettest.MemberKey, "latest"), Old: ref("prod/plain", "", version),
					Missing: ref("prod/none", "", ""), MissingVersion: ref("prod/plain", "", "MYSTAGE"), Denied: ref("prod/denied", "", ""),
					Credentials: map[string]string{"key": secretKey, "session": sessionToken}, Break: func() { d.down.Store(true) }}
			})
		})
	}
}

func TestTheRegionIsTheARNs(t *testing.T) {
	t.Parallel()
	d := start(t)
	v := open(t, d)
	for path, want := range map[string]string{plainARN: "us-east-2", "prod/plain": "eu-west-1"} {
		if got, err := v.Read(t.Context(), ref(path, "", "AWSCURRENT")); err != nil || got.Reveal() != secrettest.PlainValue || d.region.Load() != want {
			t.Errorf("%s: %v, asked in %v, want %s", path, err, d.region.Load(), want)
		}
	}
}

// The vault's own credentials are read at each use, so that they can be rotated while a worker runs.
func TestRotatedCredentialsAreUsed(t *testing.T) {
	t.Parallel()
	d := start(t)
	var current atomic.Value
	current.Store(sessionToken)
	v, err := awssm.New(awssm.Config{Region: "eu-west-1", Endpoint: d.URL, AccessKeyID: "env:ID", SecretAccessKey: "env:KEY", SessionToken: "env:SESSION"},
		func(ctx context.Context, r secret.Reference) (secret.Secret, error) {
			if r == "env:SESSION" {
				return secret.New(current.Load().(string)), nil
			}
			return lookup(ctx, r)
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{sessionToken, "session-of-the-next-hour", "session-of-the-hour-after"} {
		d.token.Store(token)
		current.Store(token)
		if got, err := v.Read(t.Context(), ref("prod/plain", "", "")); err != nil || got.Reveal() != secrettest.PlainValue {
			t.Errorf("%s: %v", token, err)
		}
	}
}

func TestOddSecrets(t *testing.T) {
	t.Parallel()
	v := open(t, start(t))
	for path, want := range map[string]error{"prod/deleted": secret.ErrNotFound, "bad name": secret.ErrInvalid, "prod/binary": nil} {
		if _, err := v.Read(t.Context(), ref(path, "", "")); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if _, err := v.Read(t.Context(), ref("prod/plain", "k", "")); !errors.Is(err, secret.ErrInvalid) {
		t.Errorf("a key of a text: %v", err)
	}
}

func TestCredentialsThatAreWrongOrMissing(t *testing.T) {
	t.Parallel()
	d := start(t)
	for _, tt := range []struct {
		lookup secret.Lookup
		want   secret.Kind
	}{
		{func(context.Context, secret.Reference) (secret.Secret, error) {
			return secret.New("wrong-Session-8s"), nil
		}, secret.ErrDenied},
		{secret.Operator(nil), secret.ErrUnavailable},
	} {
		v, err := awssm.New(awssm.Config{Region: "eu-west-1", Endpoint: d.URL, AccessKeyID: "env:ID", SecretAccessKey: "env:KEY", SessionToken: "env:SESSION"}, tt.lookup)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = v.Read(t.Context(), ref("prod/plain", "", "")); !errors.Is(err, tt.want) || strings.Contains(err.Error(), "wrong-Session") {
			t.Errorf("err = %v, want %q", err, string(tt.want))
		}
	}
	if _, err := awssm.New(awssm.Config{AccessKeyID: "env:ID"}, lookup); err == nil {
		t.Error("half of a credential is accepted")
	}
}
