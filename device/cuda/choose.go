package cuda

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"mt/cudart"
	"mt/device"
	"mt/device/cuda/kernels"
	"mt/device/op"
)

// mostProposals is the most algorithms that mt asks cuBLASLt to propose for one product.
const mostProposals = 8

// propose asks cuBLASLt for algorithms for the product p, the presumably fastest first. It asks
// only for algorithms that give the same bits at every call. Some algorithms let several thread
// blocks share one sum over K. Such blocks must write partial sums to the workspace, where they are
// added in a fixed order. Algorithms that add them in place, in the order in which blocks finish,
// are excluded.
func (b *blas) propose(p *product, k productKey) (proposed []cudart.Algorithm, err error) {
	prefer, err := b.lib.PreferenceCreate()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.lib.PreferenceDestroy(prefer)) }()
	alignC := k.align[2]
	if alignC == 0 {
		alignC = k.align[3]
	}
	for _, set := range []struct {
		attr  cudart.PreferenceAttr
		value uint64
	}{
		{cudart.PreferMaxWorkspaceBytes, kernels.ScratchBytes}, {cudart.PreferReductions, cudart.ReductionFloat32},
		{cudart.PreferMinAlignmentA, uint64(k.align[1])}, {cudart.PreferMinAlignmentB, uint64(k.align[0])},
		{cudart.PreferMinAlignmentC, uint64(alignC)}, {cudart.PreferMinAlignmentD, uint64(k.align[3])},
	} {
		if err := b.lib.PreferenceSet(prefer, set.attr, set.value); err != nil {
			return nil, err
		}
	}
	found, err := b.lib.AlgoGetHeuristic(b.context, b.handle, &p.MatmulShape, prefer, mostProposals)
	for _, h := range found {
		proposed = append(proposed, h.Algorithm)
	}
	return proposed, err
}

// choose sets the algorithm of p. If the fastest one is not known yet, choose leaves cuBLASLt's
// proposals in p.proposed, and settle times them later.
func (b *blas) choose(p *product, k productKey) error {
	proposed, err := b.propose(p, k)
	if err != nil {
		return err
	}
	b.choices.mu.Lock()
	defer b.choices.mu.Unlock()
	made := false
	if p.algorithm, made = b.choices.made(b.platform, k.String(), proposed, b.dev.note); !made {
		p.algorithm, p.proposed = proposed[0], proposed
	}
	return nil
}

// settle times cuBLASLt's proposals for p and chooses one. It times them on the product m, whose
// arguments for cuBLASLt are a. It waits for the device, once for each shape. Timing overwrites the
// result, and the caller computes the product again afterwards. If the product adds to its result,
// settle first restores the old result.
func (b *blas) settle(p *product, k productKey, shape *cudart.MatmulShape, a cudart.MatmulArgs, m *op.MatMul, l *launcher) (err error) {
	c := b.choices
	c.mu.Lock()
	defer c.mu.Unlock()
	if algorithm, made := c.made(b.platform, k.String(), p.proposed, b.dev.note); made { // another device chose meanwhile
		p.algorithm, p.proposed = algorithm, nil
		return nil
	}
	if !m.C.None() && m.C.Addr == m.D.Addr {
		restore, saving := b.save(m.D.Mem(), l.stream.cuda)
		if saving != nil {
			return saving
		}
		defer func() { err = errors.Join(err, restore()) }()
	}
	times, err := b.time(p.proposed, shape, a, l)
	if err != nil {
		return err
	}
	if math.IsInf(float64(slices.Min(times)), 1) {
		return nil // the caller's call is refused as well, and returns the error
	}
	p.algorithm, p.proposed = p.proposed[slices.Index(times, slices.Min(times))], nil
	if err := c.keep(b.platform, k.String(), p.algorithm); err != nil {
		b.dev.noteOnce("choices", fmt.Sprintf("%v: the next run times its matrix products again", err))
	}
	return nil
}

// save copies the device memory mem to the host. The function restore that it returns copies the
// bytes back to the device and waits for that copy. settle saves a product's result with it before
// timing.
func (b *blas) save(mem device.Mem, s cudart.Stream) (restore func() error, err error) {
	d := b.dev
	host, err := d.AllocHost(mem.Bytes)
	if err != nil {
		return nil, err
	}
	if err := d.cuda.MemcpyAsync(d.context, address(host), mem.Addr, mem.Bytes, cudart.DeviceToHost, s); err != nil {
		err = errors.Join(err, d.cuda.StreamSynchronize(d.context, s))
		d.FreeHost(host)
		return nil, err
	}
	return func() error {
		err := d.cuda.MemcpyAsync(d.context, mem.Addr, address(host), mem.Bytes, cudart.HostToDevice, s)
		err = errors.Join(err, d.cuda.StreamSynchronize(d.context, s))
		d.FreeHost(host)
		return err
	}, nil
}

// timings is how often each proposal is timed, after a first run that loads its kernel.
const timings = 3

// time runs each algorithm several times and returns the least device time of each in ms; +Inf if
// cuBLASLt refuses it. The algorithms take turns, so all of them meet the same clock frequencies of
// the GPU.
func (b *blas) time(algorithms []cudart.Algorithm, shape *cudart.MatmulShape, a cudart.MatmulArgs, l *launcher) (times []float32, err error) {
	d, s := b.dev, l.stream.cuda
	var marks []cudart.Event
	defer func() {
		for _, e := range marks {
			d.giveEvent(e)
		}
	}()
	mark := func() error {
		e, err := d.takeEvent()
		if err != nil {
			return err
		}
		marks = append(marks, e)
		return d.cuda.EventRecord(d.context, e, s)
	}
	if err := mark(); err != nil {
		return nil, err
	}
	refused := make([]bool, len(algorithms))
	for range 1 + timings {
		for i := range algorithms {
			a.Algorithm = &algorithms[i]
			err := b.lib.Matmul(b.context, b.handle, shape, &a, s)
			if refused[i] = refusal(err); err != nil && !refused[i] {
				return nil, errors.Join(err, d.cuda.StreamSynchronize(d.context, s))
			}
			if err == nil {
				if err := l.launched(matmulCall); err != nil {
					return nil, err
				}
			}
			if err := mark(); err != nil {
				return nil, err
			}
		}
	}
	if err := d.cuda.EventSynchronize(d.context, marks[len(marks)-1]); err != nil {
		return nil, err
	}
	return b.least(marks, refused)
}

// least returns the least time of each algorithm in ms. The method time has run all algorithms in
// turn, for several rounds; marks are the events before and after each run. The first round loads
// kernels and does not count.
func (b *blas) least(marks []cudart.Event, refused []bool) ([]float32, error) {
	n := len(refused)
	times := make([]float32, n)
	for i := range times {
		times[i] = float32(math.Inf(1))
	}
	for j := n; j+1 < len(marks); j++ {
		ms, err := b.dev.cuda.EventElapsed(b.context, marks[j], marks[j+1])
		if err != nil {
			return nil, err
		}
		if !refused[j%n] {
			times[j%n] = min(times[j%n], ms)
		}
	}
	return times, nil
}
