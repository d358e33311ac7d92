//go:build unix

package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/envelope/sign"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

// What changes from one run of examples/sdsi to the next.
var (
	bookedMonday = regexp.MustCompile(`"departure_date":"([0-9-]+)"`)
	passing      = []struct {
		what *regexp.Regexp
		as   string
	}{
		{regexp.MustCompile(`"ms":\d+`), `"ms":0`},
		{regexp.MustCompile(`"booking_id":"BK-[0-9A-F]{8}","status":"confirmed","flight":"PEK to SHA on [0-9-]+`), `"booking_id":"BK-MONDAY","status":"confirmed","flight":"PEK to SHA on MONDAY`},
		{regexp.MustCompile(`"departure_date":"[0-9-]+"`), `"departure_date":"MONDAY"`},
		{regexp.MustCompile(`(departure_date +)"[0-9-]+"( +next Monday)`), `$1"MONDAY"$2`},
	}
)

// examples/sdsi/run takes the draft's two sentences to a booking and an order, with a
// server and desks that are processes of their own, and prints what its README shows.
func TestTheDesksOfTheExample(t *testing.T) {
	natstest.Long(t)
	t.Parallel()
	for _, program := range []string{"bash", "go", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not here: examples/sdsi needs it", program)
		}
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, filepath.Join(root, "examples", "sdsi", "run"))
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // it stops what it has started
	c.WaitDelay = 30 * time.Second
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); !strings.HasPrefix(name, "NATS_") && !strings.HasPrefix(name, "AEEMESH_") {
			c.Env = append(c.Env, kv)
		}
	}
	// A key that the desks do not know, and what is set for another mesh, change nothing.
	signer, key, err := sign.NewKey("ada", sign.Ed25519, "human.ada")
	if err != nil {
		t.Fatal(err)
	}
	if err := sign.SaveKey(filepath.Join(temp, "config", "aeemesh", "keys"), signer, key); err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "TMPDIR="+temp, "GOTMPDIR=", "XDG_CONFIG_HOME="+filepath.Join(temp, "config"), "AEEMESH_PREFIX=elsewhere", "AEEMESH_SIGN=ada")
	var errors strings.Builder
	c.Stderr = &errors
	began := time.Now()
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, errors.String())
	}

	readme, err := os.ReadFile(filepath.Join(root, "examples", "sdsi", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(readme), "```text\n")
	shown, _, _ = strings.Cut(shown, "\n```\n")
	got, want := strings.TrimSpace(string(out)), shown
	for _, p := range passing {
		got, want = p.what.ReplaceAllString(got, p.as), p.what.ReplaceAllString(want, p.as)
	}
	if got != want {
		t.Errorf("it printed\n%s\nand its README shows\n%s", got, want)
	}
	// The draft's examples (SDSI 5).
	for _, w := range []string{
		`"payload":{"origin":"PEK","destination":"SHA","departure_date":"MONDAY","cabin_class":"business","other":"window seat"}`,
		`"payload":{"skin_smoothing":7,"teeth_whitening":true,"background_blur":true,"filter_style":"vintage","other":"eyes to look bigger"}`,
	} {
		if !strings.Contains(got, w) {
			t.Errorf("no %s", w)
		}
	}
	m := bookedMonday.FindSubmatch(out)
	if m == nil {
		t.Fatal("there is no date of departure")
	}
	day, err := time.ParseInLocation(time.DateOnly, string(m[1]), time.Local)
	if ahead := day.Sub(began); err != nil || day.Weekday() != time.Monday || ahead < -time.Hour || ahead > 8*24*time.Hour {
		t.Errorf("next Monday is %s, %v", m[1], err)
	}
	left, err := filepath.Glob(filepath.Join(temp, "tmp.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}
