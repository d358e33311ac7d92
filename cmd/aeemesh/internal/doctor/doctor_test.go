package doctor

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// faraway dials a server of this machine as if it were on another one.
type faraway struct{}

func (faraway) Dial(network, addr string) (net.Conn, error) {
	conn, err := net.Dial(network, addr)
	return farConn{conn}, err
}

type farConn struct{ net.Conn }

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4222} }

// printingTo is a program that prints all that it says to out.
func printingTo(out io.Writer) *session.App {
	return &session.App{Term: term.New(out, out, func(string) string { return "" })}
}

// certificate writes a certificate for this machine, which is its own authority, and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	pair := srv.TLS.Certificates[0]
	private, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write := func(kind string, der []byte) string {
		name := filepath.Join(t.TempDir(), "file.pem")
		if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	return write("CERTIFICATE", pair.Certificate[0]), write("PRIVATE KEY", private)
}

// AEE, "Envelope Integrity Without Signatures"; mutation M8 of the traceability review.
func TestDoctorWarnsOfPlaintextOverTheNetwork(t *testing.T) {
	t.Parallel()
	cert, key := certificate(t)
	plain, secure := natstest.Run(t, natsd.Config{}), natstest.Run(t, natsd.Config{TLS: &natsd.TLS{CertFile: cert, KeyFile: key}})
	for _, c := range []struct {
		name string
		srv  *natsd.Server
		opts []nats.Option
		want string
		hint bool
	}{
		{"here", plain, nil, "ok   connection", false},
		{"elsewhere", plain, []nats.Option{nats.SetCustomDialer(faraway{})}, "warn connection", true},
		{"elsewhere, by TLS", secure, []nats.Option{nats.SetCustomDialer(faraway{}), nats.RootCAs(cert)}, "ok   connection", false},
	} {
		var out bytes.Buffer
		d := &doctor{app: printingTo(&out), conn: natstest.Conn(t, c.srv, c.opts...)}
		d.connection()
		if !strings.HasPrefix(out.String(), c.want) || strings.Contains(out.String(), "give the server a certificate") != c.hint || d.failed {
			t.Errorf("%s:\n%s", c.name, &out)
		}
	}
}

// Differences that many streams have alike are told once, with one hint.
func TestDoctorFoldsWhatManyStreamsHaveAlike(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &doctor{app: printingTo(&out)}
	var changes []jetstream.Change
	for _, name := range []string{"AEE_A", "AEE_B", "AEE_C"} {
		changes = append(changes, jetstream.Change{Name: name, Kind: jetstream.KindStream, Action: jetstream.ActionUpdate,
			Differences: []jetstream.Difference{{Field: "topology", Have: "7", Want: "8"}}})
	}
	changes = append(changes, jetstream.Change{Name: "AEE_D", Kind: jetstream.KindStream, Action: jetstream.ActionUpdate,
		Differences: []jetstream.Difference{{Field: "no_ack", Have: "false", Want: "true"}}})
	d.streams(changes)
	want := `warn streams      update AEE_A, AEE_B, AEE_C: topology 7, should be 8
                  "aeemesh apply" corrects it.
warn stream       update AEE_D: no_ack false, should be true
                  "aeemesh apply" corrects it.
`
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The refusal of an old worker's request has its own hint.
func TestDoctorNamesAnOldWorker(t *testing.T) {
	t.Parallel()
	old := laneHint("normal tasks: 400 Bad Request - Priority Group missing")
	if !strings.Contains(old, "Update this worker") || strings.Contains(laneHint("no responders"), "Update") {
		t.Error(old)
	}
}

// Streams of the mesh in a hub and in a leaf node store each task twice, and it is done twice.
func TestDoctorFindsTheStreamsOfAnotherDomain(t *testing.T) {
	t.Parallel()
	hub, leaf := natstest.Leaf(t, 0)
	for i, srv := range []*natsd.Server{hub, leaf} {
		js, err := natsjs.New(natstest.Conn(t, srv))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), natsjs.StreamConfig{Name: jetstream.StreamWork, Subjects: []string{"aee.work.>"}}); err != nil {
			t.Fatal(err)
		}
		says := func() string {
			var out bytes.Buffer
			d := &doctor{app: printingTo(&out), conn: js.Conn()}
			d.copies(t.Context(), js)
			return out.String()
		}
		if i == 0 && says() != "" {
			t.Errorf("with streams in the hub alone: %s", says())
		} else if i == 1 {
			natstest.Eventually(t, "doctor sees both", func() bool { return strings.Contains(says(), "fail copies       2 streams store each task") })
		}
	}
}

// A hint of doctor's names something else to do than to run doctor.
func TestDoctorDoesNotHintAtItself(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{"Try again.": context.DeadlineExceeded, "more than half of its servers must run.": jetstream.ErrUnavailable} {
		var out bytes.Buffer
		d := &doctor{app: printingTo(&out)}
		d.tell("jetstream", "fail", outcome.Hint(err), "%s", outcome.Text(err))
		if got := out.String(); strings.Contains(got, "doctor") || !strings.HasSuffix(got, want+"\n") {
			t.Errorf("%q, want no more than %q at its end", got, want)
		}
	}
}

// A monitoring port that takes a connection and does not answer leaves doctor the time to see
// whether something can be stored; a password in its URL is not printed.
func TestDoctorDoesNotTakeASilentMonitorForABrokenStore(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	conn := natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true}))
	js, err := natsjs.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := jetstream.Apply(t.Context(), js, jetstream.Options{}); err != nil {
		t.Fatal(err)
	}
	for monitor, want := range map[string]string{
		"http://ada:hunter2@" + silent.Addr().String(): "warn fsync        http://" + silent.Addr().String() + ": context deadline exceeded\n",
		"http://ada:50%hunter2@127.0.0.1:1":            "warn fsync        http://127.0.0.1:1: it is no URL",
		"127.0.0.1:1":                                  "warn fsync        127.0.0.1:1: it is no URL such as http://127.0.0.1:8222\n",
	} {
		var out bytes.Buffer
		d := &doctor{app: printingTo(&out), conn: conn, monitor: monitor, probe: true, role: roleOperator}
		d.jetStream(t.Context(), js)
		if got := out.String(); d.failed || !strings.Contains(got, want) || !strings.Contains(got, "an acknowledgement took") || strings.Contains(got, "hunter2") {
			t.Errorf("failed: %v, want %q and an acknowledgement in\n%s", d.failed, want, got)
		}
	}
}

func TestServersThatObeyTheirAnswers(t *testing.T) {
	for version, obeys := range map[string]bool{
		"2.12.15": true, "2.14.9": true, "2.14.10": false, "2.14.11-RC.1": false, "2.15.0": true, "2.15.2": true, "2.15.3": false, "2.16.0": false, "3.0.0": false,
	} {
		if obeysAnswers(version) != obeys {
			t.Errorf("nats-server %s: %v", version, !obeys)
		}
	}
}
