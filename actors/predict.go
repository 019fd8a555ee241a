package actors

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"mt/device"
	virtualdevice "mt/device/virtual"
	"mt/host"
	"mt/layers"
	"mt/plan"
	"mt/plan/rates"
)

// This file predicts how long a run takes. It runs the same actors, lanes and templates as a real
// run, but on a simulated device and with a virtual clock, and computes nothing. The result is the
// time of every event on a machine with known rates.

// Predict runs o on a virtual clock with the rates of machine m, which must have passed rates.Machine.Check. After
// every step it calls `each`, with the step's report and the busy time of every resource so far. The prediction goes on
// for at most the seconds that each returns, until the next call. It also ends, with ctx's error, soon after ctx is
// cancelled. Predict ignores Devices, Home, Pool, Optimizer, Saver and OnStep of o, allocates no memory and reads no
// weights. Losses are 0, and all experts get equally many tokens.
func Predict(ctx context.Context, o Options, m *rates.Machine, each func(StepReport, virtualdevice.Use) (seconds float64)) error {
	dtype := o.Plan.Spec.Act.String()
	for lane := range o.Plan.Lanes() {
		if d := m.On(lane).Device; len(d.Products[dtype]) == 0 || len(d.Attention[dtype]) == 0 {
			return fmt.Errorf("predict: the rates of %s have none for products and attention of %s in %s (device.products.%s, device.attention.%s)",
				m.Name, d.Name, dtype, dtype, dtype)
		}
	}
	p := &prediction{clock: &virtualdevice.Clock{}, machine: m, plan: o.Plan, grads: o.Plan.Gradients(), tiles: layers.Tiles(o.Plan.Layouts, o.Plan.Spec), mail: map[address]*mailbox{}}
	defer p.free()
	var largest int64
	for _, l := range o.Plan.Layouts {
		largest = max(largest, l.TileBytes)
	}
	tile, err := p.blank(largest)
	if err != nil {
		return fmt.Errorf("predict: %w", err)
	}
	end, done := math.Inf(1), ctx.Done()
	o.OnStep = func(r StepReport) { end = p.clock.Time() + each(r, p.clock.Used()) }
	o.predicted, o.Home = p, blankHome{o.Plan, tile, p}
	if o.Plan.Ranks > 1 {
		if m.Network == nil {
			return fmt.Errorf("predict: the rates of %s have no network between %d ranks (network)", m.Name, o.Plan.Ranks)
		}
		o.World = predictedWorld{p}
	}
	o.Devices = nil
	p.clock.Devices, p.clock.PerSwitch = o.Plan.Lanes(), m.Link.PerSwitch
	for lane := range o.Plan.Lanes() {
		dev := device.Device(virtualdevice.New(p.clock, m.On(lane), lane, o.Plan.Unified, p.blank))
		if o.Wrap != nil {
			dev = o.Wrap(dev)
		}
		o.Devices = append(o.Devices, dev)
	}
	return execute(o, p, func(r *run) error {
		more := p.clock.Run(func() bool {
			select {
			case <-done:
				return true
			default:
				return p.clock.Time() >= end || len(r.hub.ended) > 0
			}
		})
		switch {
		case len(r.hub.ended) > 0:
			return <-r.hub.ended
		case !more:
			return errors.New("predict: nothing is left that could happen, and the run has not ended")
		}
		return ctx.Err() // nil at the end that each has set
	})
}

// prediction is the carrier of a predicted run: it delivers messages and runs works on a virtual clock.
type prediction struct {
	clock   *virtualdevice.Clock
	machine *rates.Machine
	plan    *plan.Run
	grads   []plan.Gradient // by layer
	tiles   []layers.Tile
	mail    map[address]*mailbox
	spare   []*delivery // arrived, for reuse
	blanks  [][]byte

	sparedRead, sparedWritten int64 // bytes not moved to or from disks, because of compression
}

// mailbox is an actor in a prediction and its unhandled messages.
type mailbox struct {
	process *process
	arrived []message
	busy    bool   // handling a message, or about to
	handled func() // ends the handling of a message
}

// delivery is a message on its way to a mailbox.
type delivery struct {
	to     *mailbox
	msg    message
	arrive func()
}

// blankHome is the host.Home of a prediction. Its tiles have the right sizes but no content. All
// share one memory, which nobody reads.
type blankHome struct {
	plan *plan.Run
	tile []byte
	p    *prediction
}

func (h blankHome) Acquire(int) (*host.LayerState, error) {
	return nil, errors.New("a predicted run has no weights")
}
func (h blankHome) Release(int) {}
func (h blankHome) ReadTile(l int, _ int64, into []byte) error {
	bytes := int64(len(into))
	h.p.sparedRead += bytes - h.plan.PackedTile(l, bytes).Bytes
	return nil
}
func (h blankHome) Fetch(l, _ int) error {
	h.p.sparedRead += h.plan.StagedBytes(l) - h.plan.PackedStaged(l).Bytes
	return nil
}
func (h blankHome) Flush(l int) error {
	h.p.sparedWritten += h.plan.StagedBytes(l) - h.plan.PackedStaged(l).Bytes
	return nil
}
func (h blankHome) PutGrad(int, []byte) error     { return nil }
func (h blankHome) FetchGrad(int) error           { return nil }
func (h blankHome) Grad(int) []byte               { return nil }
func (h blankHome) Drop(int)                      {}
func (h blankHome) Settle() error                 { return nil }
func (h blankHome) Spared() (read, written int64) { return h.p.sparedRead, h.p.sparedWritten }
func (h blankHome) Tile(i int) []byte             { return h.tile[:h.plan.Layouts[i].TileBytes] }

// blank allocates address space of this size without resident pages, so that buffers have addresses but take no memory.
// The space is freed at the end of the prediction.
func (p *prediction) blank(bytes int64) ([]byte, error) {
	b, err := host.Blank(bytes)
	if err == nil {
		p.blanks = append(p.blanks, b)
	}
	return b, err
}

func (p *prediction) free() {
	for _, b := range p.blanks {
		host.FreeBlank(b)
	}
}

func (p *prediction) start(s *process) error {
	m := &mailbox{process: s}
	m.handled = func() {
		m.busy = false
		p.handle(m)
	}
	p.mail[s.id] = m
	return nil
}

func (p *prediction) tell(to address, msg message) {
	var d *delivery
	if last := len(p.spare) - 1; last >= 0 {
		d, p.spare = p.spare[last], p.spare[:last]
	} else {
		d = &delivery{}
		d.arrive = func() {
			m := d.to
			m.arrived = append(m.arrived, d.msg)
			p.spare = append(p.spare, d)
			p.handle(m)
		}
	}
	d.to, d.msg = p.mail[to], msg
	p.clock.After(p.machine.Host.Message/1e6, d.arrive)
}

// handle lets an idle actor handle its next message. On the virtual clock the actor is then busy for as long as
// handling a message takes on the machine.
func (p *prediction) handle(m *mailbox) {
	if m.busy || len(m.arrived) == 0 {
		return
	}
	msg := m.arrived[0]
	m.arrived = slices.Delete(m.arrived, 0, 1)
	m.busy = true
	m.process.hub.handle(m.process, msg)
	p.clock.After(0, m.handled)
}

func (p *prediction) begin(w work, started, f func()) {
	started()
	p.clock.Start(p.cost(w.do), f)
}

// result returns the result that a task's work f would compute. It runs f only for tasks that pack
// a batch or count bytes on disks, because the prediction needs the results. For other tasks it
// returns 0 (for sums of squares) or nil.
func (p *prediction) result(w work, f func() (any, error)) (any, error) {
	switch w.do.(type) {
	case packBatch, fetchState, flushState, putGrad, fetchGrad, readParams: // they count bytes on disks
		return f()
	case measure:
		return 0.0, nil
	case sumShare:
		return shareSum{}, nil
	}
	return nil, nil
}

func (p *prediction) now() time.Duration { return p.clock.Now() }

func (p *prediction) stop() {}

// cost returns the time that a task takes on the host, and the shares of host resources that it uses.
func (p *prediction) cost(do task) virtualdevice.Work {
	h, r := &p.machine.Host, p.plan
	switch e := do.(type) {
	case packBatch:
		w := virtualdevice.Work{Seconds: h.Pack * float64(r.Limits.Tokens) / 1e6}
		w.Share[virtualdevice.Cores] = 1 / float64(h.Cores)
		return w
	case gatherRows:
		return p.memoryWork(h.Gather, 2*float64(r.RowBytes(len(e.p.Batch.UniqueIDs))))
	case merge:
		g := p.grads[e.Layer]
		return p.memoryWork(h.Gather, 3*float64(int64(len(e.IDs))*g.Row*r.GradBytes()))
	case measure:
		var bytes int64
		for _, x := range p.grads[e.Layer].Ranges(len(e.IDs)) {
			bytes += x.Elems * r.GradBytes()
		}
		return p.memoryWork(h.Norm, float64(bytes))
	case sumShare: // reads the parts of all ranks, writes their sum and reads it
		bytes := float64(p.plan.ShareSumBytes(e.Layer))
		return p.memoryWork(h.Gather, float64(r.Ranks+1)*bytes).Then(p.memoryWork(h.Norm, bytes))
	case update:
		by := r.Optim
		if r.NSSteps > 0 { // the weights that are not in matrices
			by = strings.Replace(by, "muon", "adamw", 1)
		}
		return p.memoryWork(h.UpdateBy(by), r.UnitBytes(e.Layer, p.grads[e.Layer]))
	case prepareMatrix:
		return p.memoryWork(h.UpdateBy(r.Optim), float64(r.PrepareBytes(e.Of.Layer, r.Matrices(e.Of.Layer)[e.Matrix])))
	case applyMatrix:
		return p.memoryWork(h.UpdateBy(r.Optim), float64(r.ApplyBytes(r.Matrices(e.Of.Layer)[e.Matrix])))
	case fetchState:
		packed := r.PackedStaged(e.Layer)
		return p.packedWork(packed.Bytes, packed.Unpack, p.machine.Disk.Read)
	case readParams:
		_, bytes := r.ParamSpan(p.tiles[e.Tile])
		packed := r.PackedTile(e.Layer, bytes)
		return p.packedWork(packed.Bytes, packed.Unpack, p.machine.Disk.Read)
	case flushState:
		packed := r.PackedStaged(e.Layer)
		return p.packedWork(packed.Bytes, packed.Pack, p.machine.Disk.Write)
	case putGrad:
		return p.diskWork(float64(r.GradExtentBytes(e.Layer)), p.machine.Disk.Write)
	case fetchGrad:
		return p.diskWork(float64(r.GradExtentBytes(e.Layer)), p.machine.Disk.Read)
	case saveLayer:
		return p.diskWork(float64(r.Planes.UpdateBytes(r.Layouts[e.Layer]))/2, p.machine.Disk.Write) // each plane once
	}
	return virtualdevice.Work{}
}

// diskWork returns the virtual work of moving this many bytes to or from a disk at rate GB/s. A disk serves concurrent
// works one after the other.
func (p *prediction) diskWork(bytes, rate float64) (w virtualdevice.Work) {
	if bytes > 0 {
		w.Seconds = bytes / (rate * 1e9)
	}
	w.Share[virtualdevice.Disk], w.Share[virtualdevice.Cores] = 1, 1/float64(p.machine.Host.Cores)
	return w
}

// packedWork is diskWork for data that is also compressed or decompressed. The compression takes
// `seconds` core-seconds, which are spread over all cores.
func (p *prediction) packedWork(bytes int64, seconds, rate float64) virtualdevice.Work {
	w, cores := p.diskWork(float64(bytes), rate), float64(p.machine.Host.Cores)
	if seconds > 0 {
		w.Seconds = max(w.Seconds, seconds/cores)
		w.Share[virtualdevice.Cores] = min(1, w.Share[virtualdevice.Cores]+seconds/w.Seconds/cores)
	}
	return w
}

// memoryWork returns the virtual work of operation o that reads and writes this many bytes of host memory altogether.
func (p *prediction) memoryWork(o rates.Op, bytes float64) virtualdevice.Work {
	h, c := &p.machine.Host, o.Cost(bytes)
	w := virtualdevice.Work{Seconds: c.Seconds}
	w.Share[virtualdevice.Cores] = 1
	if c.Cores > 0 {
		w.Share[virtualdevice.Cores] = min(1, c.Cores/float64(h.Cores))
	}
	if c.Seconds > 0 {
		w.Share[virtualdevice.HostMemory] = min(1, bytes/c.Seconds/(h.Bandwidth*1e9))
	}
	return w
}
