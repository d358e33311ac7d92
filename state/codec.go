package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
)

// Limits that hold where a [Codec] leaves them at zero.
const DefaultMaxBytes = 16 << 20

// maxDepth bounds how deep a document nests. What Encode writes is held to it
// too, so that nothing is stored that cannot be read.
const maxDepth = 128

// Errors for errors.Is.
var (
	// ErrInvalid: no Agent State document, or one that breaks its schema.
	ErrInvalid = errors.New("no valid Agent State document")
	// ErrChecksum: provenance.checksum is not that of the document, or is
	// missing.
	ErrChecksum = errors.New("the checksum does not match")
	// ErrNoChecksum: the document has none, or a text in its place that is none. It
	// is ErrChecksum, too.
	ErrNoChecksum error = noChecksum{}
	// ErrNewer: a newer release has written the document in a form that this one
	// does not know.
	ErrNewer = errors.New("written by a newer release")
	// ErrSealed: the document is sealed, and its key is not at hand.
	ErrSealed = errors.New("sealed")
	// ErrForged: the document is sealed with a key that is at hand, and was
	// altered since, or the key is another one of the same id.
	ErrForged = errors.New("the seal is broken")
	// ErrClear: the document is clear, and the codec takes only sealed ones.
	ErrClear = errors.New("not sealed, where only sealed documents count")
	// ErrReplaced: the record is sealed, and not the one that was stored at this
	// revision of this run: an older one, or another run's, was put in its place.
	ErrReplaced = errors.New("another record was put in the place of this one")
	// ErrElsewhere: the record only says where the document is, see [Refer].
	ErrElsewhere = errors.New("the document is kept elsewhere")
	// ErrTooLarge: the document is larger than the codec's limit.
	ErrTooLarge = errors.New("too large")
)

// A Codec writes checkpoints as Agent State documents and reads them. The zero
// Codec writes clear JSON. It may be used by any number of goroutines, as long
// as none of them changes it.
type Codec struct {
	// Encoding is [aaif.JSON], the default, or [aaif.CBOR], for what Encode and
	// Marshal write. Decode reads both.
	//
	// JSON is in the canonical form of RFC 8785; CBOR in the core deterministic
	// encoding of RFC 8949, section 4.2.1, and costs several times as much to
	// write. The checksum is the same for both.
	Encoding aaif.Format

	// Seal encrypts all that is written, and decrypts what was sealed with any
	// of its keys. Clear documents are refused then (ErrClear): who may write to the
	// store must not be believed without the key. nil: what is written is clear, and
	// what is sealed cannot be read.
	Seal *Keyring
	// AcceptClear reads clear documents with Seal, too: so that a mesh may begin to
	// seal, or for what is vouched for otherwise. What is written next is sealed.
	AcceptClear bool

	// MaxBytes bounds the encoded document, written or read. Default
	// [DefaultMaxBytes], 16 MiB.
	MaxBytes int

	// Unchecked reads documents without a checksum, as the schema allows. A
	// wrong checksum is refused all the same. The default refuses both: "The
	// receiving platform MUST verify the checksum before restoring".
	Unchecked bool

	// Now is the clock for checkpoint_at. Default [time.Now].
	Now func() time.Time

	bound bool   // see Over
	over  uint64 // the revision
}

// Over is the codec that writes a document to be stored over a revision of its run
// (prev of [Store.Put]). A seal covers that, and [Codec.Read] holds the record to it.
func (k Codec) Over(prev uint64) Codec {
	k.bound, k.over = true, prev
	return k
}

func (k Codec) maxBytes() int {
	if k.MaxBytes > 0 {
		return k.MaxBytes
	}
	return DefaultMaxBytes
}

// Encode captures a checkpoint: it gives c a state_id of its own, the time of
// now as checkpoint_at and its checksum, counts down what memories have left to live,
// and writes the document. On error c
// is what it was.
func (k Codec) Encode(c *Checkpoint) ([]byte, error) { return k.EncodeIn(nil, c) }

// EncodeIn is [Codec.Encode] in the memory of buf, as far as that is large
// enough: what it returns may lie there. Who writes many checkpoints, and each is stored before the next one is made,
// spares the collector their garbage.
func (k Codec) EncodeIn(buf []byte, c *Checkpoint) ([]byte, error) {
	now := time.Now
	if k.Now != nil {
		now = k.Now
	}
	id, at, trail := c.Doc.StateID, c.Doc.CheckpointAt, c.Mesh.Trail
	memories, memoryAt := c.Doc.MemorySnapshot, c.memoryAt
	t := now()
	c.Doc.MemorySnapshot, c.memoryAt = c.memoriesLeft(t)
	c.Doc.StateID, c.Doc.CheckpointAt, c.Mesh.Trail = newStateID(), Time(t), c.trail()
	data, err := k.marshalIn(buf, c)
	if err != nil {
		c.Doc.StateID, c.Doc.CheckpointAt, c.Mesh.Trail = id, at, trail
		c.Doc.MemorySnapshot, c.memoryAt = memories, memoryAt
	}
	return data, err
}

// Marshal writes the document of a checkpoint that was captured before, with
// its state_id and checkpoint_at as they are, and its checksum anew: to export
// it, or to write it in another encoding or under another key. Two results for
// the same checkpoint are the same bytes, unless they are sealed.
func (k Codec) Marshal(c *Checkpoint) ([]byte, error) { return k.marshalIn(nil, c) }

func (k Codec) marshalIn(buf []byte, c *Checkpoint) ([]byte, error) {
	data, err := k.marshal(buf, c)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint of run %s: %w", clip.Text(c.Doc.RunID, 80), err)
	}
	return data, nil
}

func (k Codec) marshal(buf []byte, c *Checkpoint) ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	size := 2048
	if c.texts != nil {
		size = c.texts.size()
		size += size / 16 // as long as the last one, and a little
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	text, checksum, err := c.appendDocument(buf[:0])
	if err != nil {
		return nil, err
	}
	if len(text) > k.maxBytes() {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(text), k.maxBytes())
	}
	sum := checksum.sum(text)
	if k.Seal != nil {
		if text, err = k.Seal.seal(c.header(), text, k); err != nil {
			return nil, err
		}
	}
	switch k.Encoding {
	case "", aaif.JSON:
	case aaif.CBOR:
		if text, err = aaif.JSONToCBOR(text, maxDepth); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("encoding %q: want json or cbor", k.Encoding)
	}
	if len(text) > k.maxBytes() {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(text), k.maxBytes())
	}
	if c.Doc.Provenance == nil {
		c.Doc.Provenance = &aaif.StateProvenance{SourcePlatform: Platform}
	}
	c.Doc.Provenance.Checksum = sum
	return text, nil
}

// Decode reads one document, JSON or CBOR, sealed or clear, and verifies its
// checksum over the canonical JSON. A document of another platform, without our
// extension member, is held to the schema besides; its Mesh is zero.
//
// The errors wrap ErrInvalid, ErrChecksum, ErrNewer, ErrSealed, ErrForged, ErrClear,
// ErrElsewhere or ErrTooLarge. The checkpoint keeps nothing of data.
func (k Codec) Decode(data []byte) (*Checkpoint, error) {
	c, _, err := k.decode(data)
	if err != nil {
		return nil, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, nil
}

// Read is [Codec.Decode] for a record of a store. A sealed one must be of the run that
// it is stored as, and written for the revision that it was stored over
// ([Codec.Over]); else the error wraps ErrReplaced.
//
// It cannot tell this of the first record of a run, nor of those of releases and
// callers that did not bind theirs.
func (k Codec) Read(rec Record) (*Checkpoint, error) {
	c, seal, err := k.decode(rec.Data)
	if err != nil {
		return nil, fmt.Errorf("decode checkpoint: %w", err)
	}
	switch {
	case seal == nil:
	case c.ID() != rec.ID:
		return nil, fmt.Errorf("decode checkpoint: %w: it is of run %s of %s", ErrReplaced, clip.Text(c.Doc.RunID, 80), clip.Text(c.Mesh.Entity, 80))
	case seal.Over != nil && *seal.Over > 0 && (!rec.Swapped || rec.Over != *seal.Over):
		return nil, fmt.Errorf("decode checkpoint: %w: it was written over revision %d, and stored over %d", ErrReplaced, *seal.Over, rec.Over)
	}
	return c, nil
}

func (k Codec) decode(data []byte) (c *Checkpoint, seal *sealed, err error) {
	if len(data) > k.maxBytes() {
		return nil, nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(data), k.maxBytes())
	}
	text, err := asJSON(data)
	if err != nil {
		return nil, nil, err
	}
	p, err := parse(text)
	if err != nil {
		return nil, nil, err
	}
	if err := p.verify(k.Unchecked); err != nil {
		return nil, nil, err
	}
	switch {
	case p.outer.Object != nil:
		return nil, nil, ErrElsewhere
	case p.outer.Sealed != nil:
		seal = p.outer.Sealed
		if text, err = k.Seal.open(p); err != nil {
			return nil, nil, err
		}
		if p, err = parse(text); err != nil {
			return nil, nil, err
		}
		if p.outer.Sealed != nil || p.outer.Object != nil {
			return nil, nil, fmt.Errorf("%w: a seal within a seal", ErrInvalid)
		}
	case k.Seal != nil && !k.AcceptClear:
		return nil, nil, ErrClear
	}
	c, err = p.checkpoint()
	return c, seal, err
}

// asJSON is a document's JSON text, whichever encoding it came in. No JSON text
// begins with the first byte of a CBOR map.
func asJSON(data []byte) ([]byte, error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalid)
	}
	if data[0] < 0x80 || data[0] > 0xbf {
		return data, nil
	}
	text, err := aaif.CBORToJSON(data, maxDepth)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return text, nil
}
