package startup

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A program begins with a percentage of its own, unless the operator has chosen one.
func TestAStartCollectsLessGarbageUnlessGOGCIsSet(t *testing.T) {
	t.Parallel()
	const child = "AEEMESH_STARTUP_CHILD=1"
	if slices.Contains(os.Environ(), child) {
		os.Stdout.WriteString("percent " + strconv.Itoa(debug.SetGCPercent(100)) + "\n")
		return
	}
	for gogc, want := range map[string]string{"": "percent 400\n", "50": "percent 50\n", "off": "percent -1\n"} {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child, "GOGC="+gogc)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Errorf("GOGC=%s: %v, %s, want %s", gogc, err, out, want)
		}
	}
}
