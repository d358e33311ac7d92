package evolve

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/intents/template"
)

// A pool with the maximum of keys and counts can be stored.
func TestAPoolFullOfKeysIsStored(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{"default": {}, "a small one": {MaxBytes: 64 << 10}, "a long window": {Window: Duration(360 * day)}} {
		p := newPool(t, cfg)
		states := []State{Experimental, Stable, Deprecated, Withdrawn, Withdrawn, Withdrawn, Retired, Rejected}
		keys := maxLives
		if cfg.MaxBytes > 0 {
			keys = 16
		}
		for i := range keys {
			l := &life{Key: template.Key{Name: fmt.Sprint("key_", i), Type: template.Boolean, Description: strings.Repeat("x", 1_900)}, State: states[i%len(states)], Since: start.Unix(), Expires: start.Unix()}
			p.doc.Lives = append(p.doc.Lives, l)
		}
		for d := range 31 {
			for c := range 8 {
				o := Observation{ID: fmt.Sprint(d, c), Client: Client(fmt.Sprint("agent.c", d, c))}
				for _, l := range p.doc.Lives {
					o.Keys = append(o.Keys, Use{Key: l.Key.Name})
				}
				p.Observe(o, start.Add(time.Duration(d)*day))
			}
		}
		many(p, 3, wish(1, "a window seat"), start)
		raw, err := p.Encode(start.Add(31 * day))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(raw) > p.cfg.MaxBytes {
			t.Errorf("%s: %d bytes", name, len(raw))
		}
		again, err := Decode(raw, cfg)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, k := range again.Keys(start.Add(31 * day)) {
			if k.State.advertised() && (k.Metrics.Payloads == 0 || k.Metrics.UsageFrequency < 0.9) {
				t.Errorf("%s: of %s nothing is known any more: %+v", name, k.Name, k.Metrics)
				break
			}
		}
	}
}

// The counts of a retired key are removed, so that they take no room from other keys.
func TestARetiredKeyHasNoCounts(t *testing.T) {
	t.Parallel()
	for _, to := range []State{Retired, Rejected} {
		p := onTrial(t, Config{})
		use(p, "window_seat", start, 3, 9, false)
		p.Judge("window_seat", Client("agent.c1"), true, start)
		l := p.doc.Lives[0]
		if len(l.Days) == 0 || len(l.Sample) == 0 || l.Typing.N == 0 || l.Judging.N == 0 {
			t.Fatalf("%+v", l)
		}
		if p.move(l, to, KindEnded, "", start); len(l.Days)+len(l.Sample)+l.Typing.N+l.Judging.N > 0 {
			t.Errorf("%s: %+v", to, l)
		}
	}
}
