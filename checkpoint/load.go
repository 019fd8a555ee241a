package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"mt/base/files"
	"mt/model"
)

// target is a tensor on disk and the parameter in memory that it fills.
type target struct {
	*entry
	src   *shard
	plane plane
	in    tensor
	// packed, if not nil, is the quantized tensor that is read. src and plane are then unused, and the tensor in
	// gives only the size.
	packed packed
}

// Progress is called with the bytes done and the bytes in total. Calls come from several goroutines and may arrive
// out of order, so the greatest done counts.
type Progress func(done, total int64)

// LoadModel reads the weights of the Hugging Face directory dir into layers, which must be all layers of the model.
// It leaves the optimizer's planes unchanged. progress may be nil. The weights in dir may be sharded. Tensors are
// F32, BF16, F16, F64, or F8_E4M3 with scales; tensors with a model.Place may also be MXFP4. Every tensor must exist
// with the right shape. If lm_head.weight exists although it is tied, it must equal the embedding.
//
// The embedding and the head in dir have tokens rows, one per token. Layers may have more rows; LoadModel leaves
// these unchanged.
//
// It returns the names of the tensors that are not trained (see Source), without buffers, so that the caller can
// mention them.
func LoadModel(dir string, layers []Layer, tokens int, progress Progress) (others []string, err error) {
	layouts := layoutsOf(layers)
	for i, l := range layouts {
		layouts[i].Tensors = slices.Clone(l.Tensors)
		for k, t := range l.Tensors {
			if t.Role == model.RoleEmbed || t.Role == model.RoleLMHead || t.Role == model.RoleLMHeadBias {
				t.Rows, t.Stored = tokens, []model.Stored{{Name: t.Stored[0].Name, Rows: tokens}}
				layouts[i].Tensors[k] = t // the first rows have the same offset
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
	for _, r := range rest.repeated {
		if err := src.checkRepeated(r); err != nil {
			return nil, fmt.Errorf("load model: %w", err)
		}
	}
	if err := src.readAll(targets, layers, progress); err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	for _, e := range rest.entries {
		if !e.isBuffer() && !e.asRead {
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

// CheckModel returns an error if LoadModel could not fill layers of these layouts, like OpenSource.
func CheckModel(dir string, layouts []model.Layout) error {
	w, err := OpenWeights(dir)
	if err != nil {
		return err
	}
	defer w.Close()
	return w.Check(layouts)
}

// match finds the tensor of the directory that fills each parameter of layouts. It reads no data.
func (s *source) match(layouts []model.Layout) ([]target, error) {
	var out []target
	var missing []string
	module := false // the first missing tensor belongs to multi-token prediction
	for i, l := range layouts {
		for _, e := range entriesOf(i, l, planeF32) {
			t, err := s.target(e)
			if err != nil {
				return nil, err
			}
			if t.entry == nil {
				module = module || missing == nil && l.Kind == model.AheadInput && e.layout.Role != model.RoleFinalNorm
				missing = append(missing, e.name)
			} else {
				out = append(out, t)
			}
		}
	}
	switch {
	case module:
		return nil, fmt.Errorf("%s: %s missing: the directory has no module for multi-token prediction, which train_mtp trains; take one that has it, or set train_mtp to false", s.dir, several("tensor", missing))
	case missing != nil:
		return nil, fmt.Errorf("%s: %s missing%s", s.dir, several("tensor", missing), s.whyMissing(missing))
	}
	return out, nil
}

// target returns the tensor of the directory that fills e. If there is none, the result's entry is
// nil.
func (s *source) target(e *entry) (target, error) {
	sh, ok := s.where[e.name]
	if ok {
		if in := sh.tensors[e.name]; !slices.Equal(in.shape, e.shape) {
			return target{}, fmt.Errorf("%s: tensor %q: its shape is %v, config.json asks for %v", sh.path, e.name, in.shape, e.shape)
		}
	}
	packed, err := s.packedAs(e)
	if err != nil {
		return target{}, err
	}
	if packed != nil {
		return target{entry: e, packed: packed, in: tensor{bytes: packed.bytes()}}, nil
	}
	if !ok {
		return target{}, nil
	}
	in := sh.tensors[e.name]
	p, ok := weightPlane(in.dtype)
	if !ok {
		return target{}, fmt.Errorf("%s: tensor %q: %s", sh.path, e.name, unreadable(in.dtype))
	}
	return target{entry: e, src: sh, plane: p, in: in}, nil
}

// whyMissing returns a likely cause of missing tensors and what to do, to append to an error.
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

// unreadable returns why weights of this dtype cannot be read.
func unreadable(dtype string) string {
	what := fmt.Sprintf("its dtype is %s; F32, BF16, F16, F64 and F8_E4M3 with scales are read", dtype)
	if dtypeSize[dtype] == 1 {
		what += ": other quantized weights cannot be trained, take the model's unquantized directory"
	}
	return what
}

// several returns the start of a sentence in an error: what, the quoted names, and "is" or "are". If there are more
// than four names, it quotes three and gives the number of the others.
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

// readAll reads all targets. It begins with the layers that are in memory all the time (Lend is nil), and continues
// with the other layers one by one.
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

// here returns the targets whose layers are in memory all the time (Lend is nil).
func here(targets []target, layers []Layer) (out []target) {
	for _, t := range targets {
		if layers[t.layer].Lend == nil {
			out = append(out, t)
		}
	}
	return out
}

// readLayer reads the targets of layer i into l. n is the number of layers in the model. If records is not nil, the
// data must have the recorded checksums.
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

// read reads the data of all targets, several at a time. If records is not nil, the data must have the recorded
// checksums.
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
			return fmt.Errorf("%s: a checkpoint has no quantized tensors", t.packed.path())
		}
		return records[t.src.name].region(t.name).check(t.src.path, sum)
	})
}

// read reads one tensor in pieces into l and returns its CRC32C. It calls done with the bytes of every piece. For a
// quantized tensor it returns 0 instead of a CRC32C.
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

// Source holds the tensors of a model directory that are not trained, such as vision towers, heads for multi-token
// prediction, and buffers. Saves copy them. Files with such tensors stay open, so a save succeeds even if the
// directory has been removed.
type Source struct {
	files *source
	others
}

// others are the tensors of a directory that belong to no parameter.
type others struct {
	entries  []*entry
	repeated []repeated
	counts   Counts
}

// repeated is a stored tensor that repeats a parameter, such as a head that is tied to the embedding. Saves write the
// trained parameter in its place.
type repeated struct {
	name, of string // names of the tensor, and of the parameter's tensor
	// tie says in an error why the two are the same, and advice what to do if they differ.
	tie, advice string
}

// OpenSource opens the weights in the model directory dir. It reads only headers. It fails if LoadModel could not
// fill layers of these layouts. This is so if a file or tensor is missing, out of range or of the wrong shape, or
// if an unknown tensor looks trained.
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

// Close closes the files. No save that uses s may be running.
func (s *Source) Close() { s.files.Close() }

// files plans the files of a model: the weights of o.Layouts and, in separate files, the tensors of o.Source.
func (o WriterOptions) files() []*file {
	weights := weightEntries(o.Layouts, o.SaveDType)
	if o.Source == nil {
		return modelFiles(o.MaxShardBytes, weights)
	}
	var beside []*entry
	for _, r := range o.Source.repeated {
		again := *weights[slices.IndexFunc(weights, func(e *entry) bool { return e.name == r.of })] // trained; the stored tensor would differ from it
		again.name = r.name
		beside = append(beside, &again)
	}
	if o.SaveDType == AsRead {
		weights, beside = o.Source.asRead(weights), o.Source.asRead(beside)
	}
	for _, e := range o.Source.entries {
		copied := *e // a copy, since every save sets the offset
		if o.SaveDType == AsRead {
			beside = append(beside, &copied)
		} else if !e.asRead {
			beside = append(beside, copied.unpacked(o.SaveDType.plane()))
		}
	}
	return modelFiles(o.MaxShardBytes, weights, beside)
}

// check returns an error if a parameter of layouts is missing; otherwise it lists the other tensors.
func (s *source) check(layouts []model.Layout) (others, error) {
	targets, err := s.match(layouts)
	if err != nil {
		return others{}, err
	}
	out, err := s.others(layouts)
	n := count(targets)
	out.counts.E4M3, out.counts.MXFP4 = n.E4M3, n.MXFP4
	return out, err
}

// others lists the tensors that belong to no parameter of layouts, in the order of the files. A tensor that looks
// like a weight of a trained layer is an error. config.json does not announce the tensor, so the model would be
// computed without it.
func (s *source) others(layouts []model.Layout) (others, error) {
	known := tableOf(layouts)
	var out others
	for _, name := range s.names() {
		if whole := standsFor(name); known.names[name] || known.names[whole] && s.where[whole] == nil {
			continue
		}
		if weight, ok := s.belongs(name); ok {
			if !known.names[weight] {
				e := s.copied(name)
				e.asRead = true
				out.entries = append(out.entries, e)
			}
			if weight == "" {
				out.counts.Activations++
			}
			continue
		}
		if r, ok := known.repeated[name]; ok {
			if err := s.checkShape(r, known.shapes[r.of]); err != nil {
				return others{}, err
			}
			out.repeated = append(out.repeated, r)
			continue
		}
		if why := known.refuses(name); why != "" && !s.where[name].tensors[name].untrained() {
			return others{}, fmt.Errorf("%s: tensor %q: %s", s.where[name].path, name, why)
		}
		e := s.copied(name)
		p, err := s.scaledOf(name)
		if err != nil {
			return others{}, err
		}
		if p != nil {
			e.from.packed = p
		}
		out.entries = append(out.entries, e)
	}
	return out, nil
}

// copied returns an entry that copies the tensor with this name unchanged.
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

// checkShape checks the shape of a tensor that repeats a parameter of shape want.
func (s *source) checkShape(r repeated, want []int64) error {
	sh := s.where[r.name]
	if in := sh.tensors[r.name]; !slices.Equal(in.shape, want) {
		return fmt.Errorf("%s: tensor %q: its shape is %v, but %s, which is %v", sh.path, r.name, in.shape, r.tie, want)
	}
	return nil
}

// checkRepeated checks that a tensor that repeats a parameter equals it. It compares them only if both have the same
// dtype.
func (s *source) checkRepeated(r repeated) error {
	a, b := s.where[r.name], s.where[r.of]
	if a == nil || b == nil {
		return nil
	}
	x, y := a.tensors[r.name], b.tensors[r.of]
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
			return fmt.Errorf("%s: tensor %q: differs from %q, %s", a.path, r.name, r.of, r.advice)
		}
		at += int64(len(p))
		return nil
	})
}

// table holds the names of the parameters and of their modules.
type table struct {
	names   map[string]bool
	modules map[string]bool // names without their last part: a module with a weight may also have a bias
	blocks  string          // "model.layers.", or the prefix beside a vision tower
	count   int             // number of decoder blocks
	// repeated has the tensors that may repeat a parameter, by name, and shapes the shapes of the parameters' tensors.
	repeated map[string]repeated
	shapes   map[string][]int64
}

// blocksOf returns what precedes the block's number in the names of the blocks' tensors, such as "model.layers.".
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
	t := table{names: map[string]bool{}, modules: map[string]bool{}, repeated: map[string]repeated{}, shapes: map[string][]int64{}, blocks: blocksOf(layouts)}
	top := strings.TrimSuffix(t.blocks, "layers.")
	for _, l := range layouts {
		if l.Kind != model.Embedding && l.Kind != model.Head {
			t.count = max(t.count, l.Block+1)
		}
		if l.Tied {
			for _, head := range []string{"lm_head", strings.TrimSuffix(top, "model.") + "lm_head"} {
				t.modules[head] = true
				t.repeated[head+".weight"] = repeated{name: head + ".weight", of: layouts[0].Tensors[0].Stored[0].Name, tie: "config.json ties it to the embedding",
					advice: "to which config.json ties it: set tie_word_embeddings to false there, or remove the tensor"}
			}
		}
		for _, e := range entriesOf(0, l, planeF32) {
			t.shapes[e.name] = e.shape
		}
		for _, p := range l.Tensors {
			for _, name := range p.Repeated {
				of := p.Stored[0].Name
				t.repeated[name] = repeated{name: name, of: of, tie: fmt.Sprintf("multi-token prediction shares %q", of),
					advice: "which multi-token prediction shares: set train_mtp to false, or remove the tensor"}
			}
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

// buffers are name endings of tensors that Transformers, or an older version of it, saves although they are no
// weights. Their values follow from config.json; those of act_fn are constants of the activation xIELU.
var buffers = []string{".act_fn.beta", ".act_fn.eps", ".inv_freq", ".original_inv_freq", ".cos_cached", ".sin_cached", ".masked_bias", ".position_ids"}

// untrained reports whether t is certainly no weight, whatever its module: a buffer, or a tensor of booleans or
// 64-bit integers.
func (t tensor) untrained() bool { return t.isBuffer() || t.dtype == "BOOL" || t.dtype == "I64" }

// isBuffer reports whether t follows from config.json: by its name, or as a mask of shape (1, 1, n, n), which no
// parameter has.
func (t tensor) isBuffer() bool {
	for _, end := range buffers {
		if strings.HasSuffix(t.name, end) || t.name == end[1:] {
			return true
		}
	}
	return len(t.shape) == 4 && t.shape[0] == 1 && t.shape[1] == 1 && t.shape[2] == t.shape[3]
}

// quantized matches the ends of names of tensors that hold quantized weights, or scales and tables of such weights.
var quantized = regexp.MustCompile(`(_scale|_scale_inv|_scale_2|_zero_point|_packed|\.qweight|\.qzeros|\.scales|\.g_idx|\.absmax|\.quant_map|\.SCB|quant_state\..*)$`)

// refuses returns why mt must not ignore the tensor name, which is no parameter; "": it may. It must not if the
// tensor is in a trained block or in a parameter's module. The model would then be computed without one of its
// weights.
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

// stored is a tensor in a file of another directory.
type stored struct {
	shard *shard
	in    tensor
	// packed reads the tensor if it is in E4M3; nil: it is not. If the model is saved in bf16 or fp32, the copy is
	// decoded too.
	packed packed
}

// unpacked returns the entry e. If the tensor that e copies is quantized, the copy is to be decoded: e then has the dtype
// of p and the bytes that this takes.
func (e *entry) unpacked(p plane) *entry {
	if e.from.packed != nil {
		e.plane, e.dtype, e.bytes = p, p.dtype, e.elems*p.size()
	}
	return e
}

// pieces passes the tensor's bytes to the function put, piece by piece. The bytes are converted to
// fp32 or bf16, the dtype of the plane to; for planeAsIs they stay unchanged. The buffer buf holds
// a piece.
func (s *stored) pieces(to plane, buf []byte, put func([]byte) error) error {
	if s.packed != nil && to != planeAsIs {
		return s.decoded(to, put)
	}
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

// decoded decodes a quantized tensor and passes its values to put, in the dtype of the plane to.
func (s *stored) decoded(to plane, put func([]byte) error) error {
	var failed error
	line := s.packed.line()
	size := min(wholeLines(line), s.in.bytes)
	buf, bits := make([]byte, 4*size), make([]uint32, size)
	err := decodeRows(s.packed, 0, s.in.bytes/line, func(part []float32) {
		for i, v := range part {
			bits[i] = math.Float32bits(v)
		}
		if failed == nil {
			failed = put(narrow(buf, to, bits[:len(part)]))
		}
	})
	return errors.Join(err, failed)
}

// notThere are system errors that say what a path does or does not name. They do not mean that the disk is
// unreadable.
var notThere = []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.EISDIR, syscall.ELOOP}

// IsDiskError reports whether err comes from the disk or the system, and not from the content of a file or a missing
// file. The data may then be intact.
func IsDiskError(err error) bool {
	var onPath *fs.PathError
	return errors.As(err, &onPath) && !slices.ContainsFunc(notThere, func(e error) bool { return errors.Is(onPath, e) })
}

// opening is a function that opens a file of a checkpoint: openFile, or in tests a function that fails.
type opening func(path string) (fs.File, error)

func openFile(path string) (fs.File, error) { return files.Open(path) }
