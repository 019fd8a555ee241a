package checkpoint

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"mt/model"
)

// target is a checkpoint tensor and the place in memory it belongs to.
type target struct {
	*entry
	src   *shard
	plane plane
	in    tensor
	// packed, unless nil, is what it is read from: then src and plane mean nothing, and in has only the size.
	packed *packed
}

// Progress is told how many of total bytes are done. Calls come from several
// goroutines at once and may come late: the greatest done counts.
type Progress func(done, total int64)

// LoadModel reads the weights of the Hugging Face directory dir (F32, BF16,
// F16, F64 or, of tensors in others (model.Place), MXFP4, sharded or not) into layers, which are all layers of the model. Planes
// beside them are left alone. Every tensor must be there with the right shape;
// a tied lm_head.weight may be there and must then be the embedding. It returns
// the names of the tensors that are not trained (see Source), buffers apart,
// for one note. progress may be nil.
//
// The embedding and the head of the directory have tokens rows, one for each
// token: as many as those of layers, or fewer. Further rows of layers are left
// alone.
func LoadModel(dir string, layers []Layer, tokens int, progress Progress) (others []string, err error) {
	layouts := layoutsOf(layers)
	for i, l := range layouts {
		layouts[i].Tensors = slices.Clone(l.Tensors)
		for k, t := range l.Tensors {
			if t.Role == model.RoleEmbed || t.Role == model.RoleLMHead || t.Role == model.RoleLMHeadBias {
				t.Rows, t.Stored = tokens, []model.Stored{{Name: t.Stored[0].Name, Rows: tokens}}
				layouts[i].Tensors[k] = t // the first rows lie where all rows begin
			}
		}
	}
	src, err := openSource(dir)
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	defer src.Close()
	targets, err := src.match(layouts)
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	rest, err := src.others(layouts)
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	if err := src.checkTied(rest.tied, layouts[0]); err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	if err := src.readAll(targets, layers, progress); err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	for _, e := range rest.entries {
		if !e.isBuffer() {
			others = append(others, e.name)
		}
	}
	slices.Sort(others)
	return others, nil
}

func layoutsOf(layers []Layer) []model.Layout {
	out := make([]model.Layout, len(layers))
	for i, l := range layers {
		out[i] = l.Layout
	}
	return out
}

// CheckModel says whether LoadModel can fill layers of these layouts, as
// OpenSource does.
func CheckModel(dir string, layouts []model.Layout) error {
	w, err := OpenWeights(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Check(layouts)
}

// match finds the tensor of every parameter, before any is read.
func (s *source) match(layouts []model.Layout) ([]target, error) {
	var out []target
	var missing []string
	for i, l := range layouts {
		for _, e := range entriesOf(i, l, planeF32) {
			sh, ok := s.where[e.name]
			if !ok {
				packed, err := s.packedAs(e)
				if err != nil {
					return nil, err
				}
				if packed == nil {
					missing = append(missing, e.name)
				} else {
					out = append(out, target{entry: e, packed: packed, in: tensor{bytes: packed.bytes()}})
				}
				continue
			}
			in := sh.tensors[e.name]
			p, ok := weightPlane(in.dtype)
			if !ok {
				return nil, fmt.Errorf("%s: tensor %q: %s", sh.path, e.name, unreadable(in.dtype))
			}
			if !slices.Equal(in.shape, e.shape) {
				return nil, fmt.Errorf("%s: tensor %q: its shape is %v, config.json asks for %v", sh.path, e.name, in.shape, e.shape)
			}
			out = append(out, target{entry: e, src: sh, plane: p, in: in})
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s: %s missing%s", s.dir, several("tensor", missing), s.whyMissing(missing))
	}
	return out, nil
}

// whyMissing says, behind an error about tensors that are not there, what may be the cause and the way out.
func (s *source) whyMissing(names []string) string {
	for _, name := range names {
		if sh := s.absent[name]; sh != nil {
			return fmt.Sprintf(": %s says that %q is in %s, which does not hold it; %s", indexName, name, sh.name, fetch(s.dir, sh.name))
		}
	}
	first := names[0]
	if strings.HasSuffix(first, "lm_head.weight") && len(names) == 1 {
		return ": the directory has a model without a head, as base classes and embedding models are saved; take one with a head, " +
			"or set tie_word_embeddings to true in config.json to have the embedding serve as one"
	}
	if strings.ContainsAny(first, "0123456789") {
		return ": not the weights that config.json describes"
	}
	own := first[1+strings.LastIndexByte(strings.TrimSuffix(first, ".weight"), '.'):]
	for _, name := range slices.Sorted(maps.Keys(s.where)) {
		if before, ok := strings.CutSuffix(name, own); ok && !strings.HasPrefix(name, strings.TrimSuffix(first, own)) {
			return fmt.Sprintf(": the names there begin with %q, where config.json's class has %q; save the model itself, and not what wraps it "+
				"(a LoRA adapter, torch.compile, a data-parallel module)", before, strings.TrimSuffix(first, own))
		}
	}
	return ": not the weights that config.json describes"
}

// unreadable says why weights of a dtype are not read.
func unreadable(dtype string) string {
	what := fmt.Sprintf("its dtype is %s; F32, BF16, F16 and F64 are read", dtype)
	if dtypeSize[dtype] == 1 {
		what += ": quantized weights cannot be trained, take the model's unquantized directory"
	}
	return what
}

// several quotes up to four names.
func several(what string, names []string) string {
	if len(names) == 1 {
		return fmt.Sprintf("%s %q is", what, names[0])
	}
	shown, rest := names, ""
	if len(names) > 4 {
		shown, rest = names[:3], fmt.Sprintf(" and %d more", len(names)-3)
	}
	return fmt.Sprintf("%ss %q%s are", what, shown, rest)
}

// readAll is read for layers of which some may be lent.
func (s *source) readAll(targets []target, layers []Layer, progress Progress) error {
	if err := s.read(here(targets, layers), layers, nil, progress); err != nil {
		return err
	}
	for i, l := range layers {
		if l.Lend == nil {
			continue
		}
		if err := l.Lend(func(l Layer) error { return s.readLayer(i, l, len(layers), targets, nil) }); err != nil {
			return err
		}
	}
	return nil
}

// here are the targets in layers that are not lent.
func here(targets []target, layers []Layer) (out []target) {
	for _, t := range targets {
		if layers[t.layer].Lend == nil {
			out = append(out, t)
		}
	}
	return out
}

// readLayer is read for the targets in layer i of n alone.
func (s *source) readLayer(i int, l Layer, n int, targets []target, records map[string]fileRecord) error {
	into := make([]Layer, n)
	into[i] = l
	var its []target
	for _, t := range targets {
		if t.layer == i {
			its = append(its, t)
		}
	}
	return s.read(its, into, records, nil)
}

// read reads the data of all targets, several at a time. With records, what is
// read must have the checksums they say.
func (s *source) read(targets []target, layers []Layer, records map[string]fileRecord, progress Progress) error {
	var total int64
	var done atomic.Int64
	for _, t := range targets {
		total += t.in.bytes
	}
	return each(len(targets), func(i int) error {
		t := targets[i]
		sum, err := t.read(layers[t.layer], func(n int64) {
			if d := done.Add(n); progress != nil {
				progress(d, total)
			}
		})
		if err != nil || records == nil {
			return err
		}
		if t.packed != nil {
			return fmt.Errorf("%s: a checkpoint has no tensors in MXFP4", t.packed.blocks.path)
		}
		return records[t.src.name].region(t.name).check(t.src.path, sum)
	})
}

// read reads one tensor in pieces into l.
func (t target) read(l Layer, done func(n int64)) (sum uint32, err error) {
	if t.packed != nil {
		return 0, t.readPacked(l, done)
	}
	piece := int64(pieceBytes)
	if t.placed != nil {
		piece = t.chunk(piece, t.plane.size())
	}
	buf := make([]byte, min(piece, t.in.bytes))
	elem := t.elem
	err = t.src.each(t.in, buf, func(p []byte) error {
		sum = crc32.Update(sum, castagnoli, p)
		if t.placed != nil {
			t.scatter(l, t.plane, elem, p)
		} else {
			l.decode(t.layout, t.plane, elem, p)
		}
		elem += int64(len(p)) / t.plane.size()
		done(int64(len(p)))
		return nil
	})
	return sum, err
}
