package subject_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/aeemesh/aeemesh/envelope/subject"
	"pgregory.net/rapid"
)

func mustNew(t testing.TB, prefix string) subject.Map {
	t.Helper()
	m, err := subject.New(prefix)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSubjectsAndTheirAddresses(t *testing.T) {
	t.Parallel()
	const ulid = "01JFB2R1JZKQ9V3K8W8Y9W1F2A"
	tests := []struct {
		addr subject.Address
		want string
	}{
		{subject.Address{Kind: subject.Live, Entity: "agent.reviewer"}, "agent.reviewer"},
		{subject.Address{Kind: subject.Live, Entity: "service.billing.eu"}, "service.billing.eu"},
		{subject.Address{Kind: subject.Live, Entity: "robot.агент"}, "robot.агент"},
		{subject.Address{Kind: subject.Ask, Entity: "agent.reviewer"}, "aee.ask.agent.reviewer"},
		{subject.Address{Kind: subject.Bus, Entity: "bus.mesh.task"}, "bus.mesh.task"},
		{subject.Address{Kind: subject.Human, Entity: "human.adam"}, "human.adam"},
		{subject.Address{Kind: subject.Work, Entity: "agent.reviewer", Priority: "urgent"}, "aee.work.urgent.agent.reviewer"},
		{subject.Address{Kind: subject.Reply, Entity: "agent.a.b", ID: ulid}, "aee.reply.agent.a.b." + ulid},
		{subject.Address{Kind: subject.Reply, Entity: "agent.a", ID: "urn:x.1/ü"}, "aee.reply.agent.a.urn=3Ax=2E1=2F=C3=BC"},
		{subject.Address{Kind: subject.Ctl, Entity: "agent.reviewer"}, "aee.ctl.agent.reviewer"},
		{subject.Address{Kind: subject.Journal, Entity: "agent.reviewer", ID: ulid}, "aee.journal.agent.reviewer." + ulid},
		{subject.Address{Kind: subject.Audit, Entity: "agent.reviewer"}, "aee.audit.agent.reviewer"},
		{subject.Address{Kind: subject.Schedule, Entity: "agent.reviewer", ID: "a.b"}, "aee.schedule.agent.reviewer.a=2Eb"},
		{subject.Address{Kind: subject.Due, Entity: "agent.reviewer", Priority: "low"}, "aee.due.low.agent.reviewer"},
		{subject.Address{Kind: subject.Dead, Entity: "agent.a.b", ID: ulid}, "aee.dead.agent.a.b." + ulid},
	}
	for _, prefix := range []string{"", "acme", "acme.eu-1"} {
		m := mustNew(t, prefix)
		for _, tt := range tests {
			want := tt.want
			if prefix != "" {
				want = prefix + "." + want
			}
			got, err := m.Subject(tt.addr)
			if err != nil || got != want {
				t.Errorf("prefix %q: Subject(%+v) = %q, %v; want %q", prefix, tt.addr, got, err, want)
			}
			back, err := m.Parse(want)
			if err != nil || back != tt.addr {
				t.Errorf("prefix %q: Parse(%q) = %+v, %v; want %+v", prefix, want, back, err, tt.addr)
			}
		}
	}
}

func TestBusAndHuman(t *testing.T) {
	t.Parallel()
	m := mustNew(t, "acme")
	if got, err := m.Bus("mesh.agent"); got != "acme.bus.mesh.agent" || err != nil {
		t.Errorf("Bus = %q, %v", got, err)
	}
	if got, err := m.Human("adam"); got != "acme.human.adam" || err != nil {
		t.Errorf("Human = %q, %v", got, err)
	}
	if _, err := m.Bus("a..b"); err == nil || err.Error() != `topic "a..b": token 2 is empty` {
		t.Errorf("Bus with an empty token: %v", err)
	}
	a, err := m.Parse("acme.bus.mesh.agent")
	if err != nil || a.Name() != "mesh.agent" {
		t.Errorf("Parse: %+v, %v", a, err)
	}
}

func TestRefusedEntitiesNameThePartAtFault(t *testing.T) {
	t.Parallel()
	tests := []struct{ id, want string }{
		{"", `entity "": is empty`},
		{"reviewer", `entity "reviewer": has no type: it must be <type>.<name>, like "agent.reviewer"`},
		{"agent:echo", `entity "agent:echo": has no type: it must be <type>.<name>, like "agent.echo"`},
		{"agent/eu/echo", `entity "agent/eu/echo": has no type: it must be <type>.<name>, like "agent.eu.echo"`},
		{":", `entity ":": has no type: it must be <type>.<name>, like "agent.:"`},
		{"aee:x", `entity "aee:x": has no type: it must be <type>.<name>, like "agent.aee:x"`},
		{".agent.x", `entity ".agent.x": begins with a dot`},
		{"agent.", `entity "agent.": ends with a dot`},
		{".", `entity ".": begins with a dot`},
		{"agent..x", `entity "agent..x": token 2 is empty`},
		{"agent.x.*", `entity "agent.x.*": token 3 holds the wildcard '*'`},
		{"agent.x>y", `entity "agent.x>y": token 2 holds the wildcard '>'`},
		{"agent.my bot", `entity "agent.my bot": token 2 holds a space (U+0020)`},
		{"agent.a\u00a0b", `entity "agent.a\u00a0b": token 2 holds a space (U+00A0)`},
		{"agent.a\r\nPUB x", `entity "agent.a\r\nPUB x": token 2 holds a space (U+000D)`},
		{"agent.a\x00", `entity "agent.a\x00": token 2 holds a control character (U+0000)`},
		{"agent.a\x7f", `entity "agent.a\x7f": token 2 holds a control character (U+007F)`},
		{"agent.a\u202eb", `entity "agent.a\u202eb": token 2 holds an unprintable character (U+202E)`},
		{"agent.a\xff", `entity "agent.a\xff": token 2 is not valid UTF-8: byte 0xff`},
		{"aee.work", `entity "aee.work": first token "aee" is reserved for the mesh`},
		{"$JS.API", `entity "$JS.API": first token "$JS" is reserved for NATS`},
		{"_INBOX.x", `entity "_INBOX.x": first token "_INBOX" is reserved for NATS`},
		{"agent." + strings.Repeat("x", 250), `entity "agent.` + strings.Repeat("x", 74) + `"…: is too long: 256 bytes, at most 255`},
	}
	m := mustNew(t, "")
	for _, tt := range tests {
		builders := map[string]func() (string, error){
			"Live":    func() (string, error) { return m.Live(tt.id) },
			"Ask":     func() (string, error) { return m.Ask(tt.id) },
			"Ctl":     func() (string, error) { return m.Ctl(tt.id) },
			"Audit":   func() (string, error) { return m.Audit(tt.id) },
			"Work":    func() (string, error) { return m.Work("low", tt.id) },
			"Reply":   func() (string, error) { return m.Reply(tt.id, "12345678") },
			"Journal": func() (string, error) { return m.Journal(tt.id, "12345678") },
			"of":      func() (string, error) { return m.JournalOf(tt.id) },
			"Due":     func() (string, error) { return m.Due("low", tt.id) },
			"Dead":    func() (string, error) { return m.Dead(tt.id, "12345678") },
			"DueOf":   func() (string, error) { return m.DueOf(tt.id) },
		}
		for name, build := range builders {
			got, err := build()
			var e *subject.Error
			if !errors.As(err, &e) || err.Error() != tt.want || got != "" {
				t.Errorf("%s(%q) = %q, %v\nwant error %s", name, tt.id, got, err, tt.want)
			}
		}
	}
	if err := subject.ValidateEntity("agent." + strings.Repeat("x", 249)); err != nil {
		t.Errorf("an entity of %d bytes: %v", subject.MaxEntity, err)
	}
	if err := subject.ValidateEntity("AEE.x"); err != nil {
		t.Errorf("subjects are case-sensitive, AEE is not aee: %v", err)
	}
}

func TestRefusedIDsAndPriorities(t *testing.T) {
	t.Parallel()
	m := mustNew(t, "")
	for _, tt := range []struct{ got, want error }{
		{second(m.Work("critical", "agent.x")), &subject.Error{What: "priority", Value: "critical", Reason: "is none of low, normal, high, urgent"}},
		{second(m.Due("HIGH", "agent.x")), &subject.Error{What: "priority", Value: "HIGH", Reason: "is none of low, normal, high, urgent"}},
		{second(m.Schedule("agent.x", "")), &subject.Error{What: "id", Reason: "is empty"}},
		{second(m.Work("", "agent.x")), &subject.Error{What: "priority", Reason: "is none of low, normal, high, urgent"}},
		{second(m.Reply("agent.x", "")), &subject.Error{What: "id", Reason: "is empty"}},
		{second(m.Journal("agent.x", strings.Repeat(".", 171))), &subject.Error{What: "id", Value: strings.Repeat(".", 171), Reason: "is too long: 513 bytes when escaped, at most 512"}},
		{second(m.Subject(subject.Address{Entity: "agent.x"})), &subject.Error{What: "subject", Value: "agent.x", Part: "kind Kind(0)", Reason: "is unknown"}},
		{second(m.Subject(subject.Address{Kind: subject.Bus, Entity: "agent.x"})), &subject.Error{What: "entity", Value: "agent.x", Reason: "is not of type bus"}},
	} {
		var e *subject.Error
		if !errors.As(tt.got, &e) || *e != *tt.want.(*subject.Error) {
			t.Errorf("got %v, want %v", tt.got, tt.want)
		}
	}
}

func second(_ string, err error) error { return err }

func TestPrefixes(t *testing.T) {
	t.Parallel()
	for prefix, suffix := range map[string]string{"": "", "acme": "_acme", "acme.eu": "_acme_eu", "acme_eu": "_acme__eu", "a.b_c.d": "_a_b__c_d", "a-b": "_a-b", "agents": "_agents"} {
		m := mustNew(t, prefix)
		if m.Prefix() != prefix || m.Suffix() != suffix {
			t.Errorf("New(%q): prefix %q, suffix %q; want suffix %q", prefix, m.Prefix(), m.Suffix(), suffix)
		}
	}
	for prefix, want := range map[string]string{
		"aee":                   `prefix "aee": first token "aee" is reserved for the mesh`,
		"bus.x":                 `prefix "bus.x": first token "bus" is an entity type`,
		"agent":                 `prefix "agent": first token "agent" is an entity type`,
		"$SYS":                  `prefix "$SYS": first token "$SYS" is reserved for NATS`,
		"acme.":                 `prefix "acme.": ends with a dot`,
		"acme.>":                `prefix "acme.>": token 2 holds the wildcard '>'`,
		"acme.é":                `prefix "acme.é": token 2 holds "\xc3": a prefix has only letters, digits, '-' and '_'`,
		"acme.b_":               `prefix "acme.b_": token 2 begins or ends with '_'`,
		"acme._b":               `prefix "acme._b": token 2 begins or ends with '_'`,
		"a b":                   `prefix "a b": token 1 holds a space (U+0020)`,
		strings.Repeat("p", 65): `prefix "` + strings.Repeat("p", 65) + `": is too long: 65 bytes, at most 64`,
	} {
		if m, err := subject.New(prefix); err == nil || err.Error() != want || m != (subject.Map{}) {
			t.Errorf("New(%q): %v; want %s", prefix, err, want)
		}
	}
	m := mustNew(t, "acme")
	if _, err := m.Parse("agent.x"); err == nil || err.Error() != `subject "agent.x": does not begin with the prefix "acme"` {
		t.Errorf("Parse of a subject without the prefix: %v", err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	m := mustNew(t, "")
	for s, want := range map[string]string{
		"":                          `entity "": is empty`,
		"aee":                       `entity "aee": has no type: it must be <type>.<name>, like "agent.aee"`,
		"aee.":                      `subject "aee.": lane "" is unknown`,
		"aee.nope.agent.x":          `subject "aee.nope.agent.x": lane "nope" is unknown`,
		"aee.ask":                   `entity "": is empty`,
		"aee.ask.x":                 `entity "x": has no type: it must be <type>.<name>, like "agent.x"`,
		"aee.ask.aee.ask.agent.x":   `entity "aee.ask.agent.x": first token "aee" is reserved for the mesh`,
		"aee.work.agent.x":          `priority "agent": is none of low, normal, high, urgent`,
		"aee.work.high":             `entity "": is empty`,
		"aee.due.agent.x":           `priority "agent": is none of low, normal, high, urgent`,
		"aee.dead.agent":            `subject "aee.dead.agent": has no id as its last token`,
		"aee.schedule.agent.x.":     `id "": is empty`,
		"aee.reply.agent":           `subject "aee.reply.agent": has no id as its last token`,
		"aee.reply.agent.x":         `entity "agent": has no type: it must be <type>.<name>, like "agent.agent"`,
		"aee.reply.agent.x.":        `id "": is empty`,
		"aee.reply.agent.x.=":       `id "=": is empty`,
		"aee.reply.agent.x.=2":      `id "=2": ends within an escape`,
		"aee.reply.agent.x.=2e":     `id "=2e": escape "=2e" is not = and two upper-case hex digits`,
		"aee.reply.agent.x.a=41":    `id "a=41": escape "=41" stands for a character that needs none`,
		"aee.reply.agent.x.a:b":     `id "a:b": holds a character that should be escaped`,
		"aee.reply.agent.x._kv":     `id "_kv": holds a character that should be escaped`,
		"_INBOX.abc":                `entity "_INBOX.abc": first token "_INBOX" is reserved for NATS`,
		"aee.journal.agent.x.*":     `id "*": holds a character that should be escaped`,
		"aee.journal.agent.x.y.>":   `id ">": holds a character that should be escaped`,
		"aee.audit.agent.x.y..test": `entity "agent.x.y..test": token 4 is empty`,
	} {
		if a, err := m.Parse(s); err == nil || err.Error() != want || a != (subject.Address{}) {
			t.Errorf("Parse(%q) = %+v, %v\nwant error %s", s, a, err, want)
		}
	}
}

var token = regexp.MustCompile(`^[-_=A-Za-z0-9]+$`)

func TestEscape(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"01JFB2R1JZKQ9V3K8W8Y9W1F2A":           "01JFB2R1JZKQ9V3K8W8Y9W1F2A",
		"6ba7b810-9dad-11d1-80b4-00c04fd430c8": "6ba7b810-9dad-11d1-80b4-00c04fd430c8",
		"key_2":                                "key_2",
		"_kv":                                  "=5Fkv",
		"a.b":                                  "a=2Eb",
		"=":                                    "=3D",
		"":                                     "=",
		"\xff\x00*>/":                          "=FF=00=2A=3E=2F",
	} {
		if got := subject.Escape(id); got != want {
			t.Errorf("Escape(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestEscapeIsReversible(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "id"))
		tok := subject.Escape(id)
		if !token.MatchString(tok) {
			t.Fatalf("Escape(%q) = %q, which is no legal token", id, tok)
		}
		back, err := subject.Unescape(tok)
		if err != nil || back != id {
			t.Fatalf("Unescape(Escape(%q)) = %q, %v", id, back, err)
		}
	})
}

func TestPrefixSuffixesDiffer(t *testing.T) {
	t.Parallel()
	gen := rapid.StringMatching(`[ab-]([ab_-]{0,3}[ab-])?(\.[ab-]([ab_-]{0,3}[ab-])?){0,2}`)
	rapid.Check(t, func(t *rapid.T) {
		p, q := gen.Draw(t, "p"), gen.Draw(t, "q")
		m, err := subject.New(p)
		if err != nil {
			t.Fatal(err)
		}
		n, err := subject.New(q)
		if err != nil {
			t.Fatal(err)
		}
		if (m.Suffix() == n.Suffix()) != (p == q) {
			t.Fatalf("prefixes %q and %q: suffixes %q and %q", p, q, m.Suffix(), n.Suffix())
		}
	})
}

func TestServiceName(t *testing.T) {
	t.Parallel()
	legal := regexp.MustCompile(`^[A-Za-z0-9\-_]+$`)
	for entity, want := range map[string]string{"agent.reviewer": "agent-reviewer", "agent.a.b_c": "agent-a-b_c", "agent.größe+": "agent-gr__e_"} {
		if got := subject.ServiceName(entity); got != want || !legal.MatchString(got) {
			t.Errorf("ServiceName(%q) = %q, want %q", entity, got, want)
		}
	}
}

func TestWildcards(t *testing.T) {
	t.Parallel()
	m := mustNew(t, "acme")
	got := append(m.AllLive(), m.AllBus(), m.AllHuman(), m.AllAsk(), m.AllCtl(), m.AllWork(), m.AllReplies(), m.AllJournal(), m.AllSchedule(), m.AllDue(), m.AllDead())
	for _, f := range []func(string) (string, error){m.RepliesTo, m.JournalOf, m.ScheduleOf, m.DueOf, m.DeadOf} {
		s, err := f("agent.x")
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s)
	}
	want := "acme.agent.> acme.service.> acme.bus.> acme.human.> acme.aee.ask.> acme.aee.ctl.> acme.aee.work.> acme.aee.reply.> acme.aee.journal.> acme.aee.schedule.> acme.aee.due.> acme.aee.dead.> " +
		"acme.aee.reply.agent.x.* acme.aee.journal.agent.x.* acme.aee.schedule.agent.x.* acme.aee.due.*.agent.x acme.aee.dead.agent.x.*"
	if strings.Join(got, " ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, " "), want)
	}
}

func TestBuildingASubjectAllocatesItsResultAlone(t *testing.T) {
	plain, acme := mustNew(t, ""), mustNew(t, "acme")
	const entity, ulid = "agent.backup_auditor", "01JFB2R1JZKQ9V3K8W8Y9W1F2A"
	reply, _ := acme.Reply(entity, ulid)
	for name, tt := range map[string]struct {
		f    func()
		most float64
	}{
		"Live":         {func() { _, _ = plain.Live(entity) }, 0},
		"Live, prefix": {func() { _, _ = acme.Live(entity) }, 1},
		"Work":         {func() { _, _ = acme.Work("high", entity) }, 1},
		"Reply":        {func() { _, _ = acme.Reply(entity, ulid) }, 1},
		"Reply, odd":   {func() { _, _ = acme.Reply(entity, "urn:uuid:1.2") }, 1},
		"Escape":       {func() { _ = subject.Escape(ulid) }, 0},
		"Parse":        {func() { _, _ = acme.Parse(reply) }, 0},
	} {
		if got := testing.AllocsPerRun(100, tt.f); got > tt.most {
			t.Errorf("%s: %v allocations, want at most %v", name, got, tt.most)
		}
	}
}
