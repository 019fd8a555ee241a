package checkpoint

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mt/model"
)

// Source is what saves take from the model directory that weights were loaded
// from: the tensors beside the parameters that are trained, such as vision
// towers, heads for further tokens and buffers. Files that hold any stay open, so
// a save succeeds even where the directory is gone by then.
type Source struct {
	files *source
	others
}

// others are the tensors of a directory that belong to no parameter.
type others struct {
	entries []*entry
	tied    string // the name of a head that is stored although it is tied; "" for none
}

// OpenSource opens the weights in the model directory dir. It fails where LoadModel
// could not fill layers of these layouts: every file and tensor must be there, in range
// and of the right shape, and no unknown tensor may look trained. Only headers are
// read.
func OpenSource(dir string, layouts []model.Layout) (*Source, error) {
	files, err := openSource(dir)
	if err != nil {
		return nil, fmt.Errorf("model weights: %w", err)
	}
	s := &Source{files: files}
	if s.others, err = files.check(layouts); err != nil {
		files.Close()
		return nil, fmt.Errorf("model weights: %w", err)
	}
	held := map[*shard]bool{}
	for _, e := range s.entries {
		held[e.from.shard] = true
	}
	for _, sh := range files.shards {
		if !held[sh] {
			_ = sh.file.Close() // only read
		}
	}
	return s, nil
}

// Close closes the files; no save with s may be under way.
func (s *Source) Close() { s.files.Close() }

// files plans the files of a model: the weights of o.Layouts, then, in files of
// their own, what o.Source has beside them.
func (o WriterOptions) files() []*file {
	weights := weightEntries(o.Layouts, o.SaveDType)
	if o.Source == nil {
		return modelFiles(o.MaxShardBytes, weights)
	}
	var beside []*entry
	if o.Source.tied != "" {
		head := *weights[0] // the embedding as it is trained: the head that is stored would not be tied to it any more
		head.name = o.Source.tied
		beside = append(beside, &head)
	}
	for _, e := range o.Source.entries {
		copied := *e // its place in the file is this save's
		beside = append(beside, &copied)
	}
	return modelFiles(o.MaxShardBytes, weights, beside)
}

// check says whether every parameter of layouts is there, and lists the others.
func (s *source) check(layouts []model.Layout) (others, error) {
	if _, err := s.match(layouts); err != nil {
		return others{}, err
	}
	return s.others(layouts)
}

// others lists the tensors that belong to no parameter of layouts, in the order
// of the files. One that looks like a weight of a layer that is trained is an
// error: config.json does not announce it, so the model would be computed without
// it.
func (s *source) others(layouts []model.Layout) (others, error) {
	known := tableOf(layouts)
	var out others
	for _, name := range s.names() {
		if whole := standsFor(name); known.names[name] || known.names[whole] && s.where[whole] == nil {
			continue
		}
		if known.tied[name] {
			if err := s.checkShape(name, layouts[0]); err != nil {
				return others{}, err
			}
			out.tied = name
			continue
		}
		if why := known.refuses(name); why != "" && !s.where[name].tensors[name].untrained() {
			return others{}, fmt.Errorf("%s: tensor %q: %s", s.where[name].path, name, why)
		}
		out.entries = append(out.entries, s.copied(name))
	}
	return out, nil
}

// copied is an entry that copies a tensor as it is.
func (s *source) copied(name string) *entry {
	sh := s.where[name]
	in := sh.tensors[name]
	e := &entry{tensor: tensor{name: name, dtype: in.dtype, shape: in.shape, bytes: in.bytes}, layer: fromFile,
		elems: in.bytes / dtypeSize[in.dtype], plane: planeAsIs, from: &stored{shard: sh, in: in}}
	if e.shape == nil {
		e.shape = []int64{}
	}
	return e
}

// checkShape compares the shape of a head that is tied with the embedding's.
func (s *source) checkShape(head string, embedding model.Layout) error {
	sh, want := s.where[head], entriesOf(0, embedding, planeF32)[0].shape
	if in := sh.tensors[head]; !slices.Equal(in.shape, want) {
		return fmt.Errorf("%s: tensor %q: its shape is %v, but config.json ties it to the embedding, which is %v",
			sh.path, head, in.shape, want)
	}
	return nil
}

// checkTied compares head, stored although it is tied, with the embedding, where
// both have one dtype.
func (s *source) checkTied(head string, embedding model.Layout) error {
	table := embedding.Tensors[0].Stored[0].Name
	a, b := s.where[head], s.where[table]
	if a == nil || b == nil {
		return nil
	}
	x, y := a.tensors[head], b.tensors[table]
	if x.dtype != y.dtype || x.bytes != y.bytes {
		return nil
	}
	bufX, bufY := make([]byte, min(pieceBytes, x.bytes)), make([]byte, min(pieceBytes, x.bytes))
	at := int64(0)
	return a.each(x, bufX, func(p []byte) error {
		q := bufY[:len(p)]
		if err := b.readAt(y, at, q); err != nil {
			return err
		}
		if !bytes.Equal(p, q) {
			return fmt.Errorf("%s: tensor %q: differs from %q, to which config.json ties it: set tie_word_embeddings to false there, or remove the tensor",
				a.path, head, table)
		}
		at += int64(len(p))
		return nil
	})
}

// table holds the names of the parameters.
type table struct {
	names   map[string]bool
	modules map[string]bool // names without their last word: a module that has a weight may have a bias
	blocks  string          // "model.layers.", or what takes its place beside a vision tower
	count   int             // decoder blocks
	tied    map[string]bool // the names a head can have where it is tied
}

// blocksOf is how the names of the blocks' tensors begin, before the number of the block.
func blocksOf(layouts []model.Layout) string {
	for _, l := range layouts {
		if l.Kind.BeginsBlock() {
			before, _, _ := strings.Cut(l.Tensors[0].Stored[0].Tensor(), strconv.Itoa(l.Block)+".")
			return before
		}
	}
	return ""
}

func tableOf(layouts []model.Layout) table {
	t := table{names: map[string]bool{}, modules: map[string]bool{}, tied: map[string]bool{}, blocks: blocksOf(layouts)}
	top := strings.TrimSuffix(t.blocks, "layers.")
	for _, l := range layouts {
		if l.Kind != model.Embedding && l.Kind != model.Head {
			t.count = max(t.count, l.Block+1)
		}
		if l.Tied {
			for _, head := range []string{"lm_head", strings.TrimSuffix(top, "model.") + "lm_head"} {
				t.tied[head+".weight"], t.modules[head] = true, true
			}
		}
		for _, p := range l.Tensors {
			for _, st := range p.Stored {
				if !p.Ref {
					t.names[st.Tensor()], t.modules[moduleOf(st.Tensor())] = true, true
				}
			}
		}
	}
	return t
}

func moduleOf(name string) string { return name[:max(0, strings.LastIndexByte(name, '.'))] }

// buffers are endings of the names of values that older versions of Transformers saved and that
// follow from config.json.
var buffers = []string{".inv_freq", ".original_inv_freq", ".cos_cached", ".sin_cached", ".masked_bias", ".position_ids"}

// untrained tells whether t cannot be a weight, in whatever module it lies: a buffer, truth values or 64-bit integers.
func (t tensor) untrained() bool { return t.isBuffer() || t.dtype == "BOOL" || t.dtype == "I64" }

// isBuffer tells whether t follows from config.json: by its name, or as a mask (1, 1, n, n) of positions, a shape that no
// parameter has.
func (t tensor) isBuffer() bool {
	for _, end := range buffers {
		if strings.HasSuffix(t.name, end) || t.name == end[1:] {
			return true
		}
	}
	return len(t.shape) == 4 && t.shape[0] == 1 && t.shape[1] == 1 && t.shape[2] == t.shape[3]
}

// quantized are endings of the tensors that stand for, or beside, quantized
// weights.
var quantized = regexp.MustCompile(`(_scale|_scale_inv|_scale_2|_zero_point|_packed|\.qweight|\.qzeros|\.scales|\.g_idx|\.absmax|\.quant_map|\.SCB|quant_state\..*)$`)

// refuses says why the tensor cannot be passed over; "" if it can. It cannot where it
// lies in a block that is trained, or in the module of a parameter.
func (t table) refuses(name string) string {
	inside := t.modules[moduleOf(name)]
	if rest, ok := strings.CutPrefix(name, t.blocks); ok {
		digits, _, _ := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(digits); err == nil && n < t.count {
			inside = true
		}
	}
	switch {
	case !inside:
		return ""
	case quantized.MatchString(name):
		return "belongs to quantized weights, which cannot be trained; take the model's unquantized directory"
	}
	return "config.json announces no such parameter, and the model would be computed without it: it is another architecture, " +
		"or a key such as attention_bias or num_hidden_layers is wrong"
}

// stored is a tensor of another directory.
type stored struct {
	shard *shard
	in    tensor
}

// pieces passes the tensor's bytes to put, as they are or, where to says so, as
// fp32 or bf16.
func (s *stored) pieces(to plane, buf []byte, put func([]byte) error) error {
	from, ok := weightPlane(s.in.dtype)
	if to == planeAsIs || ok && to.dtype == s.in.dtype {
		return s.shard.each(s.in, buf, put)
	}
	if !ok {
		return fmt.Errorf("%s: tensor %q: its dtype is %s; F32, BF16, F16 and F64 are converted", s.shard.path, s.in.name, s.in.dtype)
	}
	raw := make([]byte, min(int64(len(buf))/4*from.size(), s.in.bytes))
	bits := make([]uint32, int64(len(raw))/from.size())
	return s.shard.each(s.in, raw, func(p []byte) error {
		part := bits[:int64(len(p))/from.size()]
		widen(part, from, p)
		return put(narrow(buf, to, part))
	})
}
