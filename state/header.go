package state

import (
	"fmt"
	"slices"
	"time"

	"github.com/aeemesh/aeemesh/agents/aaif"
	"github.com/aeemesh/aeemesh/envelope/clip"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Header holds the fields that can be read of every document, even of a sealed one
// without the key, and without fetching one that is stored elsewhere.
//
// Neither the checksum nor the seal has been verified: use a Header for lists and
// searches, not to act on a run.
type Header struct {
	StateID   string
	Agent     string // agent_id
	Run       string // run_id
	Status    aaif.RunStatus
	Iteration int64
	At        time.Time // checkpoint_at

	// The following fields are from x-aeemesh; zero in the document of another platform.
	Format int
	Entity string
	TaskID string
	Epoch  uint64
	Owner  string
	Step   StepKind
	Work   uint64
	Waits  []Wait // what the run waits for; nil for a sealed document

	Sealed string  // the id of the key that sealed the document, "" if it is not sealed
	Object *Object // where the document is stored, nil if it is here
}

// An Object says where a large document is stored.
type Object struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`   // bytes
	Digest string `json:"digest"` // "sha256:" and hex, of its bytes
}

// ID returns the name of the run in a store.
func (h Header) ID() ID { return ID{Entity: h.Entity, Run: h.Run} }

// ReadHeader reads the header of a document, JSON or CBOR. It checks no more than it
// must: [Codec.Decode] may still refuse a document with a valid header. The errors wrap
// ErrInvalid or ErrNewer.
func ReadHeader(data []byte) (Header, error) {
	h, err := readHeader(data)
	if err != nil {
		return Header{}, fmt.Errorf("read checkpoint header: %w", err)
	}
	return h, nil
}

func readHeader(data []byte) (Header, error) {
	text, err := asJSON(data)
	if err != nil {
		return Header{}, err
	}
	var doc struct {
		StateID   string         `json:"state_id"`
		Agent     string         `json:"agent_id"`
		Run       string         `json:"run_id"`
		Status    aaif.RunStatus `json:"status"`
		Iteration aaif.Number    `json:"iteration"`
		At        string         `json:"checkpoint_at"`
		Standard  string         `json:"sc_standard"`
		Mesh      jsontext.Value `json:"x-aeemesh"`
	}
	var mesh struct {
		Format int     `json:"format"`
		Entity string  `json:"entity"`
		TaskID string  `json:"task_id"`
		Epoch  uint64  `json:"epoch"`
		Owner  string  `json:"owner"`
		Work   uint64  `json:"work"`
		Waits  []Wait  `json:"waits"`
		Sealed *sealed `json:"sealed"`
		Object *Object `json:"object"`
		Step   struct {
			Kind StepKind `json:"kind"`
		} `json:"step"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return Header{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if doc.Mesh != nil {
		if err := json.Unmarshal(doc.Mesh, &mesh); err != nil {
			return Header{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if doc.Standard != standard {
		return Header{}, invalid("sc_standard must be %s", standard)
	}
	if mesh.Format > Format {
		return Header{}, fmt.Errorf("%w: format %d of %s, this release reads up to %d", ErrNewer, mesh.Format, Extension, Format)
	}
	if doc.Mesh != nil && (mesh.Format < 1 || mesh.Entity == "") {
		return Header{}, invalid("%s has no format or no entity", Extension)
	}
	h := Header{
		StateID: doc.StateID, Agent: doc.Agent, Run: doc.Run, Status: doc.Status, Iteration: doc.Iteration.Int64(), At: readTime(doc.At),
		Format: mesh.Format, Entity: mesh.Entity, TaskID: mesh.TaskID, Epoch: mesh.Epoch, Owner: mesh.Owner,
		Step: mesh.Step.Kind, Work: mesh.Work, Waits: short(mesh.Waits), Object: mesh.Object,
	}
	if mesh.Sealed != nil {
		h.Sealed = mesh.Sealed.Key
	}
	return h, nil
}

// Header returns the header of the document that k writes for c, without reading the document.
func (k Codec) Header(c *Checkpoint) Header {
	h := c.header()
	if k.Seal != nil {
		h.Sealed = k.Seal.newest
	} else {
		h.Waits = short(c.Mesh.Waits)
	}
	return h
}

// header returns the unsealed part of a sealed document, which does not say what the run
// waits for.
func (c *Checkpoint) header() Header {
	d, m := &c.Doc, &c.Mesh
	return Header{
		StateID: d.StateID, Agent: d.AgentID, Run: d.RunID, Status: d.Status, Iteration: d.Iteration.Int64(), At: c.At(),
		Format: m.format(), Entity: m.Entity, TaskID: m.TaskID, Epoch: m.Epoch, Owner: m.Owner, Step: m.Step.Kind, Work: m.Work,
	}
}

// Refer returns a small document that refers to one that is stored elsewhere: its header,
// unsealed, and where it is stored. It is itself a valid Agent State document with its
// own checksum. [ReadHeader] reads it like the whole document; [Codec.Decode] refuses it
// with ErrElsewhere.
func Refer(data []byte, object Object) ([]byte, error) {
	h, err := ReadHeader(data)
	if err != nil {
		return nil, err
	}
	return h.Refer(object)
}

// Refer is [Refer] for a document whose header is known.
func (h Header) Refer(object Object) ([]byte, error) {
	if h.Object != nil {
		return nil, fmt.Errorf("refer to checkpoint of run %s: it is a reference itself", clip.Text(h.Run, 80))
	}
	if h.Entity == "" {
		return nil, fmt.Errorf("refer to checkpoint of run %s: %w: it has no %s", clip.Text(h.Run, 80), ErrInvalid, Extension)
	}
	text, checksum, err := h.append(nil, func(w *writer) {
		w.name("object")
		w.begin()
		w.text("digest", object.Digest)
		w.text("name", object.Name)
		w.name("size")
		w.int("object size", object.Size)
		w.end()
	}, h.sealedOnly())
	if err != nil {
		return nil, fmt.Errorf("refer to checkpoint of run %s: %w", clip.Text(h.Run, 80), err)
	}
	checksum.sum(text)
	return text, nil
}

// sealedOnly writes the member sealed of a reference to a sealed document: only the
// algorithm and the key's id.
func (h Header) sealedOnly() func(*writer) {
	if h.Sealed == "" {
		return nil
	}
	return func(w *writer) {
		w.name("sealed")
		w.begin()
		w.text("alg", sealAlgorithm)
		w.text("key", h.Sealed)
		w.end()
	}
}

// short returns waits without their schemas, which may be long.
func short(waits []Wait) []Wait {
	waits = slices.Clone(waits)
	for i := range waits {
		waits[i].Schema = ""
	}
	return waits
}

// append writes a document with the header, and in x-aeemesh the members that object and
// sealed write.
func (h Header) append(dst []byte, object, sealed func(*writer)) ([]byte, hole, error) {
	c := Checkpoint{
		Doc:  aaif.State{AgentID: h.Agent, CheckpointAt: Time(h.At), RunID: h.Run, StateID: h.StateID, Status: h.Status},
		Mesh: Mesh{Entity: h.Entity, Epoch: h.Epoch, Owner: h.Owner, Step: Step{Kind: h.Step}, TaskID: h.TaskID, Waits: short(h.Waits), Work: h.Work},
	}
	if h.Iteration != 0 {
		c.Doc.Iteration = aaif.Int(h.Iteration)
	}
	w := writer{b: dst, cache: new(texts)}
	checksum := w.document(&c, func(f *field) bool {
		switch {
		case f.name == "format":
			w.name(f.name)
			w.int(f.path, int64(max(1, h.Format)))
			return true
		case f.name == "owner" && object != nil:
			object(&w)
		case f.name == "started_at" && sealed != nil:
			sealed(&w)
		}
		return false
	})
	return w.b, checksum, w.err
}
