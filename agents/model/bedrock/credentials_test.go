package bedrock_test

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/agents/model"
	"github.com/aeemesh/aeemesh/agents/model/bedrock"
	"github.com/aeemesh/aeemesh/agents/model/modeltest"
)

func TestKeyHasThreeForms(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][2]string{ // beginning of Authorization, session token
		testKey:                   {"AWS4-HMAC-SHA256 Credential=" + testID + "/", ""},
		testKey + ":FwoGZXIvYX==": {"AWS4-HMAC-SHA256 Credential=" + testID + "/", "FwoGZXIvYX=="},
		`{"AccessKeyId":"` + testID + `","SecretAccessKey":"` + testSecret + `","SessionToken":"tok","Expiration":"2026-01-01"}`: {"AWS4-HMAC-SHA256 Credential=" + testID + "/", "tok"},
		"bedrock-api-key-YmVkcm9jay4=": {"Bearer bedrock-api-key-YmVkcm9jay4=", ""},
	} {
		c := always(fine)
		m := newModel(t, "", local(c), func(cfg *bedrock.Config) {
			cfg.Key = func(context.Context) (string, error) { return key, nil }
		})
		if _, err := m.Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
		if got := c.headers[0]; !strings.HasPrefix(got.Get("Authorization"), want[0]) || got.Get("X-Amz-Security-Token") != want[1] {
			t.Errorf("headers %v, want %q", got, want)
		}
	}
	for _, key := range []string{"", " \n", "two words", `{"AccessKeyId":"x"`, `{"AccessKeyId":"x"}`, "näh"} {
		m := newModel(t, "", local(always(fine)), func(cfg *bedrock.Config) {
			cfg.Key = func(context.Context) (string, error) { return key, nil }
		})
		_, err := m.Generate(t.Context(), hi, nil)
		if !errors.Is(err, model.ErrAuth) || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%q: error %v", key, err)
		}
	}
}

func TestAPIKeysStayOffPlainHTTP(t *testing.T) {
	t.Parallel()
	c := always(fine)
	m := newModel(t, modeltest.Serve(t, c), func(cfg *bedrock.Config) {
		cfg.Key = func(context.Context) (string, error) { return "an-api-key", nil }
	})
	if _, err := m.Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), "https only") || len(c.bodies) != 0 {
		t.Errorf("error %v after %d requests", err, len(c.bodies))
	}
}

// local serves the requests to all hosts.
func local(h http.Handler) func(*bedrock.Config) {
	return func(cfg *bedrock.Config) {
		cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			return rec.Result(), nil
		})}
	}
}

func TestKeyIsResolvedAtEachCall(t *testing.T) {
	t.Parallel()
	c := always(fine)
	key := ""
	var keyErr error
	m := newModel(t, "", local(c), func(cfg *bedrock.Config) {
		cfg.Key = func(context.Context) (string, error) { return key, keyErr }
	})
	for n, want := range []string{"Bearer first", "AWS4-HMAC-SHA256 ", "Bearer third"} {
		key = []string{"first", testKey, "third"}[n]
		if _, err := m.Generate(t.Context(), hi, nil); err != nil {
			t.Fatal(err)
		}
		if got := c.headers[n].Get("Authorization"); !strings.HasPrefix(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	keyErr = errors.New("environment variable LLM_KEY is not set")
	_, err := m.Generate(t.Context(), hi, nil)
	if !errors.Is(err, model.ErrAuth) || !errors.Is(err, keyErr) || !strings.Contains(err.Error(), "LLM_KEY") || len(c.bodies) != 3 {
		t.Errorf("error %v after %d requests", err, len(c.bodies))
	}
	keyErr = fmt.Errorf("read it: %w", &model.Error{Kind: model.ErrUnavailable, Message: "the vault does not answer"})
	var failed *model.Error
	if _, err := m.Generate(t.Context(), hi, nil); !errors.As(err, &failed) || failed.Kind != model.ErrUnavailable || len(c.bodies) != 3 {
		t.Errorf("a key that cannot be read now: error %v after %d requests", err, len(c.bodies))
	}
}

// alone hides the machine's own AWS configuration.
func alone(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK", "AWS_ENDPOINT_URL",
		"AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
}

func TestDefaultChain(t *testing.T) {
	alone(t)
	t.Setenv("AWS_ACCESS_KEY_ID", testID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
	t.Setenv("AWS_REGION", "eu-north-1")
	c := always(fine)
	for n, want := range []string{"/eu-north-1/bedrock/", "/eu-west-1/bedrock/"} {
		m := newModel(t, "", local(c), func(cfg *bedrock.Config) { cfg.Key, cfg.Region = nil, []string{"", "eu-west-1"}[n] })
		for range 2 {
			if _, err := m.Generate(t.Context(), hi, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.headers[2*n].Get("Authorization"); !strings.Contains(got, "Credential="+testID+"/") || !strings.Contains(got, want) {
			t.Errorf("sent %q, want %q", got, want)
		}
	}
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "a-bedrock-key")
	if _, err := newModel(t, "", local(c), func(cfg *bedrock.Config) { cfg.Key = nil }).Generate(t.Context(), hi, nil); err != nil {
		t.Fatal(err)
	}
	if got := c.headers[4].Get("Authorization"); got != "Bearer a-bedrock-key" {
		t.Errorf("sent %q", got)
	}
}

func TestEndpointsOfTheConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		region string
		env    map[string]string
		file   string
		want   string // the host, or a part of the error
	}{
		"a region":             {"eu-west-1", nil, "", "bedrock-runtime.eu-west-1.amazonaws.com"},
		"China":                {"cn-north-1", nil, "", "bedrock-runtime.cn-north-1.amazonaws.com.cn"},
		"a secret region":      {"us-isob-east-1", nil, "", "bedrock-runtime.us-isob-east-1.sc2s.sgov.gov"},
		"the sovereign cloud":  {"eusc-de-east-1", nil, "", "bedrock-runtime.eusc-de-east-1.amazonaws.eu"},
		"FIPS":                 {"us-gov-west-1", map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, "", "bedrock-runtime-fips.us-gov-west-1.amazonaws.com"},
		"both IPs":             {"us-east-1", map[string]string{"AWS_USE_DUALSTACK_ENDPOINT": "true"}, "", "bedrock-runtime.us-east-1.api.aws"},
		"for all services":     {"us-east-1", map[string]string{"AWS_ENDPOINT_URL": "https://all.example"}, "", "all.example"},
		"for this":             {"us-east-1", map[string]string{"AWS_ENDPOINT_URL": "https://all.example", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "https://one.example"}, "", "one.example"},
		"in a file":            {"us-east-1", nil, "[default]\nservices = s\n[services s]\nbedrock_runtime =\n  endpoint_url = https://file.example\n", "file.example"},
		"a variable, a file":   {"us-east-1", map[string]string{"AWS_ENDPOINT_URL": "https://all.example"}, "[default]\nservices = s\n[services s]\nbedrock_runtime =\n  endpoint_url = https://file.example\n", "all.example"},
		"not to be heeded":     {"us-east-1", map[string]string{"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "https://one.example", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}, "", "bedrock-runtime.us-east-1.amazonaws.com"},
		"FIPS, but elsewhere":  {"us-east-1", map[string]string{"AWS_USE_FIPS_ENDPOINT": "true", "AWS_ENDPOINT_URL": "https://all.example"}, "", "does not go with a URL"},
		"a URL that is none":   {"us-east-1", map[string]string{"AWS_ENDPOINT_URL": "ftp://u:hidden@x"}, "", "want http:// or https://"},
		"a region that is not": {"evil.example/#", nil, "", "not the name of one"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			alone(t)
			t.Setenv("AWS_ACCESS_KEY_ID", testID)
			t.Setenv("AWS_SECRET_ACCESS_KEY", testSecret)
			t.Setenv("AWS_REGION", c.region)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			if c.file != "" {
				path := t.TempDir() + "/config"
				if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("AWS_CONFIG_FILE", path)
			}
			asked := ""
			m := newModel(t, "", func(cfg *bedrock.Config) {
				cfg.Key, cfg.Region = nil, ""
				cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					asked = r.URL.Host
					return modeltest.Body{Media: "application/json", Text: fine}.RoundTrip(r)
				})}
			})
			_, err := m.Generate(t.Context(), hi, nil)
			if asked != c.want && (err == nil || asked != "" || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden")) {
				t.Errorf("asked %q, error %v, want %q", asked, err, c.want)
			}
		})
	}
}

// The signature is computed here by hand, as AWS documents Signature Version 4.
func TestRequestsAreSigned(t *testing.T) {
	t.Parallel()
	for base, host := range map[string]string{"https://h.example/prefix": "h.example", "HTTPS://h.example:443/prefix": "h.example", "http://h.example:80/prefix/": "h.example", "https://h.example:8443/prefix": "h.example:8443"} {
		checkSignature(t, base, host)
	}
}

func checkSignature(t *testing.T, base, host string) {
	t.Helper()
	var got *http.Request
	var body []byte
	m := newModel(t, base, func(cfg *bedrock.Config) {
		cfg.Key = func(context.Context) (string, error) { return testKey + ":token", nil }
		cfg.HTTPClient = &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			got = r
			body, _ = io.ReadAll(r.Body)
			return modeltest.Body{Media: "application/json", Text: fine}.RoundTrip(r)
		})}
	})
	req := *hi
	req.Model = "arn:aws:bedrock:x/a b~"
	if _, err := m.Generate(t.Context(), &req, nil); err != nil {
		t.Fatal(err)
	}
	date := got.Header.Get("X-Amz-Date")
	scope := date[:min(8, len(date))] + "/eu-central-1/bedrock/aws4_request"
	hash := func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) }
	canonical := "POST\n/prefix/model/arn%253Aaws%253Abedrock%253Ax%252Fa%2520b~/converse\n\n" +
		"accept:application/json\ncontent-length:" + strconv.Itoa(len(body)) + "\ncontent-type:application/json\nhost:" + cmp.Or(got.Host, got.URL.Host) + "\nx-amz-date:" + date + "\nx-amz-security-token:token\n\n" +
		"accept;content-length;content-type;host;x-amz-date;x-amz-security-token\n" + hash(body)
	key := []byte("AWS4" + testSecret)
	for _, part := range append(strings.Split(scope, "/"), "AWS4-HMAC-SHA256\n"+date+"\n"+scope+"\n"+hash([]byte(canonical))) {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(part))
		key = mac.Sum(nil)
	}
	want := "AWS4-HMAC-SHA256 Credential=" + testID + "/" + scope + ", SignedHeaders=accept;content-length;content-type;host;x-amz-date;x-amz-security-token, Signature=" + hex.EncodeToString(key)
	if sent := cmp.Or(got.Host, got.URL.Host); sent != host {
		t.Errorf("%s: the header Host is %q, want %q", base, sent, host)
	}
	if a := got.Header.Get("Authorization"); a != want || got.ContentLength != int64(len(body)) || got.Header.Get("X-Amz-Security-Token") != "token" {
		t.Errorf("%d bytes of %d, header %v, want\n%s\nof %s", got.ContentLength, len(body), got.Header, want, canonical)
	}
}

func TestNoCredentialsIsAuth(t *testing.T) {
	alone(t)
	m := newModel(t, "http://127.0.0.1:1", func(cfg *bedrock.Config) { cfg.Key = nil })
	_, err := m.Generate(t.Context(), hi, nil)
	if !errors.Is(err, model.ErrAuth) || !strings.Contains(err.Error(), "no credentials: ") {
		t.Errorf("error %v", err)
	}
	m = newModel(t, "http://127.0.0.1:1", func(cfg *bedrock.Config) { cfg.Key, cfg.Region = nil, "" })
	if _, err = m.Generate(t.Context(), hi, nil); !errors.Is(err, model.ErrBadRequest) || !strings.Contains(err.Error(), "region") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = m.Generate(ctx, hi, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A place that gives credentials, and fails for a moment, says nothing about the credentials. But
// where no metadata server answers at all, there are none: that is how every machine outside of AWS
// looks.
func TestCredentialsThatCannotBeFetchedNow(t *testing.T) {
	for name, c := range map[string]struct {
		variable string
		status   int // 0: nothing answers
		kind     model.Kind
	}{
		"a container, 429":              {"AWS_CONTAINER_CREDENTIALS_FULL_URI", 429, model.ErrUnavailable},
		"a container, 403":              {"AWS_CONTAINER_CREDENTIALS_FULL_URI", 403, model.ErrAuth},
		"a container, no answer":        {"AWS_CONTAINER_CREDENTIALS_FULL_URI", 0, model.ErrUnavailable},
		"a machine in AWS, 429":         {"AWS_EC2_METADATA_SERVICE_ENDPOINT", 429, model.ErrUnavailable},
		"a machine in AWS without role": {"AWS_EC2_METADATA_SERVICE_ENDPOINT", 404, model.ErrAuth},
		"a machine elsewhere":           {"AWS_EC2_METADATA_SERVICE_ENDPOINT", 0, model.ErrAuth},
		"an STS that throttles":         {"AWS_ENDPOINT_URL_STS", 400, model.ErrUnavailable},
		"an STS that does not answer":   {"AWS_ENDPOINT_URL_STS", 0, model.ErrUnavailable},
		"an STS that refuses":           {"AWS_ENDPOINT_URL_STS", 403, model.ErrAuth},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && !strings.Contains(c.variable, "STS") {
				t.Skip("the SDK tries some of these again for seconds")
			}
			alone(t)
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			t.Setenv("AWS_MAX_ATTEMPTS", "1")
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				if c.status == 400 {
					io.WriteString(w, `<ErrorResponse><Error><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>`)
				}
			}))
			if t.Cleanup(server.Close); c.status == 0 {
				server.Close()
			}
			t.Setenv(c.variable, server.URL)
			if c.variable == "AWS_ENDPOINT_URL_STS" {
				file := filepath.Join(t.TempDir(), "token")
				if err := os.WriteFile(file, []byte("a.b.c"), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", file)
				t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r")
			}
			m := newModel(t, "http://127.0.0.1:1", func(cfg *bedrock.Config) { cfg.Key = nil })
			_, err := m.Generate(t.Context(), hi, nil)
			var failed *model.Error
			if !errors.As(err, &failed) || failed.Kind != c.kind || !strings.Contains(err.Error(), "no credentials: ") {
				t.Errorf("error %v, want %s", err, c.kind)
			}
		})
	}
}

func TestWithAKeyNothingComesFromTheEnvironment(t *testing.T) {
	alone(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDFROMENVIRONMENT")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secretfromtheenvironment")
	t.Setenv("AWS_BEARER_TOKEN_BEDROCK", "key-from-the-environment")
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://127.0.0.1:1")
	c := always(fine)
	if _, err := newModel(t, modeltest.Serve(t, c)).Generate(t.Context(), hi, nil); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(c.headers); strings.Contains(strings.ToLower(got), "environment") || !strings.Contains(got, testID) {
		t.Errorf("headers %s", got)
	}
	asked := make(chan string, 1)
	m, err := bedrock.New(bedrock.Config{Region: "eu-central-1", Key: func(context.Context) (string, error) { return testKey, nil },
		HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			asked <- r.URL.Host
			return modeltest.Body{Media: "application/json", Text: fine}.RoundTrip(r)
		})}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Generate(t.Context(), hi, nil); err != nil {
		t.Fatal(err)
	}
	if host := <-asked; host != "bedrock-runtime.eu-central-1.amazonaws.com" {
		t.Errorf("asked %s", host)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestNewReportsAllProblems(t *testing.T) {
	t.Parallel()
	_, err := bedrock.New(bedrock.Config{Region: "evil.example/#", MaxResponse: -1})
	if err == nil || !strings.Contains(err.Error(), "region: not the name") || !strings.Contains(err.Error(), "negative") {
		t.Errorf("error %v", err)
	}
}
