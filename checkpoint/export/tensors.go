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

// item is one tensor of the file and where its values come from.
type item struct {
	gguf.Tensor
	parts  []part    // of the directory, one after the other
	values []float32 // in place of parts
	heads  int       // not 0: the rows of each head are reordered
	shift  float32   // added to every element
	minus  bool      // −exp of every element is what is written
	rows   headRows  // n is not 0: these of each head are all that is written
}

// part is a tensor of the directory, or rows that lie in one with others, which then have the name and shape
// of a tensor of their own.
type part struct {
	name  string
	shape []int64
	param *model.Param // nil: it is a tensor
	i     int          // which rows of the parameter's Stored it is
}

// elems is the number of elements.
func (p part) elems() int64 {
	n := int64(1)
	for _, d := range p.shape {
		n *= d
	}
	return n
}

// finder hands out the tensors of a directory, which has the names and shapes of package
// model's table, and knows which were not asked for.
type finder struct {
	w     *checkpoint.Weights
	top   string // where names begin that the families' table begins with "model."
	head  string // the same of "lm_head"
	asked map[string]bool
	rows  map[string]part // those that lie in others, by name
}

// newFinder checks that w is the weights c describes.
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
					f.rows[s.Name] = part{s.Name, p.StoredShape(i), &p, i}
				}
			}
		}
	}
	return f, nil
}

// find is a tensor by its name in the families' table.
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

// tensors plans all tensors of the directory in the order llama.cpp's loader
// walks: the embedding, the blocks, the head.
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
			continue // llama.cpp takes the embedding
		}
		if err := p.tensor(f, r); err != nil {
			return err
		}
	}
	p.rest(f)
	return nil
}

// rules are those of block b.
func (p *plan) rules(b int) []rule {
	of := p.family.block
	switch {
	case p.model.IsRecurrent(b):
		of = p.family.recurrent
	case p.family.dense != nil && !p.model.HasExperts(b):
		of = p.family.dense
	}
	if p.family.mla {
		return slices.Concat(p.mlaRules(), of)
	}
	return of
}

// tensor plans the weight of a module, and its bias if there is one.
func (p *plan) tensor(f *finder, r rule) error {
	ends := []string{".weight", ".bias"}
	switch r.how {
	case experts:
		return p.experts(f, r)
	case stacked:
		return p.stacked(f, r)
	case keysOfHeads, valuesOfHeads:
		return p.ofHeads(f, r)
	case firstHalf, secondHalf:
		return p.half(f, r)
	case bare, rates:
		ends = []string{""}
	}
	for i, end := range ends {
		t, ok := f.find(r.from + end)
		if !ok {
			if i == 0 && r.how != normIfAny {
				return f.missing(r.from + end)
			}
			continue
		}
		it := item{Tensor: gguf.Tensor{Name: r.to + end, Shape: t.shape}, parts: []part{t}}
		switch {
		case r.how == single:
			it.Shape = t.shape[1:]
		case r.how == taps:
			it.Shape = []int64{t.shape[0], t.shape[2]}
		case r.how == rates:
			it.minus = true
		case r.how == norm || r.how == normIfAny:
			it.shift = p.family.shift
		case r.how == queries && p.family.halves:
			it.heads = p.heads
		case r.how == keys && p.family.halves:
			it.heads = p.kvHeads
		}
		p.take(it, r.how)
	}
	return nil
}

// half plans half of the rows of a product that makes two things.
func (p *plan) half(f *finder, r rule) error {
	t, ok := f.find(r.from + ".weight")
	if !ok {
		return f.missing(r.from + ".weight")
	}
	n := t.shape[0] / 2
	it := item{Tensor: gguf.Tensor{Name: r.to + ".weight", Shape: []int64{n, t.shape[1]}}, parts: []part{t}, rows: headRows{each: 2 * n, n: n}}
	if r.how == secondHalf {
		it.rows.from = n
	}
	p.take(it, r.how)
	return nil
}

// stacked plans one tensor of the rows of several modules, and one of their biases.
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

// experts plans one tensor (experts, rows, columns) of the experts' matrices, and one (experts, rows) of their biases, if
// they have some.
func (p *plan) experts(f *finder, r rule) error {
	dot := strings.LastIndexByte(r.from, '.')
	for _, end := range []string{".weight", ".bias"} {
		var it item
		for e := range p.model.NumExperts {
			name := r.from[:dot] + "." + strconv.Itoa(e) + r.from[dot:] + end
			t, ok := f.find(name)
			if !ok && end == ".bias" && e == 0 {
				return nil
			}
			if !ok {
				return f.missing(name)
			}
			it.Shape = t.shape
			it.parts = append(it.parts, t)
		}
		it.Name = r.to + end
		it.Shape = append([]int64{int64(len(it.parts))}, it.Shape...)
		if p.take(it, r.how); end == ".bias" {
			p.items[len(p.items)-1].Type = gguf.F32
		}
	}
	return nil
}

// take settles the type of a tensor: vectors, norms and routers stay fp32, and
// rows that cannot be cut into blocks fall back to half precision.
func (p *plan) take(it item, h how) {
	it.Type = p.out.gguf()
	switch {
	case len(it.Shape) < 2 || h == norm || h == normIfAny || h == router || h == taps:
		it.Type = gguf.F32
	case it.Type == gguf.Q8_0 && it.Shape[len(it.Shape)-1]%gguf.BlockLen != 0:
		it.Type = gguf.F16
		p.narrow = append(p.narrow, it.Name)
	}
	p.items = append(p.items, it)
}

// rest notes what the user may not expect in the file: matrices of another type than was asked
// for, and tensors that were left out, which belong to other parts of a larger model.
func (p *plan) rest(f *finder) {
	if n := len(p.narrow); n > 0 {
		p.note(fmt.Sprintf("%d tensors are F16, such as %s: their rows are no multiple of %d elements", n, p.narrow[0], gguf.BlockLen))
	}
	var left []string
	for _, t := range f.w.Tensors() {
		tied := t.Name == f.head+".weight" || t.Name == strings.TrimSuffix(f.top, "model.")+"lm_head.weight"
		if !f.asked[t.Name] && !tied && !strings.HasSuffix(t.Name, ".rotary_emb.inv_freq") {
			left = append(left, t.Name)
		}
	}
	if len(left) > 0 {
		p.note(fmt.Sprintf("%d tensors that are not the language model's are left out, such as %s", len(left), left[0]))
	}
}
