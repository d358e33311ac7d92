package envelope

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

func TestIDsGrowAndDiffer(t *testing.T) {
	t.Parallel()
	const workers, each = 8, 5000
	made := make([][]string, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				made[w] = append(made[w], NewID())
			}
		})
	}
	wg.Wait()
	var all []string
	for _, ids := range made {
		if !slices.IsSorted(ids) {
			t.Error("one goroutine's ids do not grow")
		}
		all = append(all, ids...)
	}
	slices.Sort(all)
	if n := len(slices.Compact(all)); n != workers*each {
		t.Errorf("%d different ids of %d", n, workers*each)
	}
	for _, id := range []string{all[0], all[workers*each-1]} {
		parsed, err := ulid.ParseStrict(id)
		if err != nil {
			t.Fatal(err)
		}
		if age := time.Since(ulid.Time(parsed.Time())); age < -time.Minute || age > time.Minute {
			t.Errorf("%s is of %s", id, ulid.Time(parsed.Time()))
		}
	}
}

// TestIDsGrowWhenTheClockGoesBack also lets the random part overflow.
func TestIDsGrowWhenTheClockGoesBack(t *testing.T) {
	t.Parallel()
	source := idSource{read: ids.read}
	last := ""
	for _, ms := range []uint64{1000, 1000, 999, 1000, 500, 1001, 1001, 0} {
		id := source.next(ms).String()
		if id <= last {
			t.Errorf("at %d ms: %s after %s", ms, id, last)
		}
		last = id
	}
	source = idSource{read: allOnes} // all ones overflow at the first increment
	var before ulid.ULID
	for ms := uint64(7); ms < 10; ms++ {
		id := source.next(7)
		if id.Compare(before) <= 0 || id.Time() != ms {
			t.Errorf("overflow: %s, of %d ms, after %s", id, id.Time(), before)
		}
		before = id
	}

	source = idSource{read: func(p []byte) { clear(p) }} // no id comes twice, whatever the random numbers are
	if a, b := source.next(7), source.next(7); a.Compare(b) >= 0 {
		t.Errorf("%s, after %s", b, a)
	}
}

func allOnes(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}

// The increments within a millisecond are random, and no id is used twice.
func TestIDsCannotBePredicted(t *testing.T) {
	t.Parallel()
	source := idSource{read: ids.read}
	seen := map[uint64]bool{}
	last := source.next(1)
	for range 1000 {
		id := source.next(1)
		if id.Time() != 1 {
			break // overflow, once in some million runs
		}
		step := binary.BigEndian.Uint64(id[8:]) - binary.BigEndian.Uint64(last[8:])
		if step == 0 || step > 1<<32 {
			t.Fatalf("a step of %d", step)
		}
		seen[step] = true
		last = id
	}
	if len(seen) < 900 {
		t.Errorf("%d different steps of 1000", len(seen))
	}
}

// The fast path reads a time as the library does.
func TestRecentTimesAreReadAlike(t *testing.T) {
	now := Now()
	prefix := now[:len(now)-4]
	for _, ts := range []string{now, prefix + "000Z", prefix + "999Z", prefix + "99Z", prefix + "9999Z", prefix + "9x9Z", prefix + "123+00:00", prefix + "-12Z", prefix[:len(prefix)-1] + ",123Z", "2025-12-14T03:45:12.000Z", ""} {
		got, ok := (&Envelope{TS: ts}).Time()
		want, err := time.Parse(time.RFC3339Nano, ts)
		if ok != (err == nil) || ok && got != want.UTC() {
			t.Errorf("%q: %v, %t; the library says %v, %v", ts, got, ok, want, err)
		}
	}
}

func TestNowIsUTCWithMilliseconds(t *testing.T) {
	t.Parallel()
	now := Now()
	if len(now) != len(TimeLayout) || now[len(now)-1] != 'Z' {
		t.Errorf("got %s", now)
	}
	e := Envelope{TS: now}
	if at, ok := e.Time(); !ok || time.Since(at) > time.Minute || time.Since(at) < -time.Minute {
		t.Errorf("got %s, %t", at, ok)
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	for ts, want := range map[string]string{
		"2025-12-14T03:45:12Z":           "2025-12-14T03:45:12Z",
		"2025-12-14T03:45:12.345Z":       "2025-12-14T03:45:12.345Z",
		"2025-12-14T03:45:12.123456789Z": "2025-12-14T03:45:12.123456789Z",
		"2025-12-14T05:45:12+02:00":      "2025-12-14T03:45:12Z",
		"2025-12-14T03:45:12-00:30":      "2025-12-14T04:15:12Z",
		"2025-12-14T03:45:12":            "2025-12-14T03:45:12Z",
		"2025-12-14T03:45:12.5":          "2025-12-14T03:45:12.5Z",
		"2025-12-14 03:45:12":            "2025-12-14T03:45:12Z",
		"2025-12-14 03:45:12Z":           "2025-12-14T03:45:12Z",
		"2025-12-14 05:45:12+02:00":      "2025-12-14T03:45:12Z",
		"20251214T034512Z":               "2025-12-14T03:45:12Z",
		"20251214T054512+0200":           "2025-12-14T03:45:12Z",
		"2025-12-14T05:45:12.5+0200":     "2025-12-14T03:45:12.5Z",
		"2025-12-14T05:45:12+02":         "2025-12-14T03:45:12Z",
		"2025-12-14T03:45Z":              "2025-12-14T03:45:00Z",
		"2025-12-14T05:45+02:00":         "2025-12-14T03:45:00Z",
		"2025-12-14t03:45:12z":           "2025-12-14T03:45:12Z",
		"2025-12-14":                     "2025-12-14T00:00:00Z",
		"2016-12-31T23:59:60Z":           "2017-01-01T00:00:00Z",
		"2016-12-31T23:59:60.25Z":        "2017-01-01T00:00:00.25Z",
		"2017-01-01T01:59:60+02:00":      "2017-01-01T00:00:00Z",
		"2016-12-31t23:59:60z":           "2017-01-01T00:00:00Z",
		"20161231T235960Z":               "2017-01-01T00:00:00Z",
		"2016-12-31 23:59:60":            "2017-01-01T00:00:00Z",
		"2016-12-31T23:58:60Z":           "",
		"2016-12-31T23:59:61Z":           "",
		"2016-12-32T23:59:60Z":           "",
		"1734159600":                     "",
		"2025-W50-7T03:45:12Z":           "", // RFC 3339 has no week dates
		"2025-348T03:45:12Z":             "", // and no ordinal dates
		"2025-13-14T03:45:12Z":           "",
		"2025-12-14T25:45:12Z":           "",
		"1734147912":                     "",
		"yesterday, noon":                "",
		"2025-12-14T03:45:12Z ":          "",
		"2025-12-14T03:45:12ZZ":          "",
		"":                               "",
	} {
		e := Envelope{TS: ts}
		at, ok := e.Time()
		got := ""
		if ok {
			got = at.Format(time.RFC3339Nano)
		}
		if got != want || ok && at.Location() != time.UTC {
			t.Errorf("%q: got %q, want %q", ts, got, want)
		}
	}
}
