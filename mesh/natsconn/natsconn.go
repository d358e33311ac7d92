package natsconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/aeemesh/aeemesh/envelope/cert"
	"github.com/aeemesh/aeemesh/envelope/sign"
)

// Config says how to reach and enter a NATS system, in NATS's own words.
// Files are named, never their contents.
type Config struct {
	URL         string // one or more servers, comma-separated. Default nats://127.0.0.1:4222
	Name        string // shown by the server. Default "aeemesh"
	User        string
	Password    string
	Token       string
	Creds       string // credentials file (JWT and seed)
	NKey        string // nkey seed file
	Cert        string // client certificate file, for mTLS
	Key         string // its private key file
	CA          string // file of certificates to trust besides the system's
	TLSFirst    bool   // handshake before the server's INFO
	InboxPrefix string // default _INBOX

	// SigningKeys sign envelopes: a connection whose user key, of NKey, Creds or an
	// option, is among them is refused with [ErrKeyServesTwice], before the server can
	// ask for a signature.
	SigningKeys []sign.Key

	// Wait is how long the first connection may take, tries included.
	// Default 10 seconds; below 0 waits for ever.
	Wait time.Duration
	// OnStatus hears in one line what happens to the connection.
	OnStatus func(Status)
	// Logger gets the same. Default discards.
	Logger *slog.Logger
	// Options are further options of nats.go, applied last.
	Options []nats.Option
}

// Status is one change of a connection.
type Status struct {
	State string // connected, disconnected, reconnected, closed, error
	URL   string // of the server, without credentials; may be empty
	Err   error  // may be nil
}

// Redial bounds the pause between two attempts to reconnect, which go on for
// ever; a random part keeps a thousand workers from coming back at once.
const (
	redialFirst = 20 * time.Millisecond
	redialMin   = 250 * time.Millisecond
	redialMax   = 5 * time.Second
)

// Connect connects as NATS users expect: it reconnects for ever with jitter,
// keeps what is sent meanwhile (8 MiB), and says what is going on.
func Connect(ctx context.Context, c Config) (*nats.Conn, error) {
	c.URL = cmp.Or(c.URL, nats.DefaultURL)
	c.Wait = cmp.Or(c.Wait, 10*time.Second)
	var at atomic.Pointer[string] // the server of the connection
	opts, err := c.options(&at)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if err := c.apart(opts); err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	if c.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Wait)
		defer cancel()
	}
	var last error // of the attempt before
	for attempt := 0; ; attempt++ {
		conn, err := c.dial(ctx, opts)
		if err == nil {
			server := conn.ConnectedUrlRedacted()
			at.CompareAndSwap(nil, &server) // unless it has reconnected already
			c.tell(Status{State: "connected", URL: server})
			return conn, nil
		}
		if errors.Is(err, errUnanswered) && last != nil {
			err = last // it says more
		}
		if permanent(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("connect to NATS at %s: %w", redacted(c.URL), c.hinted(err))
		}
		c.tell(Status{State: "error", URL: redacted(c.URL), Err: err})
		last = err
		timer := time.NewTimer(redial(attempt))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("connect to NATS at %s: %w", redacted(c.URL), c.hinted(err))
		}
	}
}

// errUnanswered is wrapped by the error of an attempt to connect that ctx ended.
var errUnanswered = errors.New("no server has answered")

// dial makes one attempt to connect, until ctx ends. nats.go knows no context: it looks up the names
// of the servers without a bound, and gives each server two seconds to answer, one after the other. So
// an attempt that ctx ends goes on by itself; if it connects after all, it is closed. A shorter
// [nats.Timeout] would be one of every later attempt to reconnect, too.
func (c Config) dial(ctx context.Context, opts []nats.Option) (*nats.Conn, error) {
	type attempt struct {
		conn *nats.Conn
		err  error
	}
	done := make(chan attempt)
	go func() {
		conn, err := nats.Connect(c.URL, opts...)
		select {
		case done <- attempt{conn, err}:
		case <-ctx.Done():
			if err == nil {
				conn.SetClosedHandler(nil) // the caller knows of no connection
				conn.Close()
			}
		}
	}()
	select {
	case a := <-done:
		return a.conn, a.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("%w: %w in time", nats.ErrNoServers, errUnanswered)
		}
		return nil, fmt.Errorf("%w: %w", errUnanswered, ctx.Err())
	}
}

// redial is the pause before an attempt, counted from 1. The first comes almost at once:
// a worker that merely lost its connection must be back before others take it for dead.
func redial(attempt int) time.Duration {
	if attempt <= 1 {
		return rand.N(redialFirst)
	}
	pause := min(redialMin<<min(attempt-1, 10), redialMax)
	return pause/2 + rand.N(pause/2)
}

// permanent reports errors that another attempt will not mend.
func permanent(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &untrusted) || errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrAccountAuthExpired) || errors.Is(err, nats.ErrNkeysNotSupported) || errors.Is(err, nats.ErrSecureConnRequired) ||
		errors.Is(err, nats.ErrSecureConnWanted) || tooLong(err) || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission)
}

// tooLong reports that the credentials are longer than the server takes, as JWTs with
// many permissions are.
func tooLong(err error) bool { return strings.Contains(err.Error(), "maximum control line exceeded") }

// hinted adds what usually helps.
func (c Config) hinted(err error) error {
	what, hint := cert.Fault(err, "--tls-ca")
	switch {
	case what != "":
		return fmt.Errorf("%w: %s: %s", err, what, hint)
	case !errors.Is(err, nats.ErrNoServers) && c.lapsed(): // a new file is read at the next attempt
		return fmt.Errorf("%w: the client certificate of --tls-cert has expired", err)
	case c.TLSFirst && errors.As(err, new(tls.RecordHeaderError)):
		return fmt.Errorf("%w: the server does not begin with TLS; leave out --tls-first", err)
	case errors.Is(err, nats.ErrTLS) && c.Cert != "":
		return fmt.Errorf("%w: a server that has max_connections already does this, or one that does not trust the certificate of --tls-cert; the server's log says which", err)
	case errors.Is(err, nats.ErrTLS), strings.Contains(err.Error(), "certificate required"):
		return fmt.Errorf("%w: a server that wants a client certificate does this; --tls-cert and --tls-key name one", err)
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("%w: is a server running there? \"aeemesh up\" starts one", err)
	case errors.Is(err, nats.ErrAuthorization):
		if at := c.credsEnd(); !at.IsZero() && time.Now().After(at) {
			return fmt.Errorf("%w: the JWT of --creds has expired, at %s; write a new one into the file", err, at.UTC().Format(time.RFC3339))
		}
		return fmt.Errorf("%w: check the user, token, credentials or context", err)
	case tooLong(err):
		return fmt.Errorf("%w: the user's JWT has more permissions than the server takes by default; use a scoped signing key, whose users' JWTs are short, or set max_control_line: 16KB in the server's configuration", err)
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fmt.Errorf("%w: use a tls:// URL, and --tls-ca if its certificate is your own", err)
	}
	return err
}

// lapsed reports whether the client certificate has expired. The server's error says so, too, but
// that error is lost if the server closes the connection before the client has read it.
func (c Config) lapsed() bool {
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	return err == nil && time.Now().After(pair.Leaf.NotAfter)
}

// credsEnd returns when the JWT of the credentials file expires; zero if it has none, or does not.
// The server tells only clients that are connected why it refuses them.
func (c Config) credsEnd() time.Time {
	text, err := os.ReadFile(c.Creds)
	if err != nil {
		return time.Time{}
	}
	token, err := nkeys.ParseDecoratedJWT(text)
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires int64 `json:"exp"`
	}
	if err := readJWT(token, &claims); err != nil || claims.Expires == 0 {
		return time.Time{}
	}
	return time.Unix(claims.Expires, 0)
}

func (c Config) tell(s Status) {
	if c.OnStatus != nil {
		c.OnStatus(s)
	}
	if c.Logger == nil {
		return
	}
	attrs := []any{"state", s.State, "url", s.URL}
	if s.Err != nil {
		c.Logger.Warn("nats connection", append(attrs, "err", s.Err)...)
		return
	}
	c.Logger.Info("nats connection", attrs...)
}

func (c Config) options(at *atomic.Pointer[string]) ([]nats.Option, error) {
	name := cmp.Or(c.Name, "aeemesh")
	opts := []nats.Option{
		nats.Name(name),
		nats.MaxReconnects(-1),
		nats.CustomReconnectDelay(redial),
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(20 * time.Second),
		nats.DisconnectErrHandler(func(conn *nats.Conn, err error) {
			if !conn.IsClosed() {
				server := redacted(c.URL)
				if was := at.Load(); was != nil {
					server = cmp.Or(*was, server)
				}
				c.tell(Status{State: "disconnected", URL: server, Err: err})
			}
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			server := conn.ConnectedUrlRedacted() // "" if it is lost again
			at.Store(&server)
			c.tell(Status{State: "reconnected", URL: server})
		}),
		nats.ClosedHandler(func(conn *nats.Conn) {
			c.tell(Status{State: "closed", Err: conn.LastError()})
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub != nil {
				err = fmt.Errorf("%s: %w", sub.Subject, err)
			}
			c.tell(Status{State: "error", Err: err})
		}),
	}
	bad := checkURLs(c.URL)
	if (c.Cert == "") != (c.Key == "") {
		bad = append(bad, errors.New("a client certificate and its key go together: give both"))
	}
	if n := count(c.User != "" || c.Password != "", c.Token != "", c.Creds != "", c.NKey != ""); n > 1 {
		bad = append(bad, errors.New("give one of user and password, token, creds or nkey, not several"))
	}
	if c.User != "" || c.Password != "" {
		opts = append(opts, nats.UserInfo(c.User, c.Password))
	}
	if c.Token != "" {
		opts = append(opts, nats.Token(c.Token))
	}
	if c.Creds != "" {
		if err := checkCreds(c.Creds); err != nil {
			bad = append(bad, fmt.Errorf("creds: %w", err))
		}
		opts = append(opts, nats.UserCredentials(c.Creds))
	}
	if c.NKey != "" {
		opt, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			bad = append(bad, fmt.Errorf("nkey: %w", err))
		} else {
			opts = append(opts, opt)
		}
	}
	if c.CA != "" {
		if pem, err := os.ReadFile(c.CA); err != nil {
			bad = append(bad, fmt.Errorf("CA: %w", err))
		} else if !x509.NewCertPool().AppendCertsFromPEM(pem) {
			bad = append(bad, fmt.Errorf("CA: %s has no certificate in PEM", c.CA))
		} else {
			opts = append(opts, nats.RootCAs(c.CA))
		}
	}
	if c.Cert != "" && c.Key != "" {
		if _, err := tls.LoadX509KeyPair(c.Cert, c.Key); err != nil {
			bad = append(bad, fmt.Errorf("client certificate: %w", err))
		} else {
			opts = append(opts, nats.ClientCert(c.Cert, c.Key))
		}
	}
	if c.TLSFirst {
		opts = append(opts, nats.TLSHandshakeFirst())
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(strings.TrimSuffix(c.InboxPrefix, ".")))
	}
	return append(opts, c.Options...), errors.Join(bad...)
}

// CheckURLs reports all that is wrong with a [Config].URL.
func CheckURLs(urls string) error { return errors.Join(checkURLs(urls)...) }

// checkURLs reports URLs that cannot be connected to: nats.go accepts any scheme, and uses this
// machine if the host is missing. The texts do not quote the URLs, which may contain passwords.
func checkURLs(urls string) (bad []error) {
	var web, plain bool // nats.go refuses a list of both, but only when it connects
	for i, text := range strings.Split(urls, ",") {
		if text = strings.TrimSpace(text); !strings.Contains(text, "://") {
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		port := 0
		if err == nil && u.Port() != "" {
			port, err = strconv.Atoi(u.Port())
		}
		switch {
		case err != nil && strings.Contains(text, "@"):
			bad = append(bad, fmt.Errorf("server %d: it is not nats://USER:PASSWORD@HOST:PORT; write special characters of a password as %%XX (@ as %%40), or give it with --password", i+1))
		case err != nil, port > 65535, u.Hostname() == "", u.Port() != "" && port == 0:
			bad = append(bad, fmt.Errorf("server %d: it is not nats://HOST:PORT", i+1))
		case !slices.Contains([]string{"nats", "tcp", "tls", "ws", "wss"}, strings.ToLower(u.Scheme)):
			bad = append(bad, fmt.Errorf("server %d: %.20q is none of nats, tls, ws and wss", i+1, u.Scheme))
		case strings.HasPrefix(strings.ToLower(u.Scheme), "ws"):
			web = true
		default:
			plain = true
		}
	}
	if web && plain {
		bad = append(bad, errors.New("ws and wss cannot be in one list with other servers"))
	}
	return bad
}

// checkCreds reports why a credentials file cannot be used. nats.go reads it for
// each connection.
func checkCreds(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := nkeys.ParseDecoratedNKey(text); err != nil {
		return fmt.Errorf("%s has no user's JWT and seed", file)
	}
	return nil
}

func count(conditions ...bool) (n int) {
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

// redacted takes credentials out of server URLs.
func redacted(urls string) string {
	parts := strings.Split(urls, ",")
	for i, u := range parts {
		if scheme, rest, ok := strings.Cut(u, "://"); ok {
			if at := strings.LastIndex(rest, "@"); at >= 0 {
				parts[i] = scheme + "://" + rest[at+1:]
			}
		} else if at := strings.LastIndex(u, "@"); at >= 0 {
			parts[i] = u[at+1:]
		}
	}
	return strings.Join(parts, ",")
}
