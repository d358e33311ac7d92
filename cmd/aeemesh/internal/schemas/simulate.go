package schemas

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/aeemesh/aeemesh/agents/embedding/ngrams"
	"github.com/aeemesh/aeemesh/agents/sdsi/learn"
	"github.com/aeemesh/aeemesh/agents/sdsi/simulate"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/outcome"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/session"
	"github.com/aeemesh/aeemesh/cmd/aeemesh/internal/term"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/intents/template"
	"github.com/aeemesh/aeemesh/intents/template/evolve"
)

// plainTemplate is that of a simulation without a file: what its wishes are about.
const plainTemplate = `{"schema_id":"journey_v1","scenario":"journey","keys":[
{"key_name":"destination","key_type":"string","required":true,"semantic_description":"Where the journey goes. Example: 'to Rome' -> 'Rome'."}]}`

// maxWishes is how long a file of --wishes may be.
const maxWishes = 1 << 20

func simulateCommand(a *session.App, o Operator) *cobra.Command {
	var config, wishes, requests string
	var attacks []string
	var identities int
	var gen simulate.Generator
	var approve bool
	c := &cobra.Command{
		Use:   "simulate [FILE]",
		Short: "Play how a template would grow, in months or years",
		Long: `Plays what "worker --learn" would make of a template over months, with a clock
that runs fast, and draws how keys come and go. It needs no server and no model.
The rules are those of the section "learning" of --config; words are compared by
n-grams. FILE is a template (default: that of a journey).

The requests are made up, from wishes of travellers or from those of --wishes;
or they are read from a file of your own. The wishes are the words that fit no
key of the template. An attack adds requests: "flood" is one client with half as
many as all others have, "drift" is slang that changes every ten days, "poison"
is a few clients that want to put their words into what others read.`,
		Example: `  aeemesh schema simulate
  aeemesh schema simulate --attack flood --attack poison --identities 6
  aeemesh schema simulate flight_booking.sdsi.json --config worker.yaml --days 365

  # wishes.json: [{"says": ["window seat", "a seat at the window"], "share": 0.2},
  #   {"says": ["{n} dogs"], "share": 0.1, "from_day": 30, "to_day": 60}]
  aeemesh schema simulate --wishes wishes.json

  # a line each: {"at": "2026-11-01T10:00:00Z", "client": "agent.a", "wishes": ["window seat"]}
  aeemesh schema simulate --requests requests.jsonl --json`,
		Args: outcome.Arguments("[FILE]"),
		RunE: a.Do(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			cfg := simulate.Config{Learn: learn.Config{Embedder: ngrams.Embedder{}}, Approve: approve}
			var err error
			if config != "" {
				model, err := o.Learning(cmd, config, &cfg.Learn)
				if err != nil {
					return err
				}
				if model != "" {
					a.Term.Note("The model %s is not asked here: rules make the keys.", model)
				}
			}
			if cfg.Template, err = simulated(args); err != nil {
				return err
			}
			if requests != "" {
				for _, name := range []string{"wishes", "attack", "count", "days", "clients", "seed", "identities"} {
					if cmd.Flags().Changed(name) {
						return outcome.Usagef(cmd, "--%s is for requests that are made up, and --requests reads them", name)
					}
				}
				file, err := os.Open(requests)
				if err != nil {
					return err
				}
				defer file.Close()
				if err := play(ctx, a, cfg, simulate.Requests(file), nil); err != nil {
					return fmt.Errorf("%s: %w", requests, err)
				}
				return nil
			}
			for _, name := range []string{"count", "days", "clients", "identities"} {
				if n, _ := cmd.Flags().GetInt(name); cmd.Flags().Changed(name) && n < 1 {
					return outcome.Usagef(cmd, "--%s %d: it is at least 1", name, n)
				}
			}
			for _, kind := range attacks {
				gen.Attacks = append(gen.Attacks, simulate.Attack{Kind: kind, Identities: identities})
			}
			if wishes != "" {
				raw, err := a.ReadWhole(wishes, maxWishes)
				if err != nil {
					return err
				}
				dec := json.NewDecoder(strings.NewReader(string(raw)))
				dec.DisallowUnknownFields()
				if err := dec.Decode(&gen.Wishes); err != nil {
					return outcome.Usagef(cmd, "%s is no JSON list of wishes: %w", wishes, err)
				}
				if len(gen.Wishes) == 0 {
					return outcome.Usagef(cmd, "%s has no wishes", wishes)
				}
			}
			gen, err := gen.WithDefaults()
			if err != nil {
				return outcome.Usagef(cmd, "%w", err)
			}
			return play(ctx, a, cfg, gen.Traffic(), &gen)
		}),
	}
	f := c.Flags()
	f.IntVar(&gen.Requests, "count", 1_000_000, "how many requests are made up")
	f.IntVar(&gen.Days, "days", 180, "over how many days")
	f.IntVar(&gen.Clients, "clients", 200, "of how many clients")
	f.Uint64Var(&gen.Seed, "seed", 0, "another number makes other requests of the same kind")
	f.StringVar(&wishes, "wishes", "", "`FILE` (JSON) of the wishes")
	f.StringVar(&requests, "requests", "", "`FILE` of requests, a JSON object a line, in the order of time")
	f.StringArrayVar(&attacks, "attack", nil, "add an attack: flood, drift or poison; repeatable")
	f.IntVar(&identities, "identities", 0, "how many clients an attacker is (default flood 1, poison 2)")
	f.BoolVar(&approve, "approve", false, "an operator approves each key that waits, after a day")
	f.StringVar(&config, "config", "", "`FILE` (YAML) with a section learning, as workers read it")
	_ = c.RegisterFlagCompletionFunc("attack", cobra.FixedCompletions(simulate.Attacks, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	return c
}

// simulated returns the template to begin with.
func simulated(args []string) (*template.Template, error) {
	if len(args) == 0 {
		return template.Parse([]byte(plainTemplate))
	}
	return oneTemplate(args[0])
}

// oneTemplate reads the template of a file, or that of a folder with one.
func oneTemplate(path string) (*template.Template, error) {
	all, err := template.Load(path)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%s: %d templates are there: name the file of one", path, len(all))
	}
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func play(ctx context.Context, a *session.App, cfg simulate.Config, traffic simulate.Traffic, gen *simulate.Generator) error {
	told := time.Now()
	cfg.Progress = func(n int, at time.Time) {
		if time.Since(told) >= 5*time.Second {
			told = time.Now()
			a.Term.Progress("%s requests, %s", grouped(n), at.Format(time.DateOnly))
		}
	}
	r, err := simulate.Run(ctx, cfg, traffic, gen)
	if err != nil {
		return err
	}
	if a.Term.JSON {
		return a.Term.Object(r)
	}
	draw(a.Term, r)
	return nil
}

// columns is how wide the drawing is.
const columns = 50

var signs = map[evolve.State]byte{"": ' ', evolve.Pending: '?', evolve.Queued: 'q', evolve.Experimental: '+', evolve.Stable: '#', evolve.Deprecated: '-',
	evolve.Withdrawn: '~', evolve.Rejected: 'x', evolve.Retired: ' '}

// draw shows a person how keys came and went.
func draw(t *term.Terminal, r *simulate.Report) {
	days := r.Days[len(r.Days)-1].Day + 1
	t.Line("%s of %s in %s", counted(r.Requests, "request"), counted(r.Clients, "client"), counted(days, "day"))
	if len(r.Keys) == 0 {
		t.Line("no key came of them")
	} else {
		t.Line("%-24s %-*d%d", "day", columns-len(fmt.Sprint(days)), 0, days)
	}
	for _, k := range r.Keys {
		t.Line("%-24s %s", clip.Text(k.Name, 24), line(k, days))
	}
	t.Line("")
	t.Line("? waits for an operator  + on trial  # stable  - deprecated  ~ withdrawn, accepted")
	t.Line("")
	t.Line("no key for          %.0f %% of the wishes on the first day, %.0f %% in the last %s", 100*r.Before.Rest(), 100*r.After.Rest(), lastDays(len(r.Days)/10))
	t.Line("keys at once        %d of %d, on trial %d of %d", r.MostKeys, r.Limits.MaxKeys, r.MostTrials, r.Limits.MaxTrials)
	t.Line("the pool            %d clusters of %d, %d KiB of %d", r.MostClusters, r.Limits.MaxClusters, r.LargestPool>>10, r.Limits.MaxBytes>>10)
	for _, x := range r.Attacks {
		switch {
		case x.Kind == simulate.Drift:
			t.Line("%-19s %s wishes, no key for %.0f %% of them", x.Kind, grouped(x.Wishes), 100*x.Rest())
		case len(x.Told) > 0:
			t.Line("%-19s %s wishes; OTHERS WERE TOLD of %s", x.Kind, grouped(x.Wishes), strings.Join(x.Told, ", "))
		case len(x.Keys) > 0:
			t.Line("%-19s %s wishes; others were told nothing, an operator of %s", x.Kind, grouped(x.Wishes), strings.Join(x.Keys, ", "))
		default:
			t.Line("%-19s %s wishes; none of its words became a key", x.Kind, grouped(x.Wishes))
		}
	}
}

// counted returns a number of things, such as "1 day" and "3,000 days".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return grouped(n) + " " + thing + "s"
}

// lastDays returns "day" and "12 days", to stand behind "the last".
func lastDays(n int) string {
	if n <= 1 {
		return "day"
	}
	return counted(n, "day")
}

// line draws the life of a key.
func line(k *simulate.Key, days int) string {
	out := make([]byte, columns)
	for i := range out {
		at := float64(i+1) * float64(days) / columns // the end of the column: what came is seen
		state := evolve.State("")
		for _, s := range k.Spans {
			if s.From < at {
				state = s.State
			}
		}
		out[i] = signs[state]
	}
	return strings.TrimRight(string(out), " ")
}

// grouped writes a number with commas.
func grouped(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
