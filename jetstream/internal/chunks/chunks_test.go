package chunks

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"testing"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/aeemesh/aeemesh/mesh/natsd"
	"github.com/aeemesh/aeemesh/mesh/natsd/natstest"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	js, err := natsjs.New(natstest.Conn(t, natstest.Run(t, natsd.Config{JetStream: true})))
	if err != nil {
		t.Fatal(err)
	}
	s := New(js, "documents")
	if _, err := js.CreateStream(t.Context(), natsjs.StreamConfig{Name: s.Stream(), Subjects: []string{"$O.documents.>"}, AllowDirect: true}); err != nil {
		t.Fatal(err)
	}
	return s
}

// A document is read as it was written, whatever its size, and no part of another one.
func TestADocumentIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	names := []string{"agent_a.run1/t1", "agent_a.run1/t2", HandoffPrefix + "agent_a.run1/t1"}
	for i, size := range []int{1, Size, 2*Size + 1} {
		data := bytes.Repeat([]byte{byte('a' + i)}, size)
		if err := s.Write(t.Context(), names[i], data); err != nil {
			t.Fatal(err)
		}
		got, err := s.Read(t.Context(), Object(names[i], data))
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes of %d, %v", names[i], len(got), size, err)
		}
	}
	all, err := s.All(t.Context())
	if got := slices.Sorted(maps.Keys(all)); err != nil || !slices.Equal(got, names) {
		t.Errorf("all are %q, %v; want %q", got, err, names)
	}
	if err := s.Delete(t.Context(), names[0], 0); err != nil {
		t.Fatal(err)
	}
	all, err = s.All(t.Context())
	if got := slices.Sorted(maps.Keys(all)); err != nil || !slices.Equal(got, names[1:]) {
		t.Errorf("after the first is deleted: %q, %v", got, err)
	}
}

// What is stored after the last sequence of a deletion stays.
func TestADeletionSparesWhatIsStoredAfterIt(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const name = "agent_a.run1/t1"
	data := bytes.Repeat([]byte("a"), Size+1)
	for range 2 {
		if err := s.Write(t.Context(), name, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Delete(t.Context(), name, 2); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context(), Object(name, data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := s.Delete(t.Context(), name, 4); err != nil {
		t.Fatal(err)
	}
	if all, err := s.All(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left are %v, %v", all, err)
	}
}

// What is not the document of the record is an error: a part of it, another one, or none.
func TestAWrongDocumentIsAnError(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const name = "agent_a.run1/t1"
	if err := s.Write(t.Context(), name, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(t.Context(), Object(name, []byte("abd"))); !errors.Is(err, ErrOther) {
		t.Errorf("other bytes: %v", err)
	}
	if _, err := s.Read(t.Context(), Object(name, []byte("ab"))); !errors.Is(err, ErrOther) {
		t.Errorf("a document that is longer: %v", err)
	}
	if _, err := s.Read(t.Context(), Object(name, []byte("abcd"))); !errors.Is(err, ErrGone) {
		t.Errorf("a part: %v", err)
	}
	if _, err := s.Read(t.Context(), Object("agent_a.run1/t2", []byte("abc"))); !errors.Is(err, ErrGone) {
		t.Errorf("none: %v", err)
	}
}

func TestTheSubjectOfAChunkNamesItsObject(t *testing.T) {
	t.Parallel()
	s := New(nil, "documents")
	for _, name := range []string{"agent_a.run1/t1", HandoffPrefix + "agent_a.run1/t1"} {
		if got, ok := s.NameAt(s.chunk(name, "7")); !ok || got != name {
			t.Errorf("%q, %t; want %q", got, ok, name)
		}
	}
	for _, subj := range []string{"$O.documents.C.token", "$O.documents.C.token.0", "$O.documents.M.agent_a.run1.t1.0", "$O.other.C.agent_a.run1.t1.0"} {
		if got, ok := s.NameAt(subj); ok {
			t.Errorf("%s is a chunk of %q", subj, got)
		}
	}
}
