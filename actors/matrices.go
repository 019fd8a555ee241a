package actors

import (
	"fmt"

	"mt/base/accounts"
	"mt/device"
	"mt/host/optim"
	"mt/layers"
)

// This file orthogonalizes matrices of momentum for the optimizer Muon, on the device. For each matrix, the host
// updates the momentum and writes the matrix to orthogonalize into a matrix buffer. The device of the layer's lane
// orthogonalizes it on separate streams. The host then applies the result to the weights.
//
// Three matrices may be in progress at once, also of two layers. A layer is updated when its matrices and all its other
// weights (the units) are updated.

// matrixCore is the Optimizer's subcore for matrices that a device orthogonalizes. It is a hook too: it takes over the
// updates of layers with such matrices.
type matrixCore struct {
	c            *optimizerCore
	buffers      [][]int // by lane: the free matrix buffers
	layer        int     // the layer whose matrices are being begun; −1: none, the next layer may begin
	nextMatrix   int     // its next matrix
	unitsPending bool    // the layer's weights outside matrices are not yet updated
	worksLeft    []int   // by layer: its works in progress or to come
	returned     []MatrixOrthogonalized
	update       update // of the current or last layer; all layers share its rate and factor
}

func newMatrixCore(c *optimizerCore) {
	p := &matrixCore{c: c, layer: -1, worksLeft: make([]int, c.layers)}
	for range c.lanes {
		p.buffers = append(p.buffers, ids(c.matrixBuffers))
	}
	c.subcores, c.hooks = append(c.subcores, p), append(c.hooks, p)
}

// unitsUpdated tells the Optimizer that the units of a layer, its weights outside matrices, are updated.
type unitsUpdated struct{ Layer int }

// prepareMatrix is the task of updating the momentum of a matrix on the host and writing the input of the
// orthogonalization into a matrix buffer.
type prepareMatrix struct {
	Of             update
	Matrix, Buffer int
	Lane           laneID
}

// orthogonalize is the task of orthogonalizing the content of a matrix buffer on a lane's device.
type orthogonalize struct {
	Layer, Matrix, Buffer int
	Lane                  laneID
}

// applyMatrix is the task of updating the weights of a matrix on the host with the orthogonalized matrix in a matrix
// buffer.
type applyMatrix struct {
	Of             update
	Matrix, Buffer int
	Lane           laneID
}

func (p *matrixCore) take(msg message) ([]effect, bool) {
	switch m := msg.(type) {
	case MatrixPrepared:
		p.c.busy = false
		return []effect{work{do: orthogonalize{Layer: m.Layer, Matrix: m.Matrix, Buffer: m.Buffer, Lane: p.c.laneOf[m.Layer]},
			done: []send{{optimizerID, MatrixOrthogonalized(m)}}}}, true
	case MatrixOrthogonalized:
		p.returned = append(p.returned, m)
		return nil, true
	case MatrixApplied:
		p.c.busy = false
		lane := p.c.laneOf[m.Layer]
		p.buffers[lane] = append(p.buffers[lane], m.Buffer)
		return p.workDone(m.Layer), true
	case unitsUpdated:
		p.c.busy = false
		return p.workDone(m.Layer), true
	}
	return nil, false
}

// workDone counts a finished work of layer l's update: its units, or the apply of a matrix. After
// the last one the layer is updated; before that the result is nil.
func (p *matrixCore) workDone(l int) []effect {
	if p.worksLeft[l]--; p.worksLeft[l] > 0 {
		return nil
	}
	return p.c.updated(l, false)
}

// next begins the next work on matrices. A matrix that has come back from a device is first, because its work returns a
// buffer. Otherwise the next matrix of the layer is prepared, or, if no buffer is free, the layer's units are updated.
func (p *matrixCore) next() []effect {
	switch {
	case len(p.returned) > 0:
		r := p.returned[0]
		p.returned, p.c.busy = p.returned[1:], true
		of := p.update
		of.Layer, of.Slab, of.IDs = r.Layer, noSlab, nil
		return []effect{work{do: applyMatrix{Of: of, Matrix: r.Matrix, Buffer: r.Buffer, Lane: p.c.laneOf[r.Layer]},
			done: []send{{optimizerID, MatrixApplied(r)}}}}
	case p.layer < 0:
		return nil
	}
	l, of := p.layer, p.update
	lane := p.c.laneOf[l]
	if free := p.buffers[lane]; p.nextMatrix < p.c.matrices[l] && len(free) > 0 {
		m := MatrixPrepared{Layer: l, Matrix: p.nextMatrix, Buffer: free[0]}
		p.buffers[lane], p.c.busy = free[1:], true
		p.nextMatrix++
		p.preparedAll()
		return []effect{work{do: prepareMatrix{Of: of, Matrix: m.Matrix, Buffer: m.Buffer, Lane: lane}, done: []send{{optimizerID, m}}}}
	}
	if !p.unitsPending {
		return nil // waits for a buffer
	}
	p.unitsPending, p.c.busy = false, true
	p.preparedAll()
	return []effect{work{do: of, done: []send{{optimizerID, unitsUpdated{l}}}}}
}

// preparedAll lets the next layer begin, when all matrices of the current layer are prepared and
// the update of its other weights has begun.
func (p *matrixCore) preparedAll() {
	if p.nextMatrix == p.c.matrices[p.layer] && !p.unitsPending {
		p.layer = -1
	}
}

func (p *matrixCore) ready(int) (Cause, bool) { return NoStall, p.layer < 0 }

func (p *matrixCore) begin(u update) ([]effect, bool) {
	if p.c.matrices[u.Layer] == 0 {
		return nil, false
	}
	p.c.cur.begun = true
	p.layer, p.nextMatrix, p.unitsPending, p.update = u.Layer, 0, true, u
	p.worksLeft[u.Layer] = p.c.matrices[u.Layer] + 1
	return p.next(), true
}

func (p *matrixCore) done(LayerUpdated) []effect { return nil }

// matrixStaging has a lane's buffers and streams for orthogonalizing matrices. A nil pointer: the layers of the lane
// have no such matrices.
type matrixStaging struct {
	up, compute, down *countedStream
	byLayer           [][]optim.Matrix // by layer
	host              [][]byte         // by buffer: memory shared by host and device
	buffers           []slot
	workspace         device.Mem
}

// allocMatrices allocates the lane's matrixStaging, if the lane has matrices to orthogonalize.
func (r *lane) allocMatrices() error {
	p := r.plan
	bytes := p.MatrixBytes()
	if bytes == 0 {
		return nil
	}
	m := &matrixStaging{}
	for l := range p.Layouts {
		m.byLayer = append(m.byLayer, p.Matrices(l))
	}
	for _, s := range []struct {
		name string
		to   **countedStream
	}{{"matrices up", &m.up}, {"matrices", &m.compute}, {"matrices down", &m.down}} {
		if err := r.openStream(s.name, s.to); err != nil {
			return err
		}
	}
	for range p.Depths.MatrixBuffers {
		b, err := r.allocHost(bytes)
		if err != nil {
			return err
		}
		m.host = append(m.host, b)
	}
	var err error
	onDevice := bytes
	if p.Unified {
		onDevice = 0
	}
	if m.buffers, err = r.makeSlots(accounts.MatrixBuffers, p.Depths.MatrixBuffers, onDevice); err != nil {
		return err
	}
	for i := range m.buffers {
		if p.Unified {
			m.buffers[i].mem = r.dev.BindHost(m.host[i])
		}
	}
	m.workspace, err = r.alloc(accounts.Workspace, p.MatrixWorkspaceBytes())
	r.matrices = m
	return err
}

// matrix returns a matrix of a layer, and a view of the host memory of the matrix buffer. Both matrix and buffer are
// numbers from 0.
func (r *lane) matrix(layer, matrix, buffer int) (optim.Matrix, optim.Grad) {
	m := r.matrices.byLayer[layer][matrix]
	act := r.plan.Spec.Act
	return m, optim.Grad{Data: r.matrices.host[buffer][:m.Elems()*act.Size()], BF16: act == device.BF16, Elems: m.Elems()}
}

// orthogonalize enqueues the orthogonalization of the matrix of task e: a copy to the device, the iterations, a copy
// back. A device that computes on host memory needs no copies.
func (r *lane) orthogonalize(w work, e orthogonalize) {
	room := r.matrices
	m, host := r.matrix(e.Layer, e.Matrix, e.Buffer)
	b, last := room.buffers[e.Buffer], room.compute
	mem := b.mem.Slice(0, int64(len(host.Data)))
	if !r.plan.Unified {
		r.watch.matrix(room.up, "bring up", e)
		room.up.CopyH2D(mem, host.Data)
		room.up.Record(b.ready)
		room.up.end()
		room.compute.Wait(b.ready)
	}
	r.watch.matrix(room.compute, "orthogonalize", e)
	layers.NewtonSchulz(r.dev, room.compute.Stream, mem.Tensor(r.plan.Spec.Act, 0, m.Elems()), m.Rows, m.Cols, r.plan.NSSteps, room.workspace)
	room.compute.Record(b.idle)
	if !r.plan.Unified {
		room.compute.end()
		last = room.down
		last.Wait(b.idle)
		r.watch.matrix(last, "bring back", e)
		last.CopyD2H(host.Data, mem)
	}
	last.Notify(func(err error) {
		r.hub.notified(func() {
			for _, s := range []*countedStream{room.up, room.compute} {
				if err == nil {
					err = s.Err()
				}
			}
			if err != nil {
				r.hub.fail(optimizerID, fmt.Errorf("orthogonalize a matrix of %s: %w", r.names[e.Layer], err))
				return
			}
			r.hub.done(w, nil)
		})
	})
}

func (e prepareMatrix) start(r *lane, w work) error {
	r.hub.async(optimizerID, w, func() (any, error) { return nil, r.prepareMatrix(e) })
	return nil
}

func (e applyMatrix) start(r *lane, w work) error {
	r.hub.async(optimizerID, w, func() (any, error) { return nil, r.applyMatrix(e) })
	return nil
}

func (e orthogonalize) start(r *lane, w work) error {
	r.lanes[e.Lane].orthogonalize(w, e)
	return nil
}

func (r *run) prepareMatrix(e prepareMatrix) error {
	l, err := r.o.Home.Acquire(e.Of.Layer)
	if err != nil {
		return fmt.Errorf("update %s: %w", r.names[e.Of.Layer], err)
	}
	defer r.o.Home.Release(e.Of.Layer)
	m, to := r.lanes[e.Lane].matrix(e.Of.Layer, e.Matrix, e.Buffer)
	grad := r.slabOf
	if e.Of.Slab == noSlab {
		grad = r.stagedGrad
	}
	l.PrepareMatrix(m, grad(e.Of), to, r.o.Matrices.MatricesAt(e.Of.rate()))
	return nil
}

func (r *run) applyMatrix(e applyMatrix) error {
	l, err := r.o.Home.Acquire(e.Of.Layer)
	if err != nil {
		return fmt.Errorf("update %s: %w", r.names[e.Of.Layer], err)
	}
	defer r.o.Home.Release(e.Of.Layer)
	m, from := r.lanes[e.Lane].matrix(e.Of.Layer, e.Matrix, e.Buffer)
	l.ApplyMatrix(m, from, r.o.Matrices.MatricesAt(e.Of.rate()))
	return nil
}
