package subject_test

import (
	"testing"
	"unicode/utf8"

	"github.com/aeemesh/aeemesh/envelope/subject"
)

// What Parse accepts, Subject builds again, byte for byte; so no two
// addresses share a subject and no subject has two addresses.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"agent.reviewer", "bus.mesh.task", "human.adam", "aee.ask.agent.x", "aee.work.urgent.agent.x.y",
		"aee.reply.agent.x.01JFB2R1JZKQ9V3K8W8Y9W1F2A", "aee.journal.agent.x.a=2Eb", "aee.ctl.agent.x",
		"aee.audit.agent.x", "aee.schedule.agent.x.a=2Eb", "aee.due.low.agent.x", "aee.dead.agent.x.1", "acme.agent.x", "acme.eu.aee.reply.agent.x.=5F", "aee.reply.agent.x.=", "a..b", "$JS.API.INFO", "aee.work.>",
	} {
		f.Add("", s)
		f.Add("acme", s)
		f.Add("acme.eu", s)
	}
	f.Fuzz(func(t *testing.T, prefix, s string) {
		m, err := subject.New(prefix)
		if err != nil {
			_ = err.Error()
			return
		}
		a, err := m.Parse(s)
		if err != nil {
			if a != (subject.Address{}) {
				t.Fatalf("Parse(%q) failed and gave %+v", s, a)
			}
			if msg := err.Error(); !utf8.ValidString(msg) {
				t.Fatalf("the error about %q is not UTF-8: %q", s, msg)
			}
			return
		}
		back, err := m.Subject(a)
		if err != nil || back != s {
			t.Fatalf("Parse(%q) = %+v, but Subject gives %q, %v", s, a, back, err)
		}
		for i := 0; i < len(s); i++ {
			if c := s[i]; c <= ' ' || c == 0x7f || c == '*' || c == '>' {
				t.Fatalf("Parse accepted %q", s)
			}
		}
	})
}

func FuzzBuildAndParse(f *testing.F) {
	f.Add(uint8(6), "agent.reviewer", "high", "01JFB2R1JZKQ9V3K8W8Y9W1F2A")
	f.Add(uint8(6), "agent.a.b", "", "a.b/c d\xff")
	f.Add(uint8(5), "service.x", "low", "")
	f.Fuzz(func(t *testing.T, kind uint8, entity, priority, id string) {
		for _, prefix := range []string{"", "acme.eu"} {
			m, _ := subject.New(prefix)
			a := subject.Address{Kind: subject.Kind(kind%13 + 1), Entity: entity}
			switch a.Kind {
			case subject.Work, subject.Due:
				a.Priority = priority
			case subject.Schedule, subject.Reply, subject.Dead, subject.Journal:
				a.ID = id
			case subject.Live:
				if typ := subject.EntityType(entity); typ == subject.TypeBus || typ == subject.TypeHuman {
					return
				}
			}
			s, err := m.Subject(a)
			if err != nil {
				continue
			}
			back, err := m.Parse(s)
			if err != nil || back != a {
				t.Fatalf("%+v is %q, which parses as %+v, %v", a, s, back, err)
			}
		}
	})
}

func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"", "=", "=5F", "_", "a=2E", "=2e", "=4", "01JFB2R1JZKQ9V3K8W8Y9W1F2A"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if back, err := subject.Unescape(subject.Escape(s)); err != nil || back != s {
			t.Fatalf("Unescape(Escape(%q)) = %q, %v", s, back, err)
		}
		if id, err := subject.Unescape(s); err == nil && subject.Escape(id) != s {
			t.Fatalf("Unescape(%q) = %q, which escapes to %q", s, id, subject.Escape(id))
		}
	})
}
