package plan

import (
	"fmt"
	"strings"
)

// This file checks a run against the available memory, and names the keys that reduce its need.

// oneMemory reports whether host and device share one memory.
func (q Request) oneMemory() bool { return q.OneMemory || q.Unified }

// tooLargeForDevice reports whether r needs more memory than the device has. If host and device share one memory, it
// also reports a need beyond that memory.
func (r *Run) tooLargeForDevice(q Request) bool {
	if !r.tiered {
		r.tier(q)
	}
	t := r.Table()
	return q.DeviceMemory > 0 && t.Device > q.DeviceMemory || q.HostMemory > 0 && r.OneMemory && t.Host+t.AllDevices > q.HostMemory
}

// fits returns a *NotFitting error if the run exceeds the budgets of q. If it is still open which data is on disk, fits
// first moves as much to disk as necessary.
func (r *Run) fits(q Request) error {
	if !r.tiered {
		r.tier(q)
	}
	return r.lacks(q, r.Table())
}

// lacks returns a *NotFitting error if the run, with the table t, exceeds the budgets of q.
func (r *Run) lacks(q Request, t Table) error {
	if need, budget := r.mostLacking(q, t); budget > 0 && need > budget {
		return &NotFitting{Where: "device", Need: need, Budget: budget, Keys: r.waysOut(q, false) + ", or raise device_memory"}
	}
	need := t.OnHost()
	if q.HostMemory > 0 && need > q.HostMemory {
		last := ", or raise host_memory"
		if q.HostBy != "" {
			last = ", or have more host memory"
		}
		return &NotFitting{Where: "host", Need: need, Budget: q.HostMemory, By: q.HostBy, Keys: r.waysOut(q, true) + last}
	}
	return nil
}

// mostLacking returns the need and the budget, in bytes, of the device that lacks the most memory;
// budget 0: no limit. If all devices have the same budget, or layers are not assigned to lanes yet,
// it returns the largest need and DeviceMemory.
func (r *Run) mostLacking(q Request, t Table) (need, budget int64) {
	if r.Lane == nil || len(q.LaneMemory) == 0 {
		return t.Device, q.DeviceMemory
	}
	for lane, has := range q.LaneMemory {
		if has > 0 && (budget == 0 || t.devices[lane]-has > need-budget) {
			need, budget = t.devices[lane], has
		}
	}
	return need, budget
}

// waysOut returns an error's advice: configuration keys that reduce the need for memory. If host is
// true the keys reduce host memory, otherwise device memory.
func (r *Run) waysOut(q Request, host bool) string {
	var ways []string
	add := func(where bool, text string) {
		if where {
			ways = append(ways, text)
		}
	}
	train := !r.EvalOnly
	add(host && train && r.Clip, "set clip: layerwise or max_grad_norm: 0 with a small pipeline.grad_slabs (gradients then do not wait for the norm)")
	add(host && train && r.PoolsSlabs() && r.Depths.GradSlabs > 1, "lower pipeline.grad_slabs")
	add(host && train && r.Depths.ExchangeBuffers > 1, "set pipeline.exchange_buffers: 1")
	add(train && !r.GradBF16 && (host || !r.GradsInPlace()), "set grad_dtype: bf16")
	add((!host || r.OneMemory) && r.Spec.Keep.Anything(), "set recompute: full")
	if r.Spec.Shards() == 1 && (!host || r.OneMemory) {
		n := r.leastShards()
		add(n > 1, fmt.Sprintf("set pipeline.head_shards: %d", n))
	}
	add(true, "lower per_device_train_batch_size, pipeline.micro_batch_tokens or max_seq_len")
	if two := q; q.Rounds == 1 && train {
		two.Rounds = 2
		add(r.oneRound(two) == "", "leave out pipeline.rounds: 1")
	}
	add(!host && r.Depths.WeightSlots > 1, "set pipeline.weight_slots: 1")
	add(!host && train && r.Depths.GradBuffers > 1, "set pipeline.grad_buffers: 1")
	add((!host || r.OneMemory) && !r.Spec.OnHost && r.Depths.ActivationSlots > minActSlots, "set pipeline.activation_slots: 3")
	add(host && train && !q.StateDir, "set state_dir to a directory on a fast disk")
	add(host && train && q.StateDir && !q.ParamDir && r.Ranks <= 1, "set param_dir to a directory on a fast disk")
	add(host, "use a smaller model")
	return strings.Join(ways, ", ")
}
