package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"mt/model"
)

// packed is a quantized tensor of a model directory: E4M3 with scales (fp8.go) or MXFP4 (mxfp4.go).
type packed interface {
	// line returns the number of elements in a row of the tensor.
	line() int64
	// bytes returns the size of the codes and the scales in bytes.
	bytes() int64
	// path returns the file of the codes.
	path() string
	// read decodes rows [from, to) into dst. Rows are numbered through all slices. raw is a buffer; read returns it
	// for reuse.
	read(from, to int64, dst []float32, raw []byte) ([]byte, error)
	// asStored returns a copy of e, an entry of plane planeF32, that describes the rows as the quantized tensor
	// holds them. MXFP4 never holds them transposed, even if an unquantized tensor would (placed.go).
	asStored(e *entry) *entry
	// saved returns the entries that save e in the tensor's format: codes and scales.
	saved(e *entry) []*entry
}

// packedAs returns the quantized tensor that holds the values of e; nil: there is none. If its shape, dtype or
// scales are wrong, it returns an error.
func (s *source) packedAs(e *entry) (packed, error) {
	if sh := s.where[e.name]; sh != nil {
		p, err := s.scaledOf(e.name)
		if p == nil || err != nil {
			return nil, err
		}
		return p, nil
	}
	p, err := s.mxfp4As(e)
	if p == nil || err != nil {
		return nil, err
	}
	return p, nil
}

// readPacked is target.read for a quantized tensor: it decodes the tensor into l and calls done with the bytes
// read.
func (t target) readPacked(l Layer, done func(n int64)) error {
	e, line := t.packed.asStored(t.entry), t.packed.line()
	var at int64
	bits := make([]byte, 4*min(wholeLines(line), e.elems))
	total := t.packed.bytes()
	var told int64
	err := decodeRows(t.packed, 0, e.elems/line, func(part []float32) {
		for i, v := range part {
			binary.LittleEndian.PutUint32(bits[4*i:], math.Float32bits(v))
		}
		raw := bits[:4*len(part)]
		if e.placed != nil {
			e.scatter(l, planeF32, at, raw)
		} else {
			l.decode(e.layout, planeF32, e.elem+at, raw)
		}
		at += int64(len(part))
		read := int64(float64(total) * (float64(at) / float64(e.elems)))
		done(read - told)
		told = read
	})
	return err
}

// wholeLines returns the number of elements to decode together: whole lines of line elements each,
// as many as take about pieceBytes in fp32, but at least one line.
func wholeLines(line int64) int64 { return max(1, pieceBytes/4/line) * line }

// decodeRows decodes rows [from, to) of p and passes the values to use, several rows at a time.
func decodeRows(p packed, from, to int64, use func(part []float32)) error {
	line := p.line()
	values := make([]float32, min(wholeLines(line), (to-from)*line))
	step := int64(len(values)) / line
	var raw []byte
	for ; from < to; from += step {
		part := values[:(min(from+step, to)-from)*line]
		var err error
		if raw, err = p.read(from, min(from+step, to), part, raw); err != nil {
			return err
		}
		use(part)
	}
	return nil
}

// readElems decodes len(dst) elements of p, starting at element elem.
func readElems(p packed, elem int64, dst []float32) error {
	line, end := p.line(), elem+int64(len(dst))
	at := elem / line * line
	return decodeRows(p, elem/line, (end+line-1)/line, func(part []float32) {
		from, to := max(at, elem), min(at+int64(len(part)), end)
		copy(dst[from-elem:], part[from-at:to-at])
		at += int64(len(part))
	})
}

// packedRows returns the quantized tensor that holds p.Stored[i], a range of rows of the parameter
// p; nil: the rows are not quantized.
func (w *Weights) packedRows(p model.Param, i int) packed {
	entries := addPlaced(nil, 0, model.TensorLayout{Param: p}, i, planeF32)
	found, _ := w.src.packedAs(entries[0]) // shapes were checked by Check
	return found
}

// activationScales matches the names of scales of activations and of a key/value cache. They serve a quantized forward
// pass, which mt does not compute.
var activationScales = regexp.MustCompile(`[._](activation|input|output|q|k|v)_scale$`)

// belongs reports whether the tensor name holds scales. If they scale a weight, it also returns the weight's name;
// for scales of activations weight is "". ok is false if the tensor holds no scales.
func (s *source) belongs(name string) (weight string, ok bool) {
	for _, end := range scaleEnds {
		if weight, ok := strings.CutSuffix(name, end); ok && s.isE4M3(weight) {
			return weight, true
		}
	}
	return "", activationScales.MatchString(name) && s.anyE4M3()
}

// PartOf returns the name of the quantized weight whose codes or scales the tensor name holds. It returns "" if the
// tensor holds neither, or codes under the weight's own name.
func (w *Weights) PartOf(name string) string {
	if weight, _ := w.src.belongs(name); weight != "" {
		return weight
	}
	if whole := standsFor(name); whole != name && w.src.where[whole+blocksEnd] != nil && w.src.where[whole+scalesEnd] != nil {
		return whole
	}
	return ""
}

func (s *source) isE4M3(name string) bool {
	sh := s.where[name]
	return sh != nil && sh.tensors[name].dtype == e4m3
}

// anyE4M3 reports whether a tensor of the directory is in E4M3.
func (s *source) anyE4M3() bool {
	for name := range s.where {
		if s.isE4M3(name) {
			return true
		}
	}
	return false
}

// Counts are numbers of tensors in a model directory.
type Counts struct {
	E4M3, MXFP4 int // quantized weights of trained layers
	Activations int // scales of activations
}

// Counts returns how many tensors of the directory are quantized.
func (s *Source) Counts() Counts { return s.counts }

// count counts the quantized tensors among targets.
func count(targets []target) (n Counts) {
	for _, t := range targets {
		switch t.packed.(type) {
		case *scaled:
			n.E4M3++
		case *mxfp4:
			n.MXFP4++
		}
	}
	return n
}

// CanSaveAsRead returns an error if weights of the directory cannot be saved in the format that they were read in:
// E4M3, MXFP4, BF16 and F32 can.
func (s *Source) CanSaveAsRead(layouts []model.Layout) error {
	for _, e := range weightEntries(layouts, AsRead) {
		if sh := s.files.where[e.name]; sh != nil {
			in := sh.tensors[e.name]
			if t, err := s.files.scaledOf(e.name); err != nil {
				return err
			} else if t != nil {
				in = t.inScales
			}
			if !slices.Contains([]string{planeF32.dtype, planeBF16.dtype, e8m0}, in.dtype) {
				return fmt.Errorf("%s: tensor %q: its dtype is %s, which is not written; choose bf16 or fp32", sh.path, in.name, in.dtype)
			}
		}
	}
	return nil
}

// asRead takes entries that save weights in fp32 (planeF32). It returns entries that save each
// weight in the directory's format for the weight.
func (s *Source) asRead(entries []*entry) (out []*entry) {
	for _, e := range entries {
		p, err := s.files.packedAs(e)
		if err == nil && p != nil {
			out = append(out, p.saved(e)...)
			continue
		}
		if sh := s.files.where[e.name]; sh == nil || sh.tensors[e.name].dtype != planeF32.dtype {
			e.plane, e.dtype, e.bytes = planeBF16, planeBF16.dtype, e.elems*planeBF16.size()
		}
		out = append(out, e)
	}
	return out
}
