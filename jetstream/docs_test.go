package jetstream_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/jetstream"
)

// The operators' table lists the streams of the topology.
func TestTheOperatorsTableIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, s := range jetstream.Topology() {
		size, age := "no limit", "none"
		if s.Config.MaxBytes > 0 {
			sum += s.Config.MaxBytes
			size = fmt.Sprintf("%d MiB", s.Config.MaxBytes>>20)
		}
		if a := s.Config.MaxAge; a > 0 {
			for _, u := range []struct {
				hours float64
				name  string
			}{{24, "day"}, {1, "hour"}, {1. / 60, "minute"}} {
				if n := a.Hours() / u.hours; n >= 1 {
					if age = fmt.Sprintf("%.0f %s", n, u.name); n > 1 {
						age += "s"
					}
					break
				}
			}
		}
		found := false
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "| `"+s.Name+"` | ") {
				found = strings.Contains(line, " | "+age+" | "+size+" | ")
			}
		}
		if !found {
			t.Errorf("docs/operations.md does not say of %s: %s, %s", s.Name, age, size)
		}
	}
	if want := fmt.Sprintf("The sizes together, %d,%03d MiB,", sum>>20/1000, sum>>20%1000); !strings.Contains(string(text), want) {
		t.Errorf("docs/operations.md does not say: %s", want)
	}
}
