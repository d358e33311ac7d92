package doctor

import (
	"slices"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/mesh/perms"
)

func TestMatchTokens(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.b", "a.b", true}, {"a.*", "a.b", true}, {"a.>", "a.b.c", true}, {">", "a", true},
		{"a.>", "a", false}, {"a.*", "a.b.c", false}, {"a.b", "a.c", false}, {"a.*", "a.>", false}, {"a.b q", "a.b q", true},
		{"a.b q", "a.b", false}, {"a.b", "a.b q", true}, {"a.b other", "a.b q", false},
	} {
		if got := covers(tt.pattern, tt.subject); got != tt.want {
			t.Errorf("covers(%q, %q) = %v", tt.pattern, tt.subject, got)
		}
	}
}

// A user whose permissions are of an earlier release can store no backup of a large stream, and
// restore none: it does not count as an operator.
func TestAnOperatorNeedsThePermissionsOfBackups(t *testing.T) {
	t.Parallel()
	var m subject.Map
	missing := func(have []string) (out []string) {
		rule := &subjectRule{Allow: have}
		for _, s := range operatorNeeds(m, "agent.x").Publish {
			if !rule.covers(s) {
				out = append(out, s)
			}
		}
		return out
	}
	all := perms.Operator(m, "_INBOX.mine").Publish
	if got := missing(all); got != nil {
		t.Errorf("an operator lacks %v", got)
	}
	earlier := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasPrefix(s, "$JS.SNAPSHOT.") })
	if got, want := missing(earlier), []string{"$JS.SNAPSHOT.ACK.>", "$JS.SNAPSHOT.RESTORE.>"}; !slices.Equal(got, want) {
		t.Errorf("without the permissions of backups it lacks %v, want %v", got, want)
	}
}
