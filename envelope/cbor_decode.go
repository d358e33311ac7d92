package envelope

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"
)

// A CBOR message is converted to JSON text in three passes over its bytes. count refuses
// messages with too many values, and allocates nothing. index checks every data item and
// records where it ends. write uses that index to write the members of a map in order,
// without a tree in memory. Data that JSON cannot represent is refused: names that are
// not text, duplicate names, byte strings, tags, simple values except three, NaN and
// infinities. Indefinite lengths are refused because deterministic encoding forbids them
// (RFC 8949, section 4.2.1).

// The major types of CBOR (RFC 8949, section 3.1).
const (
	cborUint byte = iota
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
	cborSimple
)

var cborKinds = [...]string{"positive integer", "negative integer", "byte string", "text string", "array", "map", "tag", "simple value"}

// cborDecoder decodes one message. The zero value is ready to use.
type cborDecoder struct {
	data     []byte
	pos      int
	maxDepth int
	size     int // approximate length of the JSON
	items    []cborItem
	members  []cborMember // of all open maps
}

// cborItem is one data item: the position of its head, and the index of the item that
// follows it and everything inside it.
type cborItem struct{ at, next int32 }

type cborMember struct {
	name  []byte
	value int32 // an item
}

var cborDecoders = sync.Pool{New: func() any { return new(cborDecoder) }}

// cborToJSON returns the JSON of a message with at most maxValues values and at most
// maxDepth nested maps and arrays.
func cborToJSON(data []byte, maxValues, maxDepth int) ([]byte, error) {
	d := cborDecoders.Get().(*cborDecoder)
	defer d.release()
	d.data, d.maxDepth = data, maxDepth
	n, err := d.count(maxValues)
	if err != nil {
		return nil, err
	}
	if len(data) > d.pos {
		return nil, d.fail("more bytes than the value has")
	}
	d.pos, d.size = 0, 0
	d.items = slices.Grow(d.items[:0], n)
	if err := d.index(0); err != nil {
		return nil, err
	}
	out, _, err := d.write(make([]byte, 0, d.size), 0)
	return out, err
}

// release puts d into the pool, without references to the caller's memory, and unless one
// huge message has made its buffers too large.
func (d *cborDecoder) release() {
	clear(d.members[:cap(d.members)])
	d.data, d.pos, d.members = nil, 0, d.members[:0]
	if cap(d.items) <= 1<<12 && cap(d.members) <= 1<<10 {
		cborDecoders.Put(d)
	}
}

func (d *cborDecoder) fail(format string, args ...any) error {
	return fmt.Errorf("the message is no CBOR that has a JSON equivalent: "+format+" at byte %d", append(args, d.pos)...)
}

// head scans the head of a data item: its major type, the five bits of additional
// information, and its argument.
func (d *cborDecoder) head() (major, info byte, arg uint64, err error) {
	rest := d.data[d.pos:]
	if len(rest) == 0 {
		return 0, 0, 0, d.fail("unexpected end")
	}
	major, info = rest[0]>>5, rest[0]&31
	size := 0
	switch {
	case info < 24:
		arg = uint64(info)
	case info < 28:
		size = 1 << (info - 24)
	case info == 31 && cborBytes <= major && major <= cborMap:
		return major, info, 0, d.fail("%s of indefinite length", cborKinds[major])
	default:
		return major, info, 0, d.fail("%s with additional information %d", cborKinds[major], info)
	}
	if len(rest) <= size {
		return major, info, 0, d.fail("unexpected end")
	}
	switch rest = rest[1:]; size {
	case 1:
		arg = uint64(rest[0])
	case 2:
		arg = uint64(binary.BigEndian.Uint16(rest))
	case 4:
		arg = uint64(binary.BigEndian.Uint32(rest))
	case 8:
		arg = binary.BigEndian.Uint64(rest)
	}
	d.pos += 1 + size
	return major, info, arg, nil
}

// count scans one value and returns the number of its data items. It accepts a declared
// length only if there are enough bytes for it.
func (d *cborDecoder) count(maxValues int) (items int, err error) {
	values := 1
	for left := 1; left > 0; left-- {
		items++
		at := d.pos
		major, _, arg, err := d.head()
		if err != nil {
			return 0, err
		}
		if cborBytes <= major && major <= cborMap && arg > uint64(len(d.data)-d.pos) {
			return 0, d.fail("unexpected end")
		}
		switch major {
		case cborBytes, cborText:
			d.pos += int(arg)
		case cborArray, cborMap:
			if values += int(arg); values > maxValues {
				d.pos = at
				return 0, d.fail("more than %d values", maxValues)
			}
			if left += int(arg); major == cborMap {
				left += int(arg)
			}
		case cborTag:
			d.pos = at
			return 0, d.fail("tag")
		}
	}
	return items, nil
}

// CutCBOR splits the first data item off a CBOR sequence (RFC 8742). If it finds no end of the
// item, first is all of data, and [ParseCBOR] reports what is wrong with it.
func CutCBOR(data []byte) (first, rest []byte) {
	d := cborDecoder{data: data}
	if _, err := d.count(math.MaxInt32 / 2); err != nil {
		return data, nil
	}
	return data[:d.pos:d.pos], data[d.pos:]
}

// index checks the value at pos, which is nested depth levels deep, and records its
// items.
func (d *cborDecoder) index(depth int) error {
	me, at := len(d.items), d.pos
	d.items = append(d.items, cborItem{at: int32(at)})
	major, info, arg, err := d.head()
	if err != nil {
		return err
	}
	d.size += 2*(d.pos-at) + 1 // approximate length of a number, or of brackets and commas
	switch major {
	case cborText:
		text := d.data[d.pos : d.pos+int(arg)]
		if !utf8.Valid(text) {
			return d.fail("text that is not valid UTF-8")
		}
		d.pos += int(arg)
		d.size += jsonSize(text)
	case cborArray, cborMap:
		if depth >= d.maxDepth {
			d.pos = at
			return d.fail("values nested deeper than %d", d.maxDepth)
		}
		for range arg {
			if major == cborMap {
				if d.pos < len(d.data) && d.data[d.pos]>>5 != cborText {
					return d.fail("a name is a %s, and must be text,", cborKinds[d.data[d.pos]>>5])
				}
				if err := d.index(depth + 1); err != nil {
					return err
				}
			}
			if err := d.index(depth + 1); err != nil {
				return err
			}
		}
	case cborBytes:
		d.pos = at
		return d.fail("byte string")
	case cborSimple:
		if f, isFloat := cborFloat(info, arg); isFloat && (math.IsNaN(f) || math.IsInf(f, 0)) {
			d.pos = at
			return d.fail("number %v", f)
		} else if !isFloat && (info < 20 || info > 22) { // false, true, null
			d.pos = at
			return d.fail("simple value %d", arg)
		}
	}
	d.items[me].next = int32(len(d.items))
	return nil
}

// jsonSize estimates the length of a text as a JSON string.
func jsonSize(text []byte) int {
	size := len(text) + 2
	for i := plainEnd(text, 0); i < len(text); i = plainEnd(text, i+1) {
		switch c := text[i]; {
		case c == '"', c == '\\':
			size++
		case c < 0x20:
			size += 5
		}
	}
	return size
}

// cborFloat returns the value of a simple value that is a float.
func cborFloat(info byte, arg uint64) (f float64, isFloat bool) {
	switch info {
	case 25:
		return halfFloat(uint16(arg)), true
	case 26:
		return float64(math.Float32frombits(uint32(arg))), true
	case 27:
		return math.Float64frombits(arg), true
	}
	return 0, false
}

// halfFloat decodes a half-precision float (RFC 8949, appendix D).
func halfFloat(bits uint16) float64 {
	exp, mant := int(bits>>10&31), float64(bits&1023)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(mant, -24)
	case 31:
		if f = math.Inf(1); mant != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(mant+1024, exp-25)
	}
	if bits&0x8000 != 0 {
		f = math.Copysign(f, -1)
	}
	return f
}

// write appends the JSON of an item that index accepted, and returns the index of the
// next item.
func (d *cborDecoder) write(dst []byte, item int32) (_ []byte, next int32, err error) {
	d.pos = int(d.items[item].at)
	major, info, arg, _ := d.head()
	next = d.items[item].next
	switch major {
	case cborUint:
		dst = strconv.AppendUint(dst, arg, 10)
	case cborNegative:
		switch {
		case arg <= math.MaxInt64:
			dst = strconv.AppendInt(dst, -1-int64(arg), 10)
		case arg == math.MaxUint64:
			dst = append(dst, "-18446744073709551616"...)
		default:
			dst = strconv.AppendUint(append(dst, '-'), arg+1, 10)
		}
	case cborText:
		dst = AppendString(dst, d.data[d.pos:d.pos+int(arg)])
	case cborArray:
		dst = append(dst, '[')
		for i := item + 1; i < next; {
			if i > item+1 {
				dst = append(dst, ',')
			}
			if dst, i, err = d.write(dst, i); err != nil {
				return dst, 0, err
			}
		}
		dst = append(dst, ']')
	case cborMap:
		d.members = slices.Grow(d.members, int(arg))
		dst, err = d.writeMap(dst, item+1, next)
	case cborSimple:
		if f, isFloat := cborFloat(info, arg); isFloat {
			return appendTreeFloat(dst, f), next, nil
		}
		dst = append(dst, [...]string{"false", "true", "null"}[info-20]...)
	}
	return dst, next, err
}

// writeMap writes the members whose items begin at from, sorted by name.
func (d *cborDecoder) writeMap(dst []byte, from, to int32) (_ []byte, err error) {
	base := len(d.members)
	sorted := true
	for i := from; i < to; {
		d.pos = int(d.items[i].at)
		_, _, size, _ := d.head()
		m := cborMember{d.data[d.pos : d.pos+int(size)], i + 1}
		if n := len(d.members); n > base && bytes.Compare(d.members[n-1].name, m.name) >= 0 {
			sorted = false
		}
		d.members = append(d.members, m)
		i = d.items[i+1].next
	}
	if !sorted {
		slices.SortFunc(d.members[base:], func(a, b cborMember) int { return bytes.Compare(a.name, b.name) })
	}
	dst = append(dst, '{')
	for i, end := base, len(d.members); i < end; i++ {
		m := d.members[i]
		if i > base {
			if bytes.Equal(d.members[i-1].name, m.name) {
				d.pos = int(d.items[m.value-1].at)
				return dst, d.fail("duplicate name %s", quoteName(m.name))
			}
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, m.name), ':')
		if dst, _, err = d.write(dst, m.value); err != nil {
			return dst, err
		}
	}
	d.members = d.members[:base]
	return append(dst, '}'), nil
}
