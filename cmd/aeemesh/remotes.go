package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/handoff"
)

// remoteFlags say to which other platforms a worker may transfer its runs.
type remoteFlags struct {
	to            []string
	ca, cert, key string
	bearer        string
}

func (f *remoteFlags) add(a *session.App, flags *pflag.FlagSet) {
	runs.AddPlatformFlag(a, flags)
	flags.StringArrayVar(&f.to, "handoff-to", nil, "https `URL` of another platform's receiver to which runs may be moved; repeatable (default none)")
	flags.StringVar(&f.ca, "handoff-ca", "", "`file` of certificates to trust there besides the system's")
	flags.StringVar(&f.cert, "handoff-cert", "", "client certificate `file` to show there")
	flags.StringVar(&f.key, "handoff-key", "", "and its private key `file`")
	flags.StringVar(&f.bearer, "handoff-bearer", "", "`env:NAME or file:PATH` of a token to send there")
}

// check returns what is wrong with the flags. It does not read the files that they name.
func (f *remoteFlags) check() (bad []error) {
	for _, to := range f.to {
		c, err := handoff.NewClient(to, handoff.ClientOptions{})
		if err != nil {
			bad = append(bad, fmt.Errorf("--handoff-to: %w", err))
			continue
		}
		c.Close()
	}
	if len(f.to) == 0 && (f.ca != "" || f.cert != "" || f.key != "" || f.bearer != "") {
		bad = append(bad, errors.New("--handoff-ca, --handoff-cert, --handoff-key and --handoff-bearer need a --handoff-to"))
	}
	if (f.cert == "") != (f.key == "") {
		bad = append(bad, errors.New("--handoff-cert, --handoff-key: a certificate and its key go together"))
	}
	if kind, _, _ := strings.Cut(f.bearer, ":"); f.bearer != "" && kind != "env" && kind != "file" {
		bad = append(bad, errors.New("--handoff-bearer: it is env:NAME or file:PATH, never the secret itself"))
	}
	return bad
}

// remotesOf returns the platforms that the flags permit; nil if there are none.
func remotesOf(a *session.App, cmd *cobra.Command, f *remoteFlags) (mesh.Remotes, error) {
	opts := handoff.ClientOptions{}
	allowed := map[string]bool{}
	for _, to := range f.to {
		c, err := handoff.NewClient(to, opts)
		if err != nil {
			return nil, outcome.Usagef(cmd, "--handoff-to: %w", err)
		}
		c.Close()
		allowed[normalURL(to)] = true
	}
	if len(allowed) == 0 {
		if f.ca != "" || f.cert != "" || f.key != "" || f.bearer != "" {
			return nil, outcome.Usagef(cmd, "--handoff-ca, --handoff-cert, --handoff-key and --handoff-bearer need a --handoff-to")
		}
		return nil, nil
	}
	var err error
	if opts.TLS, err = clientTLS(f.ca, f.cert, f.key); err != nil {
		return nil, outcome.Usagef(cmd, "--handoff-ca, --handoff-cert, --handoff-key: %w", err)
	}
	if opts.Bearer, err = secretRef(a, f.bearer); err != nil {
		return nil, outcome.Usagef(cmd, "--handoff-bearer: %w", err)
	}
	return func(to string) (*handoff.Client, error) {
		if !strings.HasPrefix(strings.ToLower(to), "https://") {
			return nil, fmt.Errorf("%s: %w", to, handoff.ErrPlaintext)
		}
		if !allowed[normalURL(to)] {
			return nil, fmt.Errorf("this worker transfers no runs to %s: it was not started with --handoff-to %s", to, to)
		}
		return handoff.NewClient(to, opts)
	}, nil
}

// normalURL normalises a URL for comparison.
func normalURL(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return s
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(strings.TrimSuffix(u.Host, ":443"))
	return strings.TrimSuffix(u.String(), "/")
}

// clientTLS trusts the system's certificates and those of a file, and presents
// a client certificate if there is one.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if conf.RootCAs, err = addCertificates(roots, ca); err != nil {
			return nil, err
		}
	}
	if (cert == "") != (key == "") {
		return nil, errors.New("a certificate and its key go together")
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, err
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

func addCertificates(pool *x509.CertPool, file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return pool, nil
}

// secretRef returns a function that reads a secret by its reference each time;
// nil without a reference.
func secretRef(a *session.App, ref string) (func() (string, error), error) {
	if ref == "" {
		return nil, nil
	}
	kind, name, _ := strings.Cut(ref, ":")
	var read func() (string, error)
	switch kind {
	case "env":
		read = func() (string, error) { return a.Env(name), nil }
	case "file":
		read = func() (string, error) {
			raw, err := os.ReadFile(name)
			return strings.TrimSpace(string(raw)), err
		}
	default:
		return nil, errors.New("it is env:NAME or file:PATH, never the secret itself")
	}
	secret, err := read()
	if err == nil && secret == "" {
		err = fmt.Errorf("%s is empty", ref)
	}
	return read, err
}

// A certificate is read again from its files when they have changed.
type certificate struct {
	cert, key string

	mu     sync.Mutex
	loaded *tls.Certificate
	from   [2]fileVersion
}

// A fileVersion identifies the version of a file: it differs after every change, even a change
// back to an older content.
type fileVersion struct {
	at   time.Time
	size int64
}

func versionOf(name string) (v fileVersion) {
	if info, err := os.Stat(name); err == nil {
		v = fileVersion{info.ModTime(), info.Size()}
	}
	return v
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := [2]fileVersion{versionOf(c.cert), versionOf(c.key)}
	if c.loaded != nil && now == c.from {
		return c.loaded, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		if c.loaded != nil {
			return c.loaded, nil // only one of the two files has changed so far
		}
		return nil, err
	}
	c.loaded, c.from = &pair, now
	return c.loaded, nil
}
