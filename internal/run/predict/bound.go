package predict

import (
	"fmt"
	"time"

	"mt/base/accounts"
	"mt/base/parallel"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/internal/run/machine"
	"mt/internal/run/open"
	"mt/internal/run/resolve"
	"mt/internal/run/settings"
	"mt/model"
	"mt/plan"
)

// Sizes of the measurements behind a plan's bound. They exceed the caches and take only a moment.
const (
	boundCopy = 64 << 20 // bytes copied over the link
	boundRuns = 4        // number of measurements; the fastest counts
)

// boundParams returns the number of parameters in the update whose rate is measured: eight square matrices with
// machine.CPURateSize rows.
func boundParams() int { return 8 * machine.CPURateSize * machine.CPURateSize }

// boundHere measures this machine and returns a lower bound on the time of a step. It returns nil without an error if
// there is no device, or too little device memory to measure: the plan is then printed without a bound.
func boundHere(r *resolve.Resolved) (_ *plan.Bound, err error) {
	if r.Devices == nil && r.Config.Device == "cuda" {
		return nil, nil
	}
	hw, err := r.OpenHardware()
	if err != nil {
		return nil, err
	}
	defer open.CloseAfter(hw, &err)
	dev, pool := hw.Devs[0], hw.Pool
	rates := plan.Rates{}
	if rates.MatMul, err = machine.MatMulRate(dev, r.Act, r.RateSize()); err != nil {
		return nil, err
	}
	if rates.MatMul == 0 {
		return nil, nil // device_memory is too small to measure
	}
	if rates.Host, err = updateRate(r.Throttle.Optimizer(settings.Elementwise(r.Config)), pool, r.Act == device.BF16, r.BF16Master()); err != nil {
		return nil, err
	}
	if !dev.Unified() {
		if rates.Link, err = linkRate(dev); err != nil {
			return nil, err
		}
	}
	b, err := plan.Time(r.Plan, rates)
	return &b, err
}

// updateRate returns the bytes per second that an update by o reads and writes in host memory. split says that weights
// stream as bf16 (high halves) with lower halves beside them. `alone` says that there are no lower halves (bf16 master
// weights).
func updateRate(o optim.Optimizer, pool *parallel.Pool, split, alone bool) (rate float64, err error) {
	const cols = 1 << 10
	params := boundParams()
	layer := model.Layer{Kind: model.Block, Params: []model.Param{{Role: model.RoleDown, Rows: params / cols, Cols: cols, Dims: 2}}}
	layout := model.NewLayout(layer, split, model.Param{})
	layout.BF16Master = alone
	store, err := host.NewStore([]model.Layout{layout}, o.Planes, pool)
	if err != nil {
		return 0, fmt.Errorf("measure updates: %w", err)
	}
	defer store.Close()
	slab, err := host.NewArena(accounts.GradientSlabs, 4*int64(params), pool)
	if err != nil {
		return 0, fmt.Errorf("measure updates: %w", err)
	}
	defer slab.Close()
	grad, at := optim.Grad{Data: slab.Bytes(), Elems: int64(params)}, optim.Rate{LR: 1e-4, Clip: 1}
	best := time.Duration(0)
	for range boundRuns {
		at.Step++
		begin := time.Now()
		store.Layers[0].Update(grad, o, at)
		if d := time.Since(begin); best == 0 || d < best {
			best = d
		}
	}
	bytes := optim.Planes(o.Planes).UpdateBytes(layout) + int64(len(grad.Data))
	return float64(bytes) / max(best, 1).Seconds(), nil
}

// linkRate returns the rate of copies from pinned host memory to the device, in bytes per second.
func linkRate(dev device.Device) (rate float64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("measure the link: %w", err)
		}
	}()
	bytes := int64(boundCopy)
	if u := dev.Usage(); u.Limit > 0 {
		bytes = max(1<<20, min(bytes, (u.Limit-u.Total)/2))
	}
	from, err := dev.AllocHost(bytes)
	if err != nil {
		return 0, err
	}
	defer dev.FreeHost(from)
	to, err := dev.Alloc(accounts.Workspace, bytes)
	if err != nil {
		return 0, err
	}
	defer dev.Free(to)
	s, err := dev.NewStream("link")
	if err != nil {
		return 0, err
	}
	defer s.Close()
	best := time.Duration(0)
	for range boundRuns {
		begin := time.Now()
		s.CopyH2D(to, from)
		if err := s.Sync(); err != nil {
			return 0, err
		}
		if d := time.Since(begin); best == 0 || d < best {
			best = d
		}
	}
	return float64(bytes) / max(best, 1).Seconds(), nil
}
