package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"mt/base/files"
)

// maxHeader bounds the JSON header of a safetensors file in bytes, as in the reference implementation.
const maxHeader = 100_000_000

// maxTensors bounds the number of tensors in a file. The largest published files have about 50,000.
const maxTensors = 1 << 18

// maxIndexed bounds the number of tensors in a model.safetensors.index.json.
const maxIndexed = 1 << 19

// dtypeSize is the size of an element in bytes, by safetensors dtype.
var dtypeSize = map[string]int64{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
	"I16": 2, "U16": 2, "F16": 2, "BF16": 2,
	"I32": 4, "U32": 4, "F32": 4,
	"I64": 8, "U64": 8, "F64": 8,
}

// tensor is one entry of a safetensors header.
type tensor struct {
	name  string
	dtype string
	shape []int64
	off   int64 // from the start of the file
	bytes int64
}

// header is the parsed header of a safetensors file.
type header struct {
	bytes   int64    // the 8-byte length and the JSON
	tensors []tensor // in the order of their data
}

// end returns the offset at which the data ends.
func (h header) end() int64 {
	if len(h.tensors) == 0 {
		return h.bytes
	}
	last := h.tensors[len(h.tensors)-1]
	return last.off + last.bytes
}

// lfsPointer is the start of a Git LFS pointer file.
const lfsPointer = "version https://git-lfs"

// errLFS is the error for a Git LFS pointer in place of a file.
var errLFS = errors.New("this is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")

// errTruncated is wrapped by every error about a file that is shorter than its header or record says.
var errTruncated = errors.New("truncated")

// fits returns an error if the dtype or the shape of t differs from those of the entry e.
func (t tensor) fits(e *entry) error {
	if t.dtype != e.dtype || !slices.Equal(t.shape, e.shape) {
		return fmt.Errorf("tensor %q: %s %v, not %s %v", t.name, t.dtype, t.shape, e.dtype, e.shape)
	}
	return nil
}

// readHeader reads the header of a safetensors file from r. size is the file's size; size < 0: a stream of unknown
// length. readHeader checks everything that needs no data: the tensors fill the file without gaps or overlaps, and
// each has the bytes that its dtype and shape require.
func readHeader(r io.Reader, size int64) (header, error) {
	var word [8]byte
	if _, err := io.ReadFull(r, word[:]); err != nil {
		return header{}, truncated(err, "its first 8 bytes")
	}
	if bytes.HasPrefix([]byte(lfsPointer), word[:]) {
		return header{}, errLFS
	}
	n := binary.LittleEndian.Uint64(word[:])
	if n > maxHeader {
		return header{}, fmt.Errorf("not a safetensors file: its header would be %d bytes long", n)
	}
	if size >= 0 && int64(n) > size-8 {
		return header{}, fmt.Errorf("%w: the header is %d bytes long, the file %d", errTruncated, n, size)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil || len(text) < int(n) {
		return header{}, truncated(err, "its header")
	}
	h, err := parseHeader(text)
	if err != nil {
		return header{}, err
	}
	if size >= 0 && h.end() > size {
		i := slices.IndexFunc(h.tensors, func(t tensor) bool { return t.off+t.bytes > size })
		return header{}, fmt.Errorf("tensor %q: %w: its data end at byte %d, the file at %d", h.tensors[i].name, errTruncated, h.tensors[i].off+h.tensors[i].bytes, size)
	}
	if size >= 0 && h.end() < size {
		return header{}, fmt.Errorf("%d bytes after the last tensor", size-h.end())
	}
	return h, nil
}

// truncated returns an errTruncated if err is the end of the file, or nil after too few bytes. `what` names the part
// that was being read. Other errors are returned unchanged.
func truncated(err error, what string) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the file ends in %s", errTruncated, what)
	}
	return err
}

// parseHeader reads text, the JSON of a safetensors header.
func parseHeader(text []byte) (header, error) {
	h := header{bytes: 8 + int64(len(text))}
	if len(text) == 0 || text[0] != '{' {
		return h, errors.New("not a safetensors file: the header is not a JSON object")
	}
	seen := map[string]bool{}
	var bad error // the error of a tensor; err is an error of the JSON
	err := files.Members(text, func(name string, val []byte) error {
		if name == "__metadata__" && !seen[name] {
			seen[name] = true
			return nil
		}
		var t tensor
		switch {
		case seen[name]:
			bad = fmt.Errorf("tensor %q: appears twice", name)
		case len(h.tensors) == maxTensors:
			bad = fmt.Errorf("more than %d tensors in one file", maxTensors)
		default:
			if t, bad = parseTensor(name, val, h.bytes); bad != nil {
				bad = fmt.Errorf("tensor %q: %w", name, bad)
			}
		}
		seen[name] = true
		h.tensors = append(h.tensors, t)
		return bad
	})
	switch {
	case bad != nil:
		return h, bad
	case err != nil && strings.HasSuffix(err.Error(), "after top-level value"):
		return h, errors.New("header: text after the closing brace")
	case err != nil:
		return h, fmt.Errorf("header: %w", err)
	}
	return h, h.order()
}

// headerEntry is the JSON object that describes one tensor in a header.
type headerEntry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// parseEntry reads the entry of one tensor. It parses the usual form (a plain string and lists of integers)
// directly, several times faster than encoding/json. encoding/json reads any other form.
func parseEntry(val []byte) (v headerEntry, err error) {
	plain := true
	err = files.Members(val, func(key string, value []byte) error {
		switch key {
		case "dtype":
			v.DType = string(bytes.Trim(value, `"`))
			plain = plain && len(value) == len(v.DType)+2
		case "shape":
			v.Shape, plain = parseInts(value, plain)
		case "data_offsets":
			v.Offsets, plain = parseInts(value, plain)
		default:
			plain = false
		}
		return nil
	})
	if err == nil && plain {
		return v, nil
	}
	v = headerEntry{}
	return v, json.Unmarshal(val, &v)
}

// parseInts parses a JSON list of integers. The bool is false if list is anything else, or if the
// argument plain is false. parseEntry passes the bool of one call as plain to the next, and so
// learns whether all of its lists were plain.
func parseInts(list []byte, plain bool) ([]int64, bool) {
	if len(list) < 2 || list[0] != '[' {
		return nil, false
	}
	out := make([]int64, 0, 4)
	for part := range bytes.SplitSeq(bytes.TrimSpace(list[1:len(list)-1]), []byte(",")) {
		if part = bytes.TrimSpace(part); len(part) == 0 && len(out) == 0 {
			continue
		}
		n, err := strconv.ParseInt(string(part), 10, 64)
		if err != nil {
			return nil, false
		}
		out = append(out, n)
	}
	return out, plain
}

func parseTensor(name string, val []byte, dataStart int64) (tensor, error) {
	v, err := parseEntry(val)
	if err != nil {
		return tensor{}, fmt.Errorf("header: %w", err)
	}
	size, ok := dtypeSize[v.DType]
	if !ok {
		return tensor{}, fmt.Errorf("unknown dtype %q; F32, BF16, F16 and F64 weights are read", v.DType)
	}
	if len(v.Offsets) != 2 || v.Offsets[0] < 0 || v.Offsets[1] < v.Offsets[0] || v.Offsets[1] > math.MaxInt64-dataStart {
		return tensor{}, fmt.Errorf("impossible data_offsets %v", v.Offsets)
	}
	want := size
	for _, d := range v.Shape {
		if d < 0 || (d > 0 && want > math.MaxInt64/d) {
			return tensor{}, fmt.Errorf("impossible shape %v", v.Shape)
		}
		want *= d
	}
	t := tensor{name: name, dtype: v.DType, shape: v.Shape, off: dataStart + v.Offsets[0], bytes: v.Offsets[1] - v.Offsets[0]}
	if t.bytes != want {
		return tensor{}, fmt.Errorf("%s %v takes %d bytes, data_offsets %v have %d", v.DType, v.Shape, want, v.Offsets, t.bytes)
	}
	if v.Offsets[0]%size != 0 {
		return tensor{}, fmt.Errorf("misaligned: its data begin at %d, not a multiple of the %d bytes of %s", v.Offsets[0], size, v.DType)
	}
	return t, nil
}

// order sorts the header's tensors by offset. It fails unless their data fill the file without gaps or overlaps.
func (h *header) order() error {
	slices.SortStableFunc(h.tensors, func(a, b tensor) int {
		if a.off != b.off {
			return int(max(-1, min(1, a.off-b.off)))
		}
		return int(max(-1, min(1, a.bytes-b.bytes)))
	})
	at := h.bytes
	for i, t := range h.tensors {
		switch {
		case t.off < at:
			return fmt.Errorf("tensor %q: its data overlap those of tensor %q", t.name, h.tensors[i-1].name)
		case t.off > at:
			return fmt.Errorf("tensor %q: %d unused bytes before its data", t.name, t.off-at)
		}
		at += t.bytes
	}
	return nil
}

// headerBytes returns the header of a file that holds ts in this order, and sets off in each. The header is padded
// so that the data begin at a multiple of 8 bytes.
func headerBytes(ts []*entry) []byte { return paddedHeader(ts, 8) }

// paddedHeader does the same as headerBytes, but pads the header so that the data begin at a
// multiple of align bytes. align must be a multiple of 8.
func paddedHeader(ts []*entry, align int) []byte {
	text := []byte(`{"__metadata__":{"format":"pt"}`)
	var off int64
	for _, t := range ts {
		shape, _ := json.Marshal(t.shape)
		name, _ := json.Marshal(t.name) // numbers and a string: no errors
		text = append(append(text, ','), name...)
		text = fmt.Appendf(text, `:{"dtype":%q,"shape":%s,"data_offsets":[%d,%d]}`, t.dtype, shape, off, off+t.bytes)
		off += t.bytes
	}
	text = append(text, '}')
	for (8+len(text))%align != 0 {
		text = append(text, ' ')
	}
	start := 8 + int64(len(text))
	for _, t := range ts {
		t.off = start
		start += t.bytes
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
}
