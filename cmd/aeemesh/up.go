package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/topology"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsconn"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

// upFlags are the flags of "up".
type upFlags struct {
	store, host, config, sync, portsFile string
	port, websocket, monitor             int
	origins                              []string
	noStreams                            bool
}

func upCommand(a *session.App) *cobra.Command {
	f := &upFlags{}
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a NATS server with JetStream and the mesh's streams",
		Long: `Runs a NATS server in this process, with JetStream and the mesh's streams and
buckets, until it is interrupted or sent SIGTERM or SIGHUP. It is a real
nats-server: every NATS client can use it. For a cluster run nats-server itself;
aeemesh works with any.
JetStream is always on, even where the --config file turns it off. Where that
file asks for credentials, the streams are made with --user and --password,
--token, --creds or --nkey.

With --websocket, programs can connect over websockets. Pages in a browser can
where --websocket-origin names their origin: a page that you happen to visit
must not use a server without a password.

What has been stored survives the death of the process. To survive the crash of
the machine as well, --sync always waits for the disk at every message.`,
		Example: `  aeemesh up
  aeemesh up --port 4333 --store ./data
  aeemesh up --websocket 8080 --websocket-origin https://app.example  # its pages can connect too
  aeemesh up --sync always               # a stored message is on the disk

  # the same with the NATS server:
  nats-server -js -sd ./data`,
		Args: outcome.Arguments(),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, _ []string) error { return runServer(a, ctx, cmd, f) }),
	}
	flags := c.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.store, "store", "", "`directory` for what is stored (default aeemesh/jetstream in the XDG data directory)")
	flags.StringVar(&f.host, "host", "", "address to listen on (default 127.0.0.1)")
	flags.IntVar(&f.port, "port", natsd.DefaultPort, "port for clients; 0 takes a free one")
	flags.IntVar(&f.websocket, "websocket", 0, "`port` for websocket clients, without TLS; 0 takes a free one (default none)")
	flags.StringArrayVar(&f.origins, "websocket-origin", nil, "`origin` such as https://app.example whose pages may use --websocket, or * for all; repeatable (default only pages of the websocket's own host and port)")
	flags.IntVar(&f.monitor, "monitor", 0, "`port` for nats-server's HTTP monitoring; 0 takes a free one (default none)")
	flags.StringVar(&f.sync, "sync", "2m", "when stored messages reach the disk: always, or a `duration`")
	flags.StringVar(&f.config, "config", "", "nats-server configuration `file`; the flags above win over it")
	flags.StringVar(&f.portsFile, "ports-file", "", "write the URLs as JSON into this `file` once the server is ready")
	flags.BoolVar(&f.noStreams, "no-streams", false, "do not create the mesh's streams and buckets")
	session.BindEnv(flags, "store", "AEEMESH_STORE")
	return c
}

func runServer(a *session.App, ctx context.Context, cmd *cobra.Command, f *upFlags) error {
	cfg, err := serverConfig(a, cmd, f)
	if err != nil {
		return err
	}
	srv, err := natsd.New(cfg)
	if err != nil {
		return &outcome.UsageError{Err: err, Cmd: cmd}
	}
	a.BeginLog(cmd)
	err = srv.Start(ctx)
	if errors.Is(err, natsd.ErrStoreLocked) {
		err = outcome.Hinted(err, "Another server runs on this store. Give this one --store DIR of its own, or stop the other.")
	}
	if err != nil {
		return err
	}
	defer srv.Close()
	if !f.noStreams {
		applyStreams(a, ctx, cmd, srv)
	}
	if err := announceServer(a, srv, f); err != nil {
		return err
	}
	var p vitals // nats-server's own health checks are at --monitor
	if err := p.begin(a); err != nil {
		return err
	}
	defer p.end()
	p.serves(srv.ClientURL())
	defer context.AfterFunc(ctx, func() { p.ends(0) })()
	a.Term.Logs.Store(term.LogServing)
	<-ctx.Done()
	a.Term.Say("stopping the server")
	return nil
}

func serverConfig(a *session.App, cmd *cobra.Command, f *upFlags) (natsd.Config, error) {
	cfg := natsd.Config{
		ConfigFile: f.config, Host: f.host, JetStream: true, StoreDir: f.store, Logger: a.Log,
		MonitorPort: f.monitor,
	}
	if cmd.Flags().Changed("monitor") && f.monitor == 0 {
		cfg.MonitorPort = natsd.RandomPort
	}
	for _, p := range []struct {
		flag string
		port int
	}{{"port", f.port}, {"websocket", f.websocket}, {"monitor", f.monitor}} {
		if p.port < 0 || p.port > 65535 {
			return cfg, outcome.Usagef(cmd, "--%s %d: a port is from 0 to 65535", p.flag, p.port)
		}
	}
	switch {
	case f.port == 0:
		cfg.Port = natsd.RandomPort
	case f.config == "" || cmd.Flags().Changed("port"):
		cfg.Port = f.port
	}
	if cmd.Flags().Changed("websocket") {
		cfg.Websocket = &natsd.Websocket{Port: f.websocket, NoTLS: true, AllowedOrigins: f.origins}
		if f.websocket == 0 {
			cfg.Websocket.Port = natsd.RandomPort
		}
	} else if len(f.origins) > 0 {
		return cfg, outcome.Usagef(cmd, "--websocket-origin needs --websocket")
	}
	if f.sync == "always" {
		cfg.SyncAlways = true
	} else {
		d, err := time.ParseDuration(f.sync)
		if err != nil || d <= 0 {
			return cfg, outcome.Usagef(cmd, "--sync %q: it is \"always\" or a duration such as 30s", f.sync)
		}
		if f.config == "" || cmd.Flags().Changed("sync") {
			cfg.SyncInterval = d
		}
	}
	if f.store == "" && f.config == "" {
		if a.Env.DataHome() == "" {
			return cfg, outcome.Usagef(cmd, "there is no home directory to store anything in: give --store DIR")
		}
		cfg.StoreDir = filepath.Join(a.Env.DataHome(), "aeemesh", "jetstream")
	}
	return cfg, nil
}

// applyStreams makes the mesh's streams. If the server's configuration refuses
// this process, the server runs nevertheless.
func applyStreams(a *session.App, ctx context.Context, cmd *cobra.Command, srv *natsd.Server) {
	report, err := func() ([]jetstream.Change, error) {
		m, err := a.Subjects()
		if err != nil {
			return nil, err
		}
		c := natsconn.Config{Name: "aeemesh up", Wait: a.Conn.Wait(), Options: []nats.Option{srv.InProcess()}}
		c.InboxPrefix = cmp.Or(a.Conn.InboxPrefix, perms.InboxPrefix(a.DefaultFrom()))
		a.Credentials(cmd, &c)
		conn, err := natsconn.Connect(ctx, c)
		if err != nil { // that error names an address, which an in-process connection does not have
			a.Log.Debug("no connection within the process", "err", err)
			return nil, errors.New("the server's configuration refuses the connection of this process")
		}
		defer conn.Close()
		js, err := a.JetStream(conn)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		return jetstream.Apply(ctx, js, jetstream.Options{Map: m})
	}()
	for _, c := range report {
		if c.Action != jetstream.ActionNone {
			a.Term.Progress("%s", c)
		}
	}
	if said := topology.Migrated(report); said != "" && err == nil {
		a.Term.Say("%s", said)
	}
	if err != nil {
		a.Term.Warn("the mesh's streams are not in place: %s", outcome.Text(err))
		switch {
		case errors.Is(err, jetstream.ErrNoRoom), errors.Is(err, jetstream.ErrElsewhere):
			a.Term.Hint(outcome.Hint(topology.RoomHint(err)))
			return
		case errors.Is(err, jetstream.ErrDenied):
			a.Term.Hint(outcome.Hint(err))
			return
		}
		a.Term.Hint("Where --config asks for credentials, give them: --user, --token, --creds or --nkey.")
	}
}

// serverURLs is the output of "up" when the server is ready.
type serverURLs struct {
	URL       string `json:"url"`
	Websocket string `json:"websocket,omitempty"`
	Monitor   string `json:"monitor,omitempty"`
	Store     string `json:"store"`
	Sync      string `json:"sync"`
}

func announceServer(a *session.App, srv *natsd.Server, f *upFlags) error {
	always, interval := srv.SyncClass()
	urls := serverURLs{URL: srv.ClientURL(), Websocket: srv.WebsocketURL(), Monitor: srv.MonitorURL(), Store: srv.StoreDir(), Sync: interval.String()}
	if always {
		urls.Sync = "always"
	}
	if a.Term.JSON {
		if err := a.Term.Object(urls); err != nil {
			return err
		}
	} else {
		a.Term.Line("%s", urls.URL)
		if urls.Websocket != "" {
			a.Term.Line("%s", urls.Websocket)
		}
		if urls.Monitor != "" {
			a.Term.Line("%s", urls.Monitor)
		}
	}
	a.Term.Good("the NATS server is ready; it keeps what is stored in %s", urls.Store)
	if f.config != "" {
		a.Term.Say("JetStream is on, whatever %s says about it, with the store directory %s", f.config, urls.Store)
	}
	if always {
		a.Term.Note("a stored message is on the disk when it is acknowledged")
	} else {
		a.Term.Note("stored messages survive this process; a crash of the machine can lose the last %s, with --sync always nothing", urls.Sync)
	}
	where := ""
	if urls.URL != nats.DefaultURL {
		where = "--nats " + urls.URL + " "
	}
	a.Term.Steps("Next, in another terminal:",
		"aeemesh "+where+"worker agent.yaml",
		"aeemesh "+where+"watch",
		"nats -s "+urls.URL+" micro ls",
	)
	if f.portsFile == "" {
		return nil
	}
	return writeWhole(f.portsFile, urls)
}

// writeWhole writes v as JSON; a reader finds the complete file or none.
func writeWhole(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".aeemesh-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = tmp.Write(append(raw, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
