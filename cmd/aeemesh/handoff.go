package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/agents/worker"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/definitions"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/health"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/runs"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/telemetry"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/sorted"
	"github.com/aeemesh/aeemesh/mesh/handoff"
	"github.com/aeemesh/aeemesh/state"
)

func handoffCommand(a *app) *cobra.Command {
	return a.Holder(&cobra.Command{
		Use:   "handoff",
		Short: "Receive runs from other platforms",
		Long: `Another platform can transfer its runs to the agents of this mesh while they
run: over HTTPS, in the streaming handoff format of AAIF. docs/migration.md has
the protocol.`,
		Example: `  aeemesh handoff serve --listen :7443 --cert tls.crt --key tls.key --platform paris
  aeemesh handoff list`,
	}, handoffServeCommand(a), handoffListCommand(a))
}

type handoffFlags struct {
	listen, cert, key, clientCA, bearer string
	agents                              []string
	vitals                              vitals
}

func handoffServeCommand(a *app) *cobra.Command {
	f := &handoffFlags{}
	c := session.Connects(&cobra.Command{
		Use:   "serve --cert FILE --key FILE",
		Short: "Receive runs over HTTPS",
		Long: `Receives runs of other platforms over TLS, verifies them, and gives them to the
workers of their agents. A run is taken in when its token is signed with a
key that is trusted here ("aeemesh keys trust") and may speak for the agent, is
for this platform, unexpired and unused, and when the agent is served here.
Plaintext is refused. Several of these may run at once, on one mesh.

The agent of an agent_id is the one that --agent names, else the registered one
("aeemesh agents definitions"), else the one that workers serve.

Each phase is recorded; "aeemesh handoff list" shows them. A run that its
source does not release within 20 minutes is refused. At most 1,000 handoffs of
one issuer that were not accepted are kept, and --per-issuer MiB in all.`,
		Example: `  aeemesh handoff serve --listen :7443 --cert tls.crt --key tls.key --platform paris
  aeemesh handoff serve --cert tls.crt --key tls.key --client-ca berlin.crt --bearer file:/run/secrets/handoff`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error { return serveHandoff(a, ctx, cmd, f) }),
	})
	flags := c.Flags()
	flags.StringVar(&f.listen, "listen", ":7443", "`address` to listen on")
	flags.StringVar(&f.cert, "cert", "", "certificate `file`, PEM; read again when it changes")
	flags.StringVar(&f.key, "key", "", "its private key `file`")
	flags.StringVar(&f.clientCA, "client-ca", "", "accept only clients with a certificate of this `file`'s authorities")
	flags.StringVar(&f.bearer, "bearer", "", "`env:NAME or file:PATH` of a token that clients must send")
	flags.IntVar(&a.PerIssuer, "per-issuer", handoff.DefaultShare>>20, "bound of one issuer's stored handoffs, in `MiB`; beyond it the next is refused")
	flags.StringArrayVar(&f.agents, "agent", nil, "AAIF document `FILE` of an agent that is known here although no worker serves it now; repeatable")
	f.vitals.add(flags)
	runs.AddReceiverFlags(a.App, c)
	return c
}

func serveHandoff(a *app, ctx context.Context, cmd *cobra.Command, f *handoffFlags) error {
	if f.cert == "" || f.key == "" {
		return outcome.Hinted(outcome.Usagef(cmd, "--cert and --key are needed: runs come over TLS only"), "For a try: openssl req -x509 -newkey ed25519 -nodes -keyout tls.key -out tls.crt -days 30 -subj /CN=localhost -addext subjectAltName=DNS:localhost")
	}
	cert := &certificate{cert: f.cert, key: f.key}
	if _, err := cert.get(nil); err != nil {
		return outcome.Usagef(cmd, "--cert, --key: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: cert.get, NextProtos: []string{"h2", "http/1.1"}}
	if f.clientCA != "" {
		var err error
		if conf.ClientCAs, err = addCertificates(x509.NewCertPool(), f.clientCA); err != nil {
			return outcome.Usagef(cmd, "--client-ca: %w", err)
		}
		conf.ClientAuth = tls.RequireAndVerifyClientCert
	}
	bearer, err := secretRef(a.App, f.bearer)
	if err != nil {
		return outcome.Usagef(cmd, "--bearer: %w", err)
	}
	if a.PerIssuer <= 0 {
		return outcome.Usagef(cmd, "--per-issuer must be above 0")
	}
	known, err := knownAgents(a, f.agents)
	if err != nil {
		return err
	}
	a.BeginLog(cmd)
	if err := f.vitals.begin(a.App); err != nil {
		return err
	}
	defer f.vitals.end()
	tel, err := telemetry.Start(ctx, a.App, f.vitals.readers()...)
	if err != nil {
		return err
	}
	defer tel.Stop()
	s, err := a.Open(ctx, cmd, session.Options{Long: true, Signed: true, Entity: "service.handoff", Tel: tel.OfNode(), Config: runs.MovingClient(a.App, cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	if len(s.Verifier.Ring.List()) == 0 && !a.Sign.Shared {
		a.Term.Warn("no key is trusted here, so every run will be refused; \"aeemesh keys trust FILE\" trusts a source's")
	}
	r, err := runs.ReceiverOf(a.App, s, known)
	if err != nil {
		return err
	}
	if _, err := r.List(ctx); err != nil { // the bucket must exist
		return session.LaneError(err)
	}
	keeper := a.NewKeyKeeper(s.Verifier.Ring)
	keeper.Refresh(ctx)
	go keeper.Keep(ctx)
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return err
	}
	f.vitals.look(func() []health.Check {
		checks := []health.Check{health.Check(worker.CheckConn(s.Conn)), {Name: "https", OK: ctx.Err() == nil, Why: stoppingWord(ctx)}}
		return append(checks, keyChecks(keeper)...)
	})
	f.vitals.serves(listener.Addr().String())
	defer context.AfterFunc(ctx, func() { f.vitals.ends(10 * time.Second) })()
	return serveHTTPS(a, ctx, r, tls.NewListener(listener, conf), handoff.HandlerOptions{Bearer: bearer, Version: version()})
}

// stoppingWord says why something that was started with ctx is not ready.
func stoppingWord(ctx context.Context) string {
	if ctx.Err() != nil {
		return "shutting down"
	}
	return ""
}

// serveHTTPS serves until ctx ends, and meanwhile cleans up abandoned handoffs.
func serveHTTPS(a *app, ctx context.Context, r *handoff.Receiver, listener net.Listener, opts handoff.HandlerOptions) error {
	var end context.CancelFunc
	opts.Ending, end = context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	server := &http.Server{
		Handler:           handoff.Handler(r, opts),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		ErrorLog:          log.New(logWriter{a.Log}, "", 0),
	}
	a.Term.Logs.Store(term.LogServing)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	at := "https://" + listener.Addr().String()
	if a.Term.JSON {
		if err := a.Term.Object(map[string]string{"platform": a.Platform, "url": at}); err != nil {
			return err
		}
	} else {
		a.Term.Good("receiving runs for %s on %s", a.Platform, at)
	}
	collect := time.NewTicker(30 * time.Second)
	defer collect.Stop()
	for {
		select {
		case err := <-served:
			return err
		case <-collect.C:
			if refused, started, err := r.Collect(ctx); err != nil && ctx.Err() == nil {
				a.Log.Warn("handoffs left behind", "err", err)
			} else if refused+started > 0 {
				a.Log.Info("handoffs left behind", "refused", refused, "started", started)
			}
		case <-ctx.Done():
			a.Term.Say("stopping: streams that have begun may end")
			ending, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer done()
			end() // another receiver takes up the pending replies
			err := server.Shutdown(ending)
			if errors.Is(err, context.DeadlineExceeded) {
				err = server.Close()
			}
			<-served
			return err
		}
	}
}

// logWriter receives the log of net/http, which is about clients' connections.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Info("https", "message", term.OneLine(string(b)))
	return len(b), nil
}

// knownAgents maps the agent_ids of documents to entities.
func knownAgents(a *app, files []string) (map[string]string, error) {
	known := map[string]string{}
	for _, name := range files {
		doc, err := definitions.Read(a.App, name)
		if err != nil {
			return nil, err
		}
		def := doc.Definition()
		entity, err := aaif.EntityName(def.Agent.Name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if k := def.Agent.Compliance; k != nil && k.PIIHandling == aaif.PIIEncrypt && len(a.StateKeys) == 0 {
			return nil, outcome.Hinted(fmt.Errorf("%s: compliance.pii_handling encrypt: its runs would be stored in the clear", name), "Give the key with --state-key env:NAME or file:PATH.")
		}
		known[state.New(entity, "", def.AgentID).Doc.AgentID] = entity
	}
	return known, nil
}

func handoffListCommand(a *app) *cobra.Command {
	c := session.Connects(&cobra.Command{
		Use:   "list",
		Short: "List the runs that were transferred to here",
		Long: `Lists the handoffs of the last 30 days, newest first, with the phase that each
has reached: receiving, staged (it waits for its source to release it),
accepted, running (its workers have it), or refused. Refused ones are kept for
20 to 40 minutes. The status is that of the run here, once its workers have it.`,
		Example: `  aeemesh handoff list
  aeemesh handoff list --json | jq 'select(.phase == "refused")'`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error { return listHandoffs(a, ctx, cmd) }),
	})
	runs.AddReceiverFlags(a.App, c)
	return c
}

func listHandoffs(a *app, ctx context.Context, cmd *cobra.Command) error {
	s, err := a.Open(ctx, cmd, session.Options{Signed: true, Config: runs.MovingClient(a.App, cmd)})
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := runs.ReceiverOf(a.App, s, nil)
	if err != nil {
		return err
	}
	all, err := r.List(ctx)
	if err != nil {
		return session.LaneError(err)
	}
	sorted.By(all, func(x, y handoff.Status) int { return y.Since.Compare(x.Since) })
	if len(all) == 0 && !a.Term.JSON {
		a.Term.Say("no run was transferred to here")
		return nil
	}
	return term.List(a.Term, []string{"handoff", "phase", "from", "agent", "run", "status", "since", "why"}, all, func(h handoff.Status) []string {
		return []string{runs.ShortRun(h.Handoff), string(h.Phase), h.Source, h.Entity, runs.ShortRun(h.Run), string(h.Status), term.Ago(h.Since), h.Reason}
	})
}
