package generate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"mt/base/accounts"
	"mt/device"
	"mt/host"
	"mt/layers"
	"mt/layers/schedule"
	"mt/model"
)

// Options configures Run: the model, the device and the sampling.
type Options struct {
	Device device.Device
	Store  *host.Store // only its weights are read
	Config *model.Config
	Act    device.DType // compute dtype
	Layout []model.Layout

	MaxNewTokens int
	Temperature  float64 // 0: always the most likely token
	TopK         int     // only the k most likely; 0: all
	TopP         float64 // only the most likely tokens whose joint probability reaches this share; 0 or 1: all
	MinP         float64 // only tokens at least this fraction as likely as the most likely one; 0: all
	Seed         int64
	Stop         []int32 // ids that end the text; they are not passed to emit

	RepetitionPenalty float64 // divides positive logits of ids that occurred and multiplies negative ones; 0 or 1: none
	MinNewTokens      int     // no id of Stop is chosen before this many new tokens
	SuppressTokens    []int32 // ids that are never chosen
}

// chunk is the number of prompt tokens that go through a layer in one launch.
const chunk = 512

// intBytes is an upper bound on the bytes of the int32 values that upload copies for a chunk. A token has an index, a
// position, an id and up to two attention bounds.
const intBytes = 4 * 6 * chunk

// Run continues prompt (at least one id) and calls emit with each new id. It stops after MaxNewTokens, at an id of
// Stop, or when ctx is cancelled; then it returns the cause.
func Run(ctx context.Context, o Options, prompt []int32, emit func(id int32)) error {
	if err := o.check(prompt); err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	d, err := newDecoder(o, len(prompt)+o.MaxNewTokens)
	if err != nil {
		return fmt.Errorf("generate: %w", err)
	}
	defer d.close()
	s, steps := newSampler(o), processors(o, len(prompt))
	ids, next := slices.Clip(prompt), prompt
	for n := 0; n < o.MaxNewTokens; n++ {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		logits, err := d.forward(next)
		if err != nil {
			return fmt.Errorf("generate token %d: %w", n+1, err)
		}
		for _, process := range steps {
			process(ids, logits)
		}
		id, err := s.sample(logits)
		if err != nil {
			return fmt.Errorf("generate token %d: %w", n+1, err)
		}
		if slices.Contains(o.Stop, id) {
			return nil
		}
		emit(id)
		ids = append(ids, id)
		next = ids[len(ids)-1:]
	}
	return nil
}

// check rejects options and prompts that cannot be continued.
func (o Options) check(prompt []int32) error {
	switch {
	case len(prompt) == 0:
		return errors.New("the prompt is empty: give at least one token")
	case o.MaxNewTokens < 0:
		return fmt.Errorf("%d new tokens are asked for: 0 is the least", o.MaxNewTokens)
	case o.Config.LearnedPositions && len(prompt)+o.MaxNewTokens > o.Config.MaxPositions:
		return fmt.Errorf("a prompt of %d tokens and %d new ones, where the model has learned %d positions: ask for at most %d new tokens",
			len(prompt), o.MaxNewTokens, o.Config.MaxPositions, max(0, o.Config.MaxPositions-len(prompt)))
	case !(o.Temperature >= 0) || math.IsInf(o.Temperature, 1):
		return fmt.Errorf("temperature %v: it is 0 (the most likely token) or a positive number", o.Temperature)
	case o.TopK < 0:
		return fmt.Errorf("top-k %d: it is 0 (all tokens) or a positive number", o.TopK)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return fmt.Errorf("top-p %v: it is between 0 and 1 (0 and 1: all tokens)", o.TopP)
	case !(o.MinP >= 0 && o.MinP <= 1):
		return fmt.Errorf("min-p %v: it is between 0 (all tokens) and 1 (the most likely token)", o.MinP)
	case o.RepetitionPenalty != 0 && !(o.RepetitionPenalty >= LeastPenalty && o.RepetitionPenalty <= MostPenalty):
		return fmt.Errorf("repetition penalty %v: it is between %v and %v (1: none)", o.RepetitionPenalty, LeastPenalty, MostPenalty)
	case o.MinNewTokens < 0:
		return fmt.Errorf("at least %d new tokens are asked for: 0 is the least", o.MinNewTokens)
	}
	for _, id := range prompt {
		if id < 0 || int(id) >= o.Config.VocabSize {
			return fmt.Errorf("prompt token %d is not in the vocabulary of %d", id, o.Config.VocabSize)
		}
	}
	return nil
}

// decoder holds the device memory with which one sequence is continued: key/value caches, hidden states and a slot for
// tiles.
type decoder struct {
	o         Options
	spec      layers.Spec
	stream    device.Stream
	templates *layers.Templates
	visits    [][]schedule.Visit // by layer: the visits of an evaluation
	tiles     [][]layers.Tile    // by layer, by part
	slot      device.Mem         // holds one tile; none on a unified device
	caches    []device.Mem       // by layer; none for layers without attention
	ws        device.Mem
	experts   device.Mem    // state of a layer with experts
	x, y      device.Tensor // hidden states of a chunk
	rows      device.Tensor // embedding rows of a chunk
	ints      device.Mem    // index, positions, cumulative lengths
	logits    device.Tensor
	staging   []byte
	ids       []int32 // the sequence so far
	start     int     // tokens in the key/value caches so far
	shift     int     // added to positions: the first row of the rotary tables for the sequence so far
	freeing   []func()
}

func newDecoder(o Options, maxTokens int) (_ *decoder, err error) {
	d := &decoder{o: o}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.register(); err != nil {
		return nil, err
	}
	if d.stream, err = o.Device.NewStream("generate"); err != nil {
		return nil, err
	}
	d.freeing = append(d.freeing, func() { _ = d.stream.Close() })
	c, act := o.Config, o.Act.Size()
	spec := layers.Spec{Config: c, Act: o.Act, MaxTokens: chunk, ChunkTokens: chunk, HeadChunk: 1, Positions: maxTokens} // only the last token gets logits
	hidden := int64(chunk) * int64(c.HiddenSize)
	vocab := int64(c.VocabSize)
	staging := max(hidden*act, 4*vocab, intBytes, 4*int64(c.AllExperts()+1), 4*c.RopeElems(maxTokens))
	if d.staging, err = o.Device.AllocHost(staging); err != nil {
		return nil, err
	}
	d.freeing = append(d.freeing, func() { o.Device.FreeHost(d.staging) })
	cos, sin := c.RopeTables(maxTokens)
	if spec.Cos, err = d.table(cos); err != nil {
		return nil, err
	}
	if spec.Sin, err = d.table(sin); err != nil {
		return nil, err
	}
	d.spec, d.templates = spec, layers.New(spec, o.Device)
	for _, l := range o.Layout {
		d.visits = append(d.visits, layers.KindOf(l.Kind).Stages(spec, l).Evaluate)
	}
	d.tiles = make([][]layers.Tile, len(o.Layout))
	for _, t := range layers.Tiles(o.Layout, spec) {
		d.tiles[t.Layer] = append(d.tiles[t.Layer], t)
	}
	return d, d.alloc(spec, maxTokens)
}

func (d *decoder) alloc(spec layers.Spec, maxTokens int) error {
	c := d.o.Config
	hidden := int64(chunk) * int64(c.HiddenSize)
	stream := int64(chunk) * int64(spec.HiddenWidth())
	if bytes := spec.MoEBytes(chunk, false); bytes > 0 {
		if err := d.take(&d.experts, accounts.Activations, bytes); err != nil {
			return err
		}
	}
	if !d.o.Device.Unified() {
		if err := d.take(&d.slot, accounts.WeightSlots, d.slotBytes(spec)); err != nil {
			return err
		}
	}
	d.caches = make([]device.Mem, len(d.o.Layout))
	for i, l := range d.o.Layout {
		if bytes := layers.KindOf(l.Kind).CacheBytes(spec, l.Block, maxTokens); bytes > 0 {
			if err := d.take(&d.caches[i], accounts.KVCache, bytes); err != nil {
				return err
			}
		}
	}
	if err := d.take(&d.ws, accounts.Workspace, spec.ForwardWorkspaceBytes()); err != nil {
		return err
	}
	for _, t := range []struct {
		to *device.Tensor
		dt device.DType
		n  int64
	}{{&d.x, d.o.Act, stream}, {&d.y, d.o.Act, stream}, {&d.rows, d.o.Act, hidden}, {&d.logits, device.F32, int64(c.VocabSize)}} {
		var m device.Mem
		if err := d.take(&m, accounts.Activations, t.n*t.dt.Size()); err != nil {
			return err
		}
		*t.to = m.Tensor(t.dt, 0, t.n)
	}
	return d.take(&d.ints, accounts.Batch, intBytes)
}

// slotBytes returns the size of the slot: that of the largest tile, since tiles are copied into the slot one after the
// other.
func (d *decoder) slotBytes(spec layers.Spec) (n int64) {
	for i, l := range d.o.Layout {
		kind := layers.KindOf(l.Kind)
		if kind.Class(spec) == schedule.NoSlot {
			continue
		}
		for _, k := range kind.Largest(spec, l) {
			n = max(n, d.tiles[i][k].Layout.SlotBytes)
		}
	}
	return n
}

func (d *decoder) take(m *device.Mem, p accounts.Purpose, bytes int64) (err error) {
	if *m, err = d.o.Device.Alloc(p, max(bytes, device.Align)); err == nil {
		mem := *m
		d.freeing = append(d.freeing, func() { d.o.Device.Free(mem) })
	}
	return err
}

// table copies a table of fp32 values, such as rotary frequencies, to the device and waits for the copy.
func (d *decoder) table(v []float32) (device.Tensor, error) {
	var m device.Mem
	n := int64(len(v))
	if err := d.take(&m, accounts.Tables, 4*n); err != nil {
		return device.Tensor{}, err
	}
	for i, x := range v {
		binary.LittleEndian.PutUint32(d.staging[4*i:], math.Float32bits(x))
	}
	d.stream.CopyH2D(m.Slice(0, 4*n), d.staging[:4*n])
	return m.Tensor(device.F32, 0, n), d.stream.Sync()
}

func (d *decoder) close() {
	for i := len(d.freeing) - 1; i >= 0; i-- {
		d.freeing[i]()
	}
}

// forward appends ids to the sequence and returns the logits of the last token, one for each of the V tokens of the
// vocabulary. The slice is valid until the next call. The rotary frequencies of some models change
// when the sequence grows beyond a length. forward then computes the whole sequence again, as Transformers does for
// Phi-3.
func (d *decoder) forward(ids []int32) ([]float32, error) {
	d.ids = append(d.ids, ids...)
	if shift := d.o.Config.RopeShift(len(d.ids)); shift != d.shift {
		d.shift, d.start, ids = shift, 0, d.ids
	}
	for len(ids) > 0 {
		n := min(len(ids), chunk)
		if err := d.piece(ids[:n], n == len(ids)); err != nil {
			return nil, err
		}
		ids = ids[n:]
		d.start += n
	}
	out := make([]float32, d.o.Config.VocabSize)
	limit := d.o.Config.LogitSoftcap
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(d.staging[4*i:]))
		if limit > 0 {
			out[i] = float32(limit * math.Tanh(float64(out[i])/limit))
		}
	}
	return out, nil
}

// piece runs ids, at most chunk tokens, through all layers. If last is true, it also copies the last token's logits to
// the staging buffer.
func (d *decoder) piece(ids []int32, last bool) error {
	p := &piece{ids: ids, last: last, step: layers.CacheStep{Tokens: len(ids), Start: d.start}}
	var err error
	if p.index, p.tokens, err = d.upload(ids, &p.step); err != nil {
		return err
	}
	n := int64(len(ids)) * int64(d.spec.HiddenWidth())
	p.x, p.y = d.x.Slice(0, n), d.y.Slice(0, n)
	for l, visits := range d.visits {
		for _, v := range visits {
			if err := d.stage(p, l, v); err != nil {
				return err
			}
			if v.Uses.Has(schedule.Output) {
				p.x, p.y = p.y, p.x
			}
		}
	}
	return d.stream.Sync()
}

// upload copies int32 values for ids to the device: each token's row of the embedding and its position, and the
// attention bounds in step. It returns the tensors of rows (index) and of ids (tokens).
func (d *decoder) upload(ids []int32, step *layers.CacheStep) (index, tokens device.Tensor, err error) {
	n, all := len(ids), int64(0)
	put := func(v []int32) device.Tensor {
		at := all
		for _, x := range v {
			binary.LittleEndian.PutUint32(d.staging[4*all:], uint32(x))
			all++
		}
		return d.ints.Tensor(device.I32, 4*at, all-at)
	}
	rows, positions := make([]int32, n), make([]int32, n)
	for i := range n {
		rows[i], positions[i] = int32(i), int32(d.shift+d.start+i)
	}
	index, step.Pos = put(rows), put(positions)
	if d.spec.Config.PerLayerSize > 0 {
		tokens = put(ids)
	}
	step.CuQ, step.CuK = put([]int32{0, int32(n)}), put([]int32{0, int32(d.start + n)})
	q, k := d.spec.CachedChunkBounds(d.start, n)
	step.ChunkBoundsQ, step.ChunkBoundsK = put(q), put(k)
	d.stream.CopyH2D(d.ints.Slice(0, 4*all), d.staging[:4*all])
	return index, tokens, d.stream.Sync()
}

// register pins the tiles for fast copies and maps them for a unified device, until the decoder is closed.
func (d *decoder) register() error {
	var tiles [][]byte
	for _, l := range d.o.Store.Layers {
		tiles = append(tiles, l.Tile)
	}
	if err := d.o.Device.Register(tiles...); err != nil {
		return err
	}
	d.freeing = append(d.freeing, func() { d.o.Device.Unregister(tiles...) })
	return nil
}

// weights returns the weights of the tile t on the device. A unified device uses them where they lie; otherwise
// weights enqueues a copy of the tile into the slot.
func (d *decoder) weights(t layers.Tile) layers.Weights {
	st := d.o.Store.Layers
	if d.o.Device.Unified() {
		return layers.BindInPlace(t.Layout, d.o.Device, func(off, bytes int64) []byte {
			layer, at := t.Host(off)
			return st[layer].Tile[at : at+bytes]
		})
	}
	for _, c := range t.Copies {
		d.stream.CopyH2D(d.slot.Slice(c.To, c.Bytes), st[c.Layer].Tile[c.From:c.From+c.Bytes])
	}
	return layers.BindWeights(t.Layout, d.slot)
}
