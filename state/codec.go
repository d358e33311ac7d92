package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/aeemesh/aeemesh/state/internal/rawdoc"
)

// DefaultMaxBytes is the size limit of a [Codec] whose MaxBytes is zero.
const DefaultMaxBytes = 16 << 20

// MaxDepth limits the nesting of a document. Encode obeys it too, so that everything it
// writes can be read.
const MaxDepth = rawdoc.MaxDepth

// Errors for errors.Is.
var (
	// ErrInvalid: not an Agent State document, or one that violates its schema.
	ErrInvalid = errors.New("no valid Agent State document")
	// ErrChecksum: provenance.checksum does not match the document, or is missing.
	ErrChecksum = errors.New("the checksum does not match")
	// ErrNoChecksum: the document has no checksum, or a text that is not a checksum. Such
	// an error is ErrChecksum, too.
	ErrNoChecksum error = noChecksum{}
	// ErrNewer: a newer release wrote the document in a format that this release does not
	// know.
	ErrNewer = errors.New("written by a newer release")
	// ErrSealed: the document is sealed with a key that the codec does not have.
	ErrSealed = errors.New("sealed")
	// ErrForged: the document is sealed with a known key and was changed afterwards, or
	// it was sealed with another key of the same id.
	ErrForged = errors.New("the seal is broken")
	// ErrClear: the document is not sealed, and the codec accepts only sealed ones.
	ErrClear = errors.New("not sealed, and only sealed documents are accepted")
	// ErrReplaced: the record is sealed, but was not written for this run or this
	// revision: an older record, or that of another run, was stored in its place.
	ErrReplaced = errors.New("another record replaced this one")
	// ErrElsewhere: the record only refers to the document, see [Refer].
	ErrElsewhere = errors.New("the document is stored elsewhere")
	// ErrTooLarge: the document is larger than the codec's limit.
	ErrTooLarge = errors.New("too large")
)

// A Codec encodes checkpoints as Agent State documents and decodes them. The zero Codec
// writes JSON without a seal. Any number of goroutines may use a Codec, as long as none
// changes it.
type Codec struct {
	// Encoding is the format that Encode and Marshal write: [aaif.JSON], the default, or
	// [aaif.CBOR]. Decode reads both.
	//
	// JSON is written in the canonical form of RFC 8785; CBOR in the core deterministic
	// encoding of RFC 8949, section 4.2.1, which costs several times as much. The
	// checksum is the same for both.
	Encoding aaif.Format

	// Seal encrypts all documents that are written, and decrypts those that any of its
	// keys has sealed. Documents that are not sealed are refused then (ErrClear): a user
	// who may write to the store must not be believed without the key. nil: documents are
	// written unsealed, and sealed ones cannot be read.
	Seal *Keyring
	// AcceptClear makes a codec with Seal read unsealed documents too: for a mesh that
	// starts to use sealing, or for documents that are authenticated by other means. It
	// still seals what it writes.
	AcceptClear bool

	// MaxBytes limits the encoded document, written or read. Default [DefaultMaxBytes],
	// 16 MiB.
	MaxBytes int

	// Unchecked accepts documents without a checksum, which the schema allows. A wrong
	// checksum is refused all the same. The default refuses both: "The receiving platform
	// MUST verify the checksum before restoring".
	Unchecked bool

	// Now is the clock for checkpoint_at. Default [time.Now].
	Now func() time.Time

	bound bool   // see Over
	over  uint64 // the revision
}

// Over returns a codec that writes a document which replaces revision prev of its run
// (prev of [Store.Put]). A seal covers prev, and [Codec.Read] compares it with the
// record's.
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

// Encode captures a checkpoint: it sets a new state_id, the current time as checkpoint_at
// and the checksum in c, reduces the remaining time to live of memories, and writes the
// document. On error c is unchanged.
func (k Codec) Encode(c *Checkpoint) ([]byte, error) { return k.EncodeIn(nil, c) }

// EncodeIn is [Codec.Encode] into the memory of buf, if that is large enough; the result
// may share it. It saves garbage for a caller that writes many checkpoints and stores
// each before it encodes the next.
func (k Codec) EncodeIn(buf []byte, c *Checkpoint) ([]byte, error) {
	data, _, err := k.EncodeDigest(buf, c)
	return data, err
}

// EncodeDigest is [Codec.EncodeIn] that also returns the document's digest, in the form of
// [Object], if it is a by-product of the checksum. It is "" for a small, a sealed or a CBOR
// document.
func (k Codec) EncodeDigest(buf []byte, c *Checkpoint) (data []byte, digest string, err error) {
	now := time.Now
	if k.Now != nil {
		now = k.Now
	}
	id, at, trail := c.Doc.StateID, c.Doc.CheckpointAt, c.Mesh.Trail
	memories, memoryAt := c.Doc.MemorySnapshot, c.memoryAt
	t := now()
	c.Doc.MemorySnapshot, c.memoryAt = c.memoriesLeft(t)
	c.Doc.StateID, c.Doc.CheckpointAt, c.Mesh.Trail = uuid.NewString(), Time(t), c.trail()
	data, digest, err = k.marshalIn(buf, c)
	if err != nil {
		c.Doc.StateID, c.Doc.CheckpointAt, c.Mesh.Trail = id, at, trail
		c.Doc.MemorySnapshot, c.memoryAt = memories, memoryAt
	}
	return data, digest, err
}

// Marshal writes the document of a checkpoint that was captured before, with its state_id
// and checkpoint_at unchanged and a new checksum: to export it, or to write it in another
// encoding or with another key. Unless they are sealed, two results for the same
// checkpoint have the same bytes.
func (k Codec) Marshal(c *Checkpoint) ([]byte, error) {
	data, _, err := k.marshalIn(nil, c)
	return data, err
}

func (k Codec) marshalIn(buf []byte, c *Checkpoint) (data []byte, digest string, err error) {
	if data, digest, err = k.marshal(buf, c); err != nil {
		return nil, "", fmt.Errorf("encode checkpoint of run %s: %w", clip.Text(c.Doc.RunID, 80), err)
	}
	return data, digest, nil
}

func (k Codec) marshal(buf []byte, c *Checkpoint) (data []byte, digest string, err error) {
	if err := c.check(); err != nil {
		return nil, "", err
	}
	size := spare
	if c.texts != nil {
		size = c.texts.size()
		size += size / 16 // as long as the last document, and some spare
	}
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	text, checksum, err := c.appendDocument(buf[:0])
	if err != nil {
		return nil, "", err
	}
	if len(text) > k.maxBytes() {
		return nil, "", fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(text), k.maxBytes())
	}
	sum, digest := checksum.sum(text)
	if k.Seal != nil {
		digest = ""
		if text, err = k.Seal.seal(c.header(), text, k); err != nil {
			return nil, "", err
		}
	}
	switch k.Encoding {
	case "", aaif.JSON:
	case aaif.CBOR:
		digest = ""
		if text, err = aaif.JSONToCBOR(text, MaxDepth); err != nil {
			return nil, "", err
		}
	default:
		return nil, "", fmt.Errorf("encoding %q: want json or cbor", k.Encoding)
	}
	if len(text) > k.maxBytes() {
		return nil, "", fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, len(text), k.maxBytes())
	}
	if c.Doc.Provenance == nil {
		c.Doc.Provenance = &aaif.StateProvenance{SourcePlatform: Platform}
	}
	c.Doc.Provenance.Checksum = sum
	return text, digest, nil
}

// Decode reads one document, JSON or CBOR, sealed or not, and verifies its checksum over
// the canonical JSON; of a sealed one also that of the document within. A document of another
// platform, without the x-aeemesh member, must also conform to the schema; its Mesh is zero.
//
// The errors wrap ErrInvalid, ErrChecksum, ErrNewer, ErrSealed, ErrForged, ErrClear,
// ErrElsewhere or ErrTooLarge. The checkpoint shares no memory with data.
func (k Codec) Decode(data []byte) (*Checkpoint, error) {
	c, _, err := k.decode(data)
	if err != nil {
		return nil, fmt.Errorf("decode checkpoint: %w", err)
	}
	return c, nil
}

// Read is [Codec.Decode] for a record of a store. A sealed record must be of the run
// under which it is stored, and must have been written to replace the revision that the
// store says it replaced ([Codec.Over]); otherwise the error wraps ErrReplaced.
//
// It cannot check the revision of a run's first record, nor of records by releases and
// callers that did not use Over.
//
// For the record of a run that ended without a document ([End]) it returns the last
// checkpoint as far as it is known, without the task. A codec that accepts only sealed
// documents refuses it (ErrClear).
func (k Codec) Read(rec Record) (*Checkpoint, error) {
	if rec.End != nil {
		if k.Seal != nil && !k.AcceptClear {
			return nil, fmt.Errorf("decode checkpoint: %w: %w", ErrClear, errEndNotSealed)
		}
		c, err := rec.ended()
		if err != nil {
			return nil, fmt.Errorf("decode checkpoint: %w", err)
		}
		return c, nil
	}
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

// DecodeRecord is [Codec.Decode] for a record of a store, also for one of a run that ended
// without a document. Unlike [Codec.Read] it does not check where the record stands: it is
// for readers of a history, not for those who go on with a run.
func (k Codec) DecodeRecord(rec Record) (*Checkpoint, error) {
	if rec.End != nil {
		return k.Read(rec)
	}
	return k.Decode(rec.Data)
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
		// Callers compare this checksum with that of a token, which binds the content.
		if err := p.verify(k.Unchecked); err != nil {
			return nil, nil, err
		}
	case k.Seal != nil && !k.AcceptClear:
		return nil, nil, ErrClear
	}
	c, err = p.checkpoint()
	return c, seal, err
}

// asJSON returns a document's JSON text, whichever encoding it has.
func asJSON(data []byte) ([]byte, error) {
	text, err := rawdoc.JSON(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return text, nil
}
