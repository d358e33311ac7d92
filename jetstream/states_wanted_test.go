package jetstream_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/subject"
	"github.com/aeemesh/aeemesh/jetstream"
	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
	"github.com/aeemesh/aeemesh/state"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A model knows what is stored of each run: the status, and the sequence of the document.
type model struct {
	s       *jetstream.States
	runs    map[state.ID]modelRun
	deleted []state.ID
}

type modelRun struct {
	status aaif.RunStatus
	doc    uint64 // 0: the run has only a reply
	last   uint64
	corrs  []string // in the headers of the documents; "" of one without
}

// put stores a document. Where noted is false, the message's headers lack the status.
func (m *model) put(t testing.TB, id state.ID, status aaif.RunStatus, noted bool) {
	t.Helper()
	c := state.New(id.Entity, id.Run, "")
	c.Doc.RunID, c.Doc.Status = id.Run, status
	data, err := state.Codec{}.Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	note := jetstream.Note{Status: status}
	if !noted {
		note = jetstream.Note{}
	}
	note.Corr = []string{"", "corr\r\n-0001", "corr-0002"}[crc32.ChecksumIEEE([]byte(id.Run))%3]
	if note.Corr == "corr-0002" && !noted {
		note.Corr = "" // a command for a run that no worker owns
	}
	rev := putRun(t, m.s, id, m.runs[id].last, data, note)
	m.runs[id] = modelRun{status, rev, rev, append(m.runs[id].corrs, note.Corr)}
}

func (m *model) reply(t testing.TB, id state.ID) {
	t.Helper()
	r := m.runs[id]
	rev, err := m.s.Reply(testContext(t), id, r.last, jetstream.Reply{MsgID: id.Run + fmt.Sprint(r.last), Data: []byte("{}")}, jetstream.Note{Status: r.status}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.last = rev
	m.runs[id] = r
}

// bare stores runs that have only a reply, all completed.
func (m *model) bare(t testing.TB, js natsjs.JetStream, entity, name string, n int) {
	t.Helper()
	end, err := json.Marshal(state.End{TaskID: "t"})
	if err != nil {
		t.Fatal(err)
	}
	acks := map[state.ID]natsjs.PubAckFuture{}
	for i := range n {
		id := state.ID{Entity: entity, Run: fmt.Sprint(name, i)}
		ack, err := js.PublishMsgAsync(&nats.Msg{Subject: "$KV.aee_reply." + jetstream.StateKey(id), Data: []byte("{}"), Header: nats.Header{
			jetstream.HeaderStatus: {"completed"}, jetstream.HeaderEnd: {string(end)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		acks[id] = ack
	}
	for id, ack := range acks {
		select {
		case stored := <-ack.Ok():
			m.runs[id] = modelRun{status: "completed", last: stored.Sequence}
		case err := <-ack.Err():
			t.Fatal(err)
		}
	}
}

// wanted returns the runs of an entity, or of all, that have one of some statuses, the
// last document first.
func (m *model) wanted(entity string, statuses []aaif.RunStatus) []state.ID {
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(m.runs)), func(id state.ID) bool {
		return entity != "" && id.Entity != entity || !slices.Contains(statuses, m.runs[id].status)
	})
	slices.SortFunc(ids, func(a, b state.ID) int { return cmp.Compare(m.runs[b].doc, m.runs[a].doc) })
	return ids
}

var someStatuses = []aaif.RunStatus{aaif.RunRunning, aaif.RunPaused, aaif.RunAwaitingApproval, aaif.RunAwaitingToolResult, aaif.RunFailed, aaif.RunMigrating, aaif.RunCompleted}

// fillForList stores runs of all kinds, then more completed runs than Latest reads from
// the end of the stream, and a few more runs.
func fillForList(t *testing.T, js natsjs.JetStream, s *jetstream.States) *model {
	t.Helper()
	m := &model{s: s, runs: map[state.ID]modelRun{}}
	rng := rand.New(rand.NewPCG(7, uint64(len(t.Name()))))
	run := func(i int) {
		id := state.ID{Entity: fmt.Sprintf("agent.x%d", i%3), Run: fmt.Sprintf("r%d.a b", i)} // a key with escapes
		for range rng.IntN(3) {
			m.put(t, id, aaif.RunRunning, rng.IntN(4) > 0)
		}
		m.put(t, id, someStatuses[rng.IntN(len(someStatuses))], rng.IntN(8) > 0)
		if state.Terminal(m.runs[id].status) && rng.IntN(4) > 0 {
			m.reply(t, id)
			if m.runs[id].status == aaif.RunFailed && rng.IntN(3) == 0 { // its dead letter is retried
				m.put(t, id, someStatuses[rng.IntN(len(someStatuses))], true)
			}
		}
		if rng.IntN(12) == 0 {
			if err := s.Delete(testContext(t), id); err != nil {
				t.Fatal(err)
			}
			delete(m.runs, id)
			m.deleted = append(m.deleted, id)
		}
	}
	for i := range 400 {
		run(i)
	}
	if _, err := js.Publish(testContext(t), "$KV.aee_state.agent.x0._no-run", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	m.bare(t, js, "agent.x1", "bare", 3600)
	for i := range 10 {
		m.put(t, state.ID{Entity: "agent.x2", Run: fmt.Sprint("late", i)}, someStatuses[i%2], true)
	}
	return m
}

func byName(a, b state.ID) int {
	return cmp.Or(strings.Compare(a.Entity, b.Entity), strings.Compare(a.Run, b.Run))
}

func latest(t testing.TB, s *jetstream.States, entity string, want func(aaif.RunStatus) bool) (ids []state.ID) {
	t.Helper()
	for r, err := range s.Latest(testContext(t), entity, want) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

// A list of the runs in some statuses has exactly these runs, whatever is stored of the
// others, and whatever its reader may do.
func TestRunsInSomeStatuses(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	view := []string{"$JS.API.STREAM.INFO.*", "$JS.API.DIRECT.GET.KV_aee_state", "$JS.API.DIRECT.GET.KV_aee_state.>", "$JS.API.STREAM.MSG.GET.KV_aee_state"}
	srv := natstest.Run(t, natsd.Config{JetStream: true, Users: []natsd.User{
		{Name: "all", Password: "p"},
		{Name: "viewer", Password: "p", Permissions: &natsd.Permissions{
			Publish: natsd.Subjects{Allow: view}, Subscribe: natsd.Subjects{Allow: []string{"_INBOX.>"}},
		}},
	}})
	js := connect(t, srv, nats.UserInfo("all", "p"))
	apply(t, js, jetstream.Options{Only: states})
	s := jetstream.NewStates(js, subject.Map{})
	m := fillForList(t, js, s)
	readers := map[string]*jetstream.States{"operator": s, "viewer": jetstream.NewStates(connect(t, srv, nats.UserInfo("viewer", "p")), subject.Map{})}
	for name, reader := range readers {
		for _, entity := range []string{"", "agent.x0", "agent.x2", "agent.none"} {
			for i := range len(someStatuses) + 1 {
				statuses := someStatuses[max(0, i-1) : i+min(1, len(someStatuses)-i)] // one or two
				if entity == "" && len(statuses) == 1 && statuses[0] == aaif.RunCompleted {
					continue // the list of migrating and completed runs has read the 3,600 already
				}
				got := latest(t, reader, entity, func(s aaif.RunStatus) bool { return slices.Contains(statuses, s) })
				want := m.wanted(entity, statuses)
				if slices.Contains(statuses, aaif.RunCompleted) { // in the order of replies, too
					order := func(a, b state.ID) int {
						return cmp.Or(strings.Compare(a.Entity, b.Entity), strings.Compare(a.Run, b.Run))
					}
					slices.SortFunc(got, order)
					slices.SortFunc(want, order)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, %q, %q: %d runs %.400q, want %d %.400q", name, entity, statuses, len(got), got, len(want), want)
				}
			}
		}
	}

	// The names are those of all runs.
	names := slices.SortedFunc(maps.Keys(m.runs), byName)
	names = append(names, m.deleted...)
	slices.SortFunc(names, byName)
	fenced := jetstream.NewStates(js, subject.Map{})
	fenced.Fence()
	readers["fenced"] = fenced
	for name, reader := range readers {
		got, err := reader.Names(testContext(t), "")
		if slices.SortFunc(got, byName); err != nil || !slices.Equal(got, names) {
			t.Errorf("%s: %d names, want %d; %v", name, len(got), len(names), err)
		}
		got, err = reader.Names(testContext(t), "agent.x0")
		of := slices.DeleteFunc(slices.Clone(names), func(id state.ID) bool { return id.Entity != "agent.x0" })
		if slices.SortFunc(got, byName); err != nil || !slices.Equal(got, of) {
			t.Errorf("%s: %d names of agent.x0, want %d; %v", name, len(got), len(of), err)
		}
	}
	if got, err := jetstream.NamesByHeaders(testContext(t), s); err != nil || !slices.Equal(slices.SortedFunc(slices.Values(got), byName), names) {
		t.Errorf("by headers: %d names, want %d; %v", len(got), len(names), err)
	}

	// Documents are those of a time and later. With a corr, those with another one in all
	// headers are left out, and those with it, or without any, are not.
	for _, since := range []struct {
		run   state.ID
		least int
	}{{state.ID{}, 300}, {state.ID{Entity: "agent.x0", Run: "r201.a b"}, 100}, {state.ID{Entity: "agent.x2", Run: "late3"}, 7}} {
		from, doc := time.Time{}, uint64(0)
		if since.run != (state.ID{}) {
			rec, err := s.Get(testContext(t), since.run)
			if err != nil {
				t.Fatal(err)
			}
			from, doc = rec.Time, m.runs[since.run].doc
		}
		for _, corr := range []string{"", "corr\r\n-0001", "corr-0002", "corr-0003"} {
			for name, reader := range readers {
				if name == "fenced" && corr != "" && corr != "corr-0002" {
					continue // it reads all runs, whatever the corr: with one and without are enough
				}
				got := map[state.ID]bool{}
				for r, err := range reader.Documents(testContext(t), from, corr) {
					if err != nil || got[r.ID] {
						t.Fatal(name, r.ID, "twice:", got[r.ID], err)
					}
					got[r.ID] = true
				}
				n := 0
				for id, r := range m.runs {
					must := r.doc > 0 && r.doc >= doc
					may := must
					if must && corr != "" {
						must = slices.Contains([]string{"", corr}, r.corrs[len(r.corrs)-1])
						may = name == "fenced" || slices.Contains(r.corrs, "") || slices.Contains(r.corrs, corr)
					}
					if must && !got[id] || !may && got[id] {
						t.Errorf("%s, since %v, %q: %v of %q is yielded: %t", name, since.run, corr, id, r.corrs, got[id])
					}
					if got[id] {
						n++
					}
				}
				if n != len(got) || corr == "" && n < since.least {
					t.Errorf("%s, since %v, %q: %d of %d are runs", name, since.run, corr, n, len(got))
				}
			}
		}
	}

	// Since has the runs that were written since, if they are few.
	rec, err := s.Get(testContext(t), state.ID{Entity: "agent.x2", Run: "late3"})
	if err != nil {
		t.Fatal(err)
	}
	late := slices.DeleteFunc(slices.Clone(names), func(id state.ID) bool { return m.runs[id].last < rec.Revision })
	for name, reader := range readers {
		got, few, err := reader.Since(testContext(t), rec.Time)
		if slices.SortFunc(got, byName); err != nil || !few || len(got) != 7 || !slices.Equal(got, late) {
			t.Errorf("%s: %q since late3, few: %t, want %q; %v", name, got, few, late, err)
		}
		got, few, err = reader.Since(testContext(t), time.Unix(1, 0))
		if err != nil || few || got != nil {
			t.Errorf("%s: %d of all, few: %t, %v", name, len(got), few, err)
		}
	}

	// A page is the beginning of the list.
	all := m.wanted("", []aaif.RunStatus{aaif.RunPaused})
	for _, n := range []int{1, 7, len(all) - 1} {
		var page []state.ID
		for r, err := range s.Latest(testContext(t), "", func(s aaif.RunStatus) bool { return s == aaif.RunPaused }) {
			if err != nil {
				t.Fatal(err)
			}
			if page = append(page, r.ID); len(page) == n {
				break
			}
		}
		if !slices.Equal(page, all[:n]) {
			t.Errorf("the first %d are %q, want %q", n, page, all[:n])
		}
	}
}

// A run that changes while a list is read is listed only if it still has a wanted status,
// and once if it had one all the time.
func TestRunsChangeWhileTheyAreListed(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js, s := openStates(t)
	m := &model{s: s, runs: map[state.ID]modelRun{}}
	id := func(i int) state.ID { return state.ID{Entity: "agent.x", Run: fmt.Sprint("r", i)} }
	for i := range 100 {
		m.put(t, id(i), aaif.RunAwaitingApproval, true)
	}
	m.bare(t, js, "agent.x", "bare", 3600)
	var got []state.ID
	for r, err := range s.Latest(testContext(t), "", func(s aaif.RunStatus) bool { return s == aaif.RunAwaitingApproval }) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, r.ID); len(got) > 1 {
			continue
		}
		m.put(t, id(0), aaif.RunRunning, true)
		m.put(t, id(1), aaif.RunAwaitingApproval, true)
		m.put(t, id(2), aaif.RunCompleted, true)
		m.reply(t, id(2))
		if err := s.Delete(testContext(t), id(3)); err != nil {
			t.Fatal(err)
		}
	}
	var want []state.ID
	for i := 99; i >= 1; i-- {
		if i != 2 && i != 3 {
			want = append(want, id(i))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d runs %q, want %d %q", len(got), got, len(want), want)
	}
}

// A run that is written so often while a list is read that the message is gone which was its
// last one, is listed by a later one.
func TestARunIsListedThatIsWrittenOverWhileItIsListed(t *testing.T) {
	t.Parallel()
	natstest.Long(t)
	js, s := openStates(t)
	m := &model{s: s, runs: map[state.ID]modelRun{}}
	// More documents than a reader requests at once, so that the server has not sent the
	// last ones when the first one is read.
	for i := range 8300 {
		ack, err := js.PublishMsgAsync(&nats.Msg{Subject: "$KV.aee_state." + jetstream.StateKey(state.ID{Entity: "agent.y", Run: fmt.Sprint("r", i)}), Data: []byte("{}"), Header: nats.Header{
			jetstream.HeaderStatus: {string(aaif.RunRunning)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 != 999 && i != 8299 {
			continue // more than 4,000 may not be under way
		}
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			t.Fatal(err)
		}
	}
	over := state.ID{Entity: "agent.x", Run: "over"}
	m.put(t, over, aaif.RunAwaitingApproval, true)
	m.put(t, state.ID{Entity: "agent.x", Run: "last"}, aaif.RunPaused, true)
	m.bare(t, js, "agent.x", "bare", 3600) // more than is read from the end of the stream
	written := false
	got := latest(t, s, "", func(s aaif.RunStatus) bool {
		if s == aaif.RunRunning && !written {
			written = true
			for range state.HistoryLimit {
				m.put(t, over, aaif.RunAwaitingApproval, true)
			}
		}
		return s == aaif.RunAwaitingApproval
	})
	if !written || !slices.Equal(got, []state.ID{over}) {
		t.Errorf("%q are listed", got)
	}
}

// A list whose reader stops waiting ends with an error.
func TestAListOfRunsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, s := openStates(t)
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	n := 0
	for _, err := range s.Latest(ctx, "", nil) {
		if n++; err == nil {
			t.Error("a run")
		}
	}
	if n != 1 {
		t.Errorf("%d elements", n)
	}
}
