package evolve

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// daily has the counts of one day.
type daily struct {
	Day       int64 `json:"d"` // since 1970
	Payloads  int   `json:"n"`
	Present   int   `json:"p,omitempty"`
	Typed     int   `json:"t,omitempty"`
	WrongType int   `json:"w,omitempty"`
	Judged    int   `json:"j,omitempty"`
	Aligned   int   `json:"a,omitempty"`
}

// sampled is a client in the sample that measures the adoption of a key. The sample consists of the
// clients that have received the key and whose names, which are hashes, are the smallest.
type sampled struct {
	Client  string `json:"c"`
	Adopted bool   `json:"a,omitempty"`
}

func dayOf(now time.Time) int64 { return now.Unix() / 86400 }

func (l *life) today(cfg Config, now time.Time) *daily {
	d := dayOf(now)
	if n := len(l.Days); n == 0 || l.Days[n-1].Day < d {
		l.Days = append(l.Days, daily{Day: d})
		oldest := d - cfg.Window.seconds()/86400
		for len(l.Days) > 1 && (l.Days[0].Day < oldest || len(l.Days) > 400) {
			l.Days = slices.Delete(l.Days, 0, 1)
		}
	}
	return &l.Days[len(l.Days)-1]
}

// use counts a payload for all keys that it could have had. Only a limited share of a day's
// payloads, and of a key's values, may come from one client.
func (p *Pool) use(o Observation, now time.Time) {
	asked, counts := false, false
	for _, l := range p.doc.Lives {
		if l.Refines || !l.State.accepted() || !p.reaches(o.Client, l) {
			continue
		}
		if !asked {
			asked, counts = true, !o.Refused && p.doc.Payloads.take(o.Client, p.cfg.payloadLimit(), now)
		}
		at := slices.IndexFunc(o.Keys, func(u Use) bool { return u.Key == l.Key.Name })
		if at < 0 && !counts || at >= 0 && o.Refused && !o.Keys[at].WrongType {
			continue
		}
		d := l.today(p.cfg, now)
		if counts {
			d.Payloads++
		}
		if at < 0 {
			continue
		}
		if counts {
			d.Present++
		}
		if l.Typing.take(o.Client, valueLimit, now) {
			d.Typed++
			if o.Keys[at].WrongType {
				d.WrongType++
			}
		}
		if !o.Keys[at].WrongType {
			l.sample(o.Client, true)
		}
	}
}

// sample records that a client has received a key, or has used it, and reports whether the sample
// has changed.
func (l *life) sample(client string, adopted bool) bool {
	at, there := slices.BinarySearchFunc(l.Sample, client, func(s sampled, c string) int { return cmp.Compare(s.Client, c) })
	if there {
		changed := adopted && !l.Sample[at].Adopted
		l.Sample[at].Adopted = l.Sample[at].Adopted || adopted
		return changed
	}
	if at >= maxSampled {
		return false
	}
	l.Sample = slices.Insert(l.Sample, at, sampled{client, adopted})
	if len(l.Sample) > maxSampled {
		l.Sample = l.Sample[:maxSampled]
	}
	return true
}

// Received records that a client has received keys. It reports whether anything has changed.
func (p *Pool) Received(client string, keys []string) bool {
	news := false
	for _, l := range p.doc.Lives {
		if l.State.advertised() && slices.Contains(keys, l.Key.Name) && p.reaches(client, l) {
			news = l.sample(client, false) || news
		}
	}
	return news
}

// Judge counts a judged value of a client; aligned reports whether the value means the client's
// words.
func (p *Pool) Judge(key, client string, aligned bool, now time.Time) {
	for _, l := range p.doc.Lives {
		if l.Key.Name == key && l.State.advertised() && p.reaches(client, l) && l.Judging.take(client, valueLimit, now) {
			d := l.today(p.cfg, now)
			d.Judged++
			if aligned {
				d.Aligned++
			}
		}
	}
}

// Metrics are the four metrics of SDSI 6.2.3 over the window, with their counts. A ratio without
// any counts is -1.
type Metrics struct {
	Payloads          int     `json:"payloads"`
	Present           int     `json:"present"`
	Judged            int     `json:"judged"`
	UsageFrequency    float64 `json:"usage_frequency"`
	AlignmentAccuracy float64 `json:"semantic_alignment_accuracy"`
	TypeCorrectness   float64 `json:"value_type_correctness"`
	AdoptionRate      float64 `json:"client_adoption_rate"`
}

func (l *life) metrics(cfg Config, now time.Time) (m Metrics) {
	oldest := dayOf(now) - cfg.Window.seconds()/86400
	typed, wrong, aligned, adopted := 0, 0, 0, 0
	for _, d := range l.Days {
		if d.Day >= oldest {
			m.Payloads, m.Present, m.Judged = m.Payloads+d.Payloads, m.Present+d.Present, m.Judged+d.Judged
			typed, wrong, aligned = typed+d.Typed, wrong+d.WrongType, aligned+d.Aligned
		}
	}
	for _, s := range l.Sample {
		if s.Adopted {
			adopted++
		}
	}
	ratio := func(n, of int) float64 {
		if of == 0 {
			return -1
		}
		return float64(n) / float64(of)
	}
	m.UsageFrequency, m.AlignmentAccuracy = ratio(m.Present, m.Payloads), ratio(aligned, m.Judged)
	m.TypeCorrectness, m.AdoptionRate = ratio(typed-wrong, typed), ratio(adopted, len(l.Sample))
	return m
}

func percent(ratio float64) string {
	if ratio < 0 {
		return "not judged"
	}
	return fmt.Sprintf("%.0f %%", 100*ratio)
}
