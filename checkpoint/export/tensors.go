package export

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mt/checkpoint"
	"mt/checkpoint/gguf"
	"mt/model"
)

// item is one tensor of the GGUF file, the source of its values and their conversion.
type item struct {
	gguf.Tensor
	parts  []part    // tensors of the directory, concatenated
	values []float32 // computed values, instead of parts
	heads  int       // not 0: number of heads, whose rows are reordered (interleave)
	shift  float32   // added to every element
	minus  bool      // write −exp of every element
	scales []scaled  // rows to multiply; nil: none
	rows   headRows  // n not 0: write only these rows of each head
	tiled  tiledHeads
}

// scaled is a number of rows and the factor of each of their elements.
type scaled struct {
	rows int
	by   float64
}

// part is a tensor of the directory, or rows inside a tensor that several parameters share. Such rows have the name
// and shape of a tensor of their own.
type part struct {
	name  string
	shape []int64
	param *model.Param // nil: a whole tensor
	i     int          // index into the parameter's Stored
	first int64        // elements of the tensor, or of these rows, before the part
}

// elems returns the number of elements of the part.
func (p part) elems() int64 {
	n := int64(1)
	for _, d := range p.shape {
		n *= d
	}
	return n
}

// finder finds tensors of a directory by the names in the families' table, and records which were requested.
type finder struct {
	w     *checkpoint.Weights
	top   string // the directory's prefix for names that begin with "model." in the families' table
	head  string // the directory's prefix for "lm_head"
	asked map[string]bool
	rows  map[string]part // rows inside shared tensors, by name
}

// newFinder returns a finder of tensors in w. It fails if w does not hold the weights that c
// describes.
func newFinder(w *checkpoint.Weights, c *model.Config) (*finder, error) {
	if err := w.Check(c.Layouts(false)); err != nil {
		return nil, err
	}
	f := &finder{w: w, asked: map[string]bool{}, rows: map[string]part{}}
	f.top, f.head = c.Prefixes()
	f.head = strings.TrimSuffix(f.head, ".")
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			for i, s := range p.Stored {
				if s.Place.Tensor != "" {
					f.rows[s.Name] = part{name: s.Name, shape: p.StoredShape(i), param: &p, i: i}
				}
			}
		}
	}
	return f, nil
}

// find returns the tensor of the directory for a name in the families' table, and records that it was requested;
// false: there is none.
func (f *finder) find(name string) (part, bool) {
	if rest, ok := strings.CutPrefix(name, "model."); ok {
		name = f.top + rest
	} else if rest, ok := strings.CutPrefix(name, "lm_head"); ok {
		name = f.head + rest
	}
	if rows, ok := f.rows[name]; ok {
		f.asked[rows.param.Stored[rows.i].Tensor()] = true
		return rows, true
	}
	f.asked[name] = true
	t, ok := f.w.Tensor(name)
	return part{name: name, shape: t.Shape}, ok
}

func (f *finder) missing(name string) error {
	return fmt.Errorf("%s: tensor %q is missing: not the weights that config.json describes", f.w.Dir(), name)
}

// tensors plans all tensors in the order of llama.cpp's loader: the embedding, the blocks, the final norm and the
// head.
func (p *plan) tensors(f *finder) error {
	top, blocks := p.family.top, cmp.Or(p.family.blocks, "layers.")
	if top == nil {
		top = outer
	}
	for i, r := range top {
		if i == 1 { // after the embedding
			for b := range p.layers {
				for _, r := range p.rules(b) {
					in := fmt.Sprintf("model.%s%d.", blocks, b)
					from := in + strings.ReplaceAll(r.from, " ", " "+in)
					if err := p.tensor(f, rule{from, fmt.Sprintf("blk.%d.%s", b, r.to), r.how}); err != nil {
						return err
					}
				}
			}
		}
		if r.to == "output" && p.model.TieEmbeddings {
			if slices.Equal(p.scales[r.to], p.scales[top[0].to]) {
				continue // llama.cpp uses the embedding as the head
			}
			r.from = top[0].from
		}
		if err := p.tensor(f, r); err != nil {
			return err
		}
	}
	p.rest(f)
	return nil
}

// rules returns the rules for the tensors of block b, which may have experts, a dense MLP or a recurrence.
func (p *plan) rules(b int) []rule {
	of := p.family.block
	switch {
	case p.family.recurrentDense != nil && p.model.IsRecurrent(b) && !p.model.HasExperts(b):
		return p.family.recurrentDense
	case p.model.IsRecurrent(b):
		return p.family.recurrent
	case p.family.dense != nil && !p.model.HasExperts(b):
		of = p.family.dense
	}
	if p.family.mla {
		return slices.Concat(p.mlaRules(), of)
	}
	return of
}

// tensor plans the GGUF tensors that rule r makes: the weight of a module, and its bias if there is one.
func (p *plan) tensor(f *finder, r rule) error {
	ends := []string{".weight", ".bias"}
	switch r.how {
	case experts, expertsFirst, expertsSecond:
		return p.experts(f, r)
	case perBlock:
		return p.perBlock(f, r)
	case stacked:
		return p.stacked(f, r)
	case keysOfHeads, valuesOfHeads:
		return p.ofHeads(f, r)
	case firstHalf, secondHalf:
		return p.half(f, r)
	case bare, rates, column:
		ends = []string{""}
	}
	for i, end := range ends {
		t, ok := f.find(r.from + end)
		if !ok {
			if i == 0 && r.how != normIfAny && r.how != copiedIfAny && r.how != byGroup {
				return f.missing(r.from + end)
			}
			continue
		}
		it := item{Tensor: gguf.Tensor{Name: r.to + end, Shape: t.shape}, parts: []part{t}, minus: r.how == rates}
		it.scales = p.scales[r.to[strings.LastIndexByte(r.to, '.')+1:]]
		switch {
		case r.how == single:
			it.Shape = t.shape[1:]
		case r.how == taps && len(t.shape) > 2: // else it is the bias
			it.Shape = []int64{t.shape[0], t.shape[2]}
		case r.how == tapsOfFour:
			it.Shape = []int64{1, t.shape[0], 1, t.shape[2]}
		case r.how == column || r.how == rates && p.model.GatedDeltaNet == nil:
			it.Shape = []int64{t.elems(), 1}
		case r.how == byGroup:
			n := int64(p.model.Mamba2.Groups)
			it.Shape = []int64{n, t.shape[0] / n}
		case r.how == norm || r.how == normIfAny:
			it.shift = p.family.shift
		case r.how == queries && p.family.halves:
			it.heads = p.heads
		case r.how == keys && p.family.halves:
			it.heads = p.kvHeads
		}
		if p.family.tiled {
			it.tiled = tiledIn(r.from, p.model.GatedDeltaNet)
		}
		p.take(it, r.how)
	}
	return nil
}

// tiledIn returns how to reorder the value heads in a tensor of the named module of Gated DeltaNet. It returns the
// zero value if the tensor needs no reordering.
func tiledIn(module string, r *model.GatedDeltaNet) tiledHeads {
	_, module, ok := strings.Cut(module, ".linear_attn.")
	if !ok || r.Heads == r.KeyHeads {
		return tiledHeads{}
	}
	h := tiledHeads{size: int64(r.ValueDim), heads: int64(r.KeyHeads), columns: module == "out_proj"}
	switch module {
	case "norm": // all heads share the norm
		return tiledHeads{}
	case "in_proj_qkv", "conv1d":
		h.first = int64(2 * r.Keys())
	case "in_proj_a", "in_proj_b", "A_log", "dt_bias":
		h.size = 1
	}
	return h
}

// half plans a tensor with the first or second half (r.how) of the rows of a combined projection, such as gate and
// up.
func (p *plan) half(f *finder, r rule) error {
	t, ok := f.find(r.from + ".weight")
	if !ok {
		return f.missing(r.from + ".weight")
	}
	t = t.half(r.how == secondHalf)
	p.take(item{Tensor: gguf.Tensor{Name: r.to + ".weight", Shape: t.shape}, parts: []part{t}}, r.how)
	return nil
}

// half returns the first or second half of the rows.
func (p part) half(second bool) part {
	p.shape = slices.Clone(p.shape)
	if p.shape[0] /= 2; second {
		p.first += p.elems()
	}
	return p
}

// xIELU are the constants of the activation xIELU, for directories that lack them.
var xIELU = map[string]float32{"xielu.beta": 0.5, "xielu.eps": -1e-6}

// perBlock adds the single value of a tensor to the GGUF key r.to, after the block's prefix.
func (p *plan) perBlock(f *finder, r rule) error {
	key := strings.SplitN(r.to, ".", 3)[2]
	t, ok := f.find(r.from)
	value := []float32{xIELU[key]}
	switch {
	case !ok && value[0] == 0:
		return f.missing(r.from)
	case ok:
		if err := f.w.Read(t.name, 0, value); err != nil {
			return err
		}
	}
	p.append(key, value[0])
	return nil
}

// stacked concatenates the rows of several modules into one tensor, and their biases into another.
func (p *plan) stacked(f *finder, r rule) error {
	for _, end := range []string{".weight", ".bias"} {
		var it item
		for _, module := range strings.Fields(r.from) {
			t, ok := f.find(module + end)
			if !ok && end == ".weight" {
				return f.missing(module + end)
			} else if !ok {
				return nil
			}
			if it.Shape == nil {
				it.Shape = append([]int64{0}, t.shape[1:]...)
			}
			it.Shape[0] += t.shape[0]
			it.parts = append(it.parts, t)
		}
		it.Name = r.to + end
		p.take(it, r.how)
	}
	return nil
}

// experts plans one tensor of shape (experts, rows, columns) from the matrices of all experts. If they have biases,
// it plans another tensor of shape (experts, rows).
func (p *plan) experts(f *finder, r rule) error {
	modules := strings.Fields(r.from)
	for _, end := range []string{".weight", ".bias"} {
		var it item
		for i := range p.model.NumExperts * len(modules) {
			module := modules[i%len(modules)]
			dot := strings.LastIndexByte(module, '.')
			name := module[:dot] + "." + strconv.Itoa(i/len(modules)) + module[dot:] + end
			t, ok := f.find(name)
			if !ok && end == ".bias" && i == 0 {
				return nil
			}
			if !ok {
				return f.missing(name)
			}
			if r.how != experts {
				t = t.half(r.how == expertsSecond)
			}
			it.Shape = t.shape
			it.parts = append(it.parts, t)
		}
		it.Name = r.to + end
		it.Shape = append([]int64{int64(p.model.NumExperts), it.Shape[0] * int64(len(modules))}, it.Shape[1:]...)
		if p.take(it, r.how); end == ".bias" {
			p.items[len(p.items)-1].Type = gguf.F32
		}
	}
	return nil
}

// take adds an item to the plan and sets its type. Vectors, norms, routers and convolution taps are fp32, also where a
// vector has become a matrix. Other
// tensors have the requested type, but F16 instead of Q8_0 if a row is no multiple of a Q8_0 block.
func (p *plan) take(it item, h how) {
	it.Type = p.out.gguf()
	switch {
	case len(it.Shape) < 2 || h == norm || h == normIfAny || h == router || h == taps || h == tapsOfFour || h == rates || h == column || h == byGroup:
		it.Type = gguf.F32
	case it.Type == gguf.Q8_0 && it.Shape[len(it.Shape)-1]%gguf.BlockLen != 0:
		it.Type = gguf.F16
		p.narrow = append(p.narrow, it.Name)
	}
	p.items = append(p.items, it)
}

// rest adds two notes that may matter to the user. One lists matrices of another type than requested. The other
// lists tensors that were left out because they belong to other parts of a larger model.
func (p *plan) rest(f *finder) {
	if n := len(p.narrow); n > 0 {
		p.note(fmt.Sprintf("%d tensors are F16, such as %s: their rows are no multiple of %d elements", n, p.narrow[0], gguf.BlockLen))
	}
	var left []string
	for _, t := range f.w.Tensors() {
		if f.asked[f.w.PartOf(t.Name)] {
			continue
		}
		tied := t.Name == f.head+".weight" || t.Name == strings.TrimSuffix(f.top, "model.")+"lm_head.weight"
		if !f.asked[t.Name] && !tied && !strings.HasSuffix(t.Name, ".rotary_emb.inv_freq") {
			left = append(left, t.Name)
		}
	}
	if len(left) > 0 {
		p.note(fmt.Sprintf("%d tensors that are not the language model's are left out, such as %s", len(left), left[0]))
	}
}
