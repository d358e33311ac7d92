package definitions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/outbound"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
)

// reachFlags say to which hosts a fetched document may be redirected, and which
// hosts may have private addresses.
type reachFlags struct{ allow, private []string }

func (f *reachFlags) add(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.allow, "allow", nil, "further `HOST` that a URL may be redirected to; repeatable")
	flags.StringArrayVar(&f.private, "allow-private", nil, "`ADDRESS`, block or host in private space that may be connected to; repeatable")
}

// fetchTimeout is the timeout of fetching one document.
const fetchTimeout = 30 * time.Second

// readSource reads a document from a file, standard input or a URL. Naming a
// URL permits its host; other hosts must be permitted by flags.
func readSource(a *session.App, ctx context.Context, cmd *cobra.Command, f *reachFlags, name string) ([]byte, error) {
	if !isURL(name) {
		return a.ReadDocument(name, aaif.DefaultMaxBytes+1)
	}
	u, err := url.Parse(name)
	if err != nil || u.User != nil {
		return nil, outcome.Usagef(cmd, "%q is no URL, or has a password in it", term.Printable(name))
	}
	policy, err := outbound.New(outbound.Config{Allow: append([]string{u.Scheme + "://" + u.Host}, f.allow...), Private: f.private})
	if err != nil {
		return nil, outcome.Usagef(cmd, "%s: %w", term.Printable(name), err)
	}
	defer policy.Close()
	if u, err = policy.Check(name); err != nil {
		return nil, err
	}
	client, err := policy.Client(outbound.Options{Timeout: fetchTimeout, MaxResponse: aaif.DefaultMaxBytes})
	if err != nil {
		return nil, err
	}
	answer, err := outbound.Access{Policy: policy}.Call(ctx, client, outbound.Request{Method: http.MethodGet, URL: u,
		Header: http.Header{"Accept": {"application/json, application/yaml, application/cbor, text/*;q=0.5, */*;q=0.1"}}})
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", u.Redacted(), err)
	}
	return answer.Body, nil
}

// Read reads the file of an agent definition. For a document of another kind the error
// names its kind, and the command that accepts it.
func Read(a *session.App, name string) (*aaif.Document, error) {
	data, err := a.ReadDocument(name, aaif.DefaultMaxBytes+1)
	if err != nil {
		return nil, err
	}
	doc, err := aaif.Parse(data, aaif.Options{Name: name, Kind: aaif.KindAgent})
	if err != nil {
		return nil, outcome.Hinted(err, "%s", Hint(name, err))
	}
	return doc, nil
}

// Hint says what to do about a file that is no agent definition.
func Hint(name string, err error) string {
	var refused *aaif.Error
	if errors.As(err, &refused) {
		switch refused.Kind {
		case aaif.KindState:
			return fmt.Sprintf("\"aeemesh runs import %s\" takes it, where its agent is served.", name)
		case aaif.KindManifest:
			return fmt.Sprintf("It says what a platform offers: \"aeemesh validate AGENT... %s\" holds agents against it.", name)
		case aaif.KindReport:
			return fmt.Sprintf("\"aeemesh validate %s\" checks it; there is nothing to run.", name)
		}
	}
	return fmt.Sprintf("\"aeemesh validate %s\" says more.", name)
}
