package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/aeemesh/aeemesh/mesh"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func TestMain(m *testing.M) {
	testscript.Main(natstest.AtOnce(m, 12), map[string]func(){"aeemesh": main, "mcpserver": mcpServer, "stepwise": stepwise})
}

// TestScripts runs the program as its users do, against real servers. -update
// writes what cmp compares into the scripts.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGHUP, os.Interrupt} { // ignored under nohup, and in the background of a shell script; what is started from here is to hear them
		if signal.Ignored(s) {
			ignored := make(chan os.Signal, 1)
			signal.Notify(ignored, s)
			t.Cleanup(func() { signal.Stop(ignored) })
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup:               scriptSetup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"server": cmdServer, "exits": cmdExits, "waitagent": cmdWaitAgent, "waitsub": cmdWaitSub, "waitfile": cmdWaitFile,
			"publish": cmdPublish, "retry": cmdRetry, "field": cmdField, "keep": cmdKeep, "url": cmdURL, "natsurl": cmdNatsURL, "fieldenv": cmdFieldEnv, "jsonlines": cmdJSONLines, "stream": cmdStream,
			"collector": cmdCollector, "api": cmdAPI, "restart": cmdRestart, "stopserver": cmdStopServer,
		},
	})
}

// scriptSetup gives a script an environment of its own.
func scriptSetup(env *testscript.Env) error {
	root, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "NATS_") || strings.HasPrefix(name, "AEEMESH_") || strings.HasPrefix(name, "OTEL_") {
			env.Setenv(name, "")
		}
	}
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	env.Setenv("XDG_CONFIG_HOME", filepath.Join(env.WorkDir, "config"))
	env.Setenv("XDG_DATA_HOME", filepath.Join(env.WorkDir, "data"))
	env.Setenv("USER", "ada")
	env.Setenv("GOGC", os.Getenv("GOGC")) // as natstest.AtOnce has set it
	env.Setenv("ROOT", root)
	env.Values[lastServer{}] = &scriptServer{}
	return nil
}

// patience is how long the scripts wait for anything.
const patience = time.Minute

// How long the pauses of commands that wait grow. A retry costs a process; to ask for
// workers, or a server for its connections, costs half a megabyte and most of a millisecond.
const pollPause, askPause, retryPause = 10 * time.Millisecond, 80 * time.Millisecond, 320 * time.Millisecond

// poll tries until f returns nil. It pauses for most at most, at first for less.
func poll(ts *testscript.TestScript, what string, most time.Duration, f func() error) {
	deadline := time.Now().Add(patience)
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, most) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s: %v", what, err)
		}
		<-time.After(wait)
	}
}

// server [jetstream|streams|FILE.conf] [store=DIR]: starts a server for the script, with
// JetStream, or with the mesh's streams too, and sets NATS_URL and MONITOR_URL.
func cmdServer(ts *testscript.TestScript, _ bool, args []string) {
	cfg := natsd.Config{Port: natsd.RandomPort, MonitorPort: natsd.RandomPort}
	streams, store := false, "store"
	for _, arg := range args {
		switch {
		case arg == "streams", arg == "jetstream":
			streams = arg == "streams"
			cfg.JetStream = true
		case strings.HasPrefix(arg, "store="):
			store = strings.TrimPrefix(arg, "store=")
		case strings.HasSuffix(arg, ".conf"):
			cfg.ConfigFile, cfg.StoreDir = ts.MkAbs(arg), ts.MkAbs(strings.TrimSuffix(arg, ".conf")) // never in the package's folder
		default:
			ts.Fatalf("server: unknown argument %q", arg)
		}
	}
	if cfg.JetStream {
		cfg.StoreDir = scriptStore(ts, store)
	}
	startServer(ts, cfg)
	if streams {
		ts.Check(applyTopology(ts.Value(lastServer{}).(*scriptServer).Server))
	}
}

// scriptStore is a server's store in a script's folder, which may be a link to where a
// file system in memory is.
func scriptStore(ts *testscript.TestScript, name string) string {
	path := ts.MkAbs(name)
	root := natstest.StoreRoot()
	if _, err := os.Lstat(path); root == "" || err == nil {
		return path
	}
	dir, err := os.MkdirTemp(root, "aeemesh-test-")
	ts.Check(err)
	ts.Defer(func() { os.RemoveAll(dir) })
	ts.Check(os.Symlink(dir, path))
	return path
}

// scriptServer is the server that a script started last.
type scriptServer struct {
	*natsd.Server
	cfg natsd.Config
}

type lastServer struct{}

// startServer starts a server, whose log goes to the file server.log. No other test gets its port
// while it is stopped: a worker that waits for it would find that test's server.
func startServer(ts *testscript.TestScript, cfg natsd.Config) {
	if cfg.Port == natsd.RandomPort {
		port, release, err := natsd.HoldPort()
		ts.Check(err)
		ts.Defer(release)
		cfg.Port = port
	}
	log, err := os.OpenFile(ts.MkAbs("server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	ts.Check(err)
	ts.Defer(func() { log.Close() })
	cfg.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	srv, err := natsd.New(cfg)
	ts.Check(err)
	ts.Check(srv.Start(context.Background()))
	ts.Defer(srv.Close)
	ts.Setenv("NATS_URL", srv.ClientURL())
	ts.Setenv("MONITOR_URL", srv.MonitorURL())
	*ts.Value(lastServer{}).(*scriptServer) = scriptServer{srv, cfg}
}

// stopserver: stops the last server.
func cmdStopServer(ts *testscript.TestScript, _ bool, args []string) {
	ts.Value(lastServer{}).(*scriptServer).Close()
}

// restart: stops the last server, and starts it again on its port, over its store.
func cmdRestart(ts *testscript.TestScript, _ bool, args []string) {
	last := ts.Value(lastServer{}).(*scriptServer)
	at, err := url.Parse(last.ClientURL())
	ts.Check(err)
	last.cfg.Port, err = strconv.Atoi(at.Port())
	ts.Check(err)
	last.Close()
	startServer(ts, last.cfg)
}

// jsonlines FILE: each of its lines is a JSON object, and there is one.
func cmdJSONLines(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	if text == "" {
		ts.Fatalf("%s is empty", args[0])
	}
	for line := range strings.Lines(text) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			ts.Fatalf("no JSON object: %s", line)
		}
	}
}

// exits CODE COMMAND…: the command must end with this status.
func cmdExits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var status *exec.ExitError
	if errors.As(err, &status) {
		got = status.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// retry [!] exec COMMAND…: until it succeeds, or with ! until it fails.
func cmdRetry(ts *testscript.TestScript, _ bool, args []string) {
	fails := args[0] == "!"
	if fails {
		args = args[1:]
	}
	poll(ts, "retry "+strings.Join(args[1:], " "), retryPause, func() error {
		err := ts.Exec(args[1], args[2:]...)
		if fails && err == nil {
			return errors.New("it succeeds")
		} else if fails {
			return nil
		}
		return err
	})
}

func connectFor(ts *testscript.TestScript) *nats.Conn {
	conn, err := nats.Connect(ts.Getenv("NATS_URL"), nats.UserInfo(ts.Getenv("NATS_USER"), ts.Getenv("NATS_PASSWORD")))
	ts.Check(err)
	return conn
}

// waitagent ENTITY [N]: waits until N workers answer for it.
func cmdWaitAgent(ts *testscript.TestScript, _ bool, args []string) {
	want := 1
	if len(args) == 2 {
		want, _ = strconv.Atoi(args[1])
	}
	conn := connectFor(ts)
	defer conn.Close()
	node, err := mesh.New(conn, mesh.Config{Prefix: ts.Getenv("AEEMESH_PREFIX")})
	ts.Check(err)
	poll(ts, "wait for "+args[0], askPause, func() error {
		found, err := node.Discover(context.Background(), args[0], 300*time.Millisecond)
		if err == nil && len(found) < want {
			err = fmt.Errorf("%d workers answer", len(found))
		}
		return err
	})
}

// waitsub SUBJECT [N]: waits until N connections listen to exactly this subject; with 0, until none
// does. The server may list the connection of a process that has ended for a moment.
func cmdWaitSub(ts *testscript.TestScript, _ bool, args []string) {
	want := 1
	if len(args) == 2 {
		want, _ = strconv.Atoi(args[1])
	}
	poll(ts, "wait for a subscription to "+args[0], askPause, func() error {
		res, err := http.Get(ts.Getenv("MONITOR_URL") + "/connz?subs=1")
		if err != nil {
			return err
		}
		defer res.Body.Close()
		var z struct {
			Connections []struct {
				Subscriptions []string `json:"subscriptions_list"`
			} `json:"connections"`
		}
		if err := json.NewDecoder(res.Body).Decode(&z); err != nil {
			return err
		}
		found := 0
		for _, c := range z.Connections {
			if slices.Contains(c.Subscriptions, args[0]) {
				found++
			}
		}
		if found < want || want == 0 && found > 0 {
			return fmt.Errorf("%d do", found)
		}
		return nil
	})
}

// waitfile FILE [REGEXP]: waits until it is there, and matches.
func cmdWaitFile(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, "wait for "+args[0], pollPause, func() error {
		b, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && len(args) == 2 && !regexp.MustCompile("(?m)"+args[1]).Match(b) {
			err = fmt.Errorf("it holds:\n%s", b)
		}
		return err
	})
}

// publish SUBJECT FILE [HEADER=VALUE]: publishes a file's content as it is.
func cmdPublish(ts *testscript.TestScript, _ bool, args []string) {
	conn := connectFor(ts)
	defer conn.Close()
	msg := nats.NewMsg(args[0])
	msg.Data = []byte(strings.TrimSuffix(ts.ReadFile(args[1]), "\n"))
	for _, h := range args[2:] {
		name, value, _ := strings.Cut(h, "=")
		if name == "reply" { // where the answer goes
			msg.Reply = value
			continue
		}
		msg.Header.Set(name, value)
	}
	ts.Check(conn.PublishMsg(msg))
	ts.Check(conn.Flush())
}

// stream FILE: makes a stream of the configuration in the file.
func cmdStream(ts *testscript.TestScript, _ bool, args []string) {
	var cfg natsjs.StreamConfig
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &cfg))
	conn := connectFor(ts)
	defer conn.Close()
	js, err := natsjs.New(conn)
	ts.Check(err)
	_, err = js.CreateStream(context.Background(), cfg)
	ts.Check(err)
}

// keep VAR FILE [PATH]: sets a variable to what the file, or stdout, holds, or
// to the string or number at PATH (dots) in its JSON.
func cmdKeep(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: keep VAR FILE [PATH]")
	}
	value := strings.TrimSpace(ts.ReadFile(args[1]))
	if len(args) == 3 {
		value = strings.Trim(jsonAt(ts, args[1], args[2]), `"`)
	}
	if value == "" || strings.ContainsAny(value, "\n") {
		ts.Fatalf("%s holds no single value:\n%s", args[1], value)
	}
	ts.Setenv(args[0], value)
}

// field FILE PATH REGEXP: the JSON in the file, or stdout, has at PATH (dots)
// a value whose JSON matches.
func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: field FILE PATH REGEXP")
	}
	raw := jsonAt(ts, args[0], args[1])
	if regexp.MustCompile(args[2]).MatchString(raw) == neg {
		ts.Fatalf("%s is %s", args[1], raw)
	}
}

// jsonAt is the value at a path, as JSON, of the first object in a file.
func jsonAt(ts *testscript.TestScript, file, path string) string {
	var v any
	first, _, _ := strings.Cut(strings.TrimSpace(ts.ReadFile(file)), "\n{")
	if err := json.Unmarshal([]byte(first), &v); err != nil {
		ts.Fatalf("%s: %v\n%s", file, err, first)
	}
	for _, name := range strings.Split(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(x) {
				ts.Fatalf("%s: no item %s", path, name)
			}
			v = x[i]
		default:
			v = nil
		}
	}
	raw, _ := json.Marshal(v)
	return string(raw)
}

// collector FILE: an OTLP collector over HTTP that notes in FILE what is sent
// to it, and sets COLLECTOR_URL.
func cmdCollector(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	var mu sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprintln(f, r.Method, r.URL.Path, r.Header.Get("Content-Type"))
			f.Close()
		}
	}))
	ts.Defer(srv.Close)
	ts.Setenv("COLLECTOR_URL", srv.URL)
}

// fieldenv NAME FILE FIELD: sets NAME to a text field of the JSON in the file.
func cmdFieldEnv(ts *testscript.TestScript, _ bool, args []string) {
	var v map[string]any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[1])), &v))
	text, ok := v[args[2]].(string)
	if !ok {
		ts.Fatalf("%s of %s is no text", args[2], args[1])
	}
	ts.Setenv(args[0], text)
}

// natsurl FILE: sets NATS_URL from a file that holds nothing else.
func cmdNatsURL(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("NATS_URL", strings.TrimSpace(ts.ReadFile(args[0])))
}

// url FILE: sets NATS_URL from the ports file of "aeemesh up".
func cmdURL(ts *testscript.TestScript, _ bool, args []string) {
	var urls serverURLs
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &urls))
	ts.Setenv("NATS_URL", urls.URL)
	ts.Setenv("WS_URL", urls.Websocket)
	ts.Setenv("MONITOR_URL", urls.Monitor)
	u := strings.TrimPrefix(urls.URL, "nats://")
	_, port, err := net.SplitHostPort(u)
	ts.Check(err)
	ts.Setenv("PORT", port)
}
