package envelope

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
)

// nameSet finds duplicate names in one object: by comparison while there are few names,
// without heap memory, and by their hashes beyond that. It keeps the names, which must
// not change.
type nameSet struct {
	few  [fewNames][]byte
	n    int // of few
	many *manyNames
}

const fewNames = 16

// manyNames is a hash table with open addressing. It is reused for the next object: a
// message may have thousands of objects with slightly too many names for the comparison.
type manyNames struct {
	names [][]byte
	slots []int32 // 0, or 1 + an index into names; the length is a power of two, and at least half are 0
}

// keepSlots is the size of the largest table that is kept for the next object.
const keepSlots = 512

var (
	nameSeed  = maphash.MakeSeed() // so that a sender cannot choose names that collide
	nameTable = sync.Pool{New: func() any { return &manyNames{slots: make([]int32, 4*fewNames)} }}
)

// add adds a name; it returns false if the object has that name already.
func (s *nameSet) add(name []byte) bool {
	if s.many != nil {
		return s.many.add(name)
	}
	for _, other := range s.few[:s.n] {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if s.n < fewNames {
		s.few[s.n] = name
		s.n++
		return true
	}
	s.many = nameTable.Get().(*manyNames)
	for _, other := range s.few {
		s.many.add(other)
	}
	return s.many.add(name)
}

func (m *manyNames) add(name []byte) bool {
	slot := m.find(name)
	if m.slots[slot] != 0 {
		return false
	}
	m.names = append(m.names, name)
	m.slots[slot] = int32(len(m.names))
	if 2*len(m.names) > len(m.slots) {
		m.slots = make([]int32, 2*len(m.slots))
		m.names = slices.Grow(m.names, len(m.names))
		for i, name := range m.names {
			m.slots[m.find(name)] = int32(i + 1)
		}
	}
	return true
}

// find returns the slot of the name, or the free slot for it.
func (m *manyNames) find(name []byte) int {
	mask := len(m.slots) - 1
	i := int(maphash.Bytes(nameSeed, name)) & mask
	for m.slots[i] != 0 && !bytes.Equal(m.names[m.slots[i]-1], name) {
		i = (i + 1) & mask
	}
	return i
}

// release releases the memory after the object was read.
func (s *nameSet) release() {
	if s.many != nil { // rare; the check is inlined
		s.many.release()
	}
}

func (m *manyNames) release() {
	if len(m.slots) > keepSlots {
		return
	}
	clear(m.slots)
	clear(m.names)
	m.names = m.names[:0]
	nameTable.Put(m)
}
