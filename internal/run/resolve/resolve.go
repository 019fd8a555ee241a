package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"mt/base/human"
	"mt/device/op"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/resume"
	"mt/internal/run/settings"
	"mt/layers/schedule"
	"mt/plan"
)

// Resolved is a run whose autos are all resolved: its plan and the matching settings.
type Resolved struct {
	*resume.Start
	Plan    *plan.Run
	Asked   plan.Request   // the request from which the plan was made
	Hosts   int            // number of hosts to plan for, if they are not connected as ranks; 0: the real number
	Prompts []SamplePrompt // sample_prompts, if sample_steps is set
	Ref     Reference      // the reference model's log-probabilities, for training on pairs
	Notes   []string       // for the user, once
}

// resolving is a Resolved whose fields are still being set.
type resolving struct{ Resolved }

func (r *resolving) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// resolvingFrom returns a Resolved to be filled for the start s, with a copy of s's settings, in which autos are then
// resolved.
func resolvingFrom(s *resume.Start) *resolving {
	begins := *s
	begins.Inputs = s.With(s.Config.Clone())
	return &resolving{Resolved{Start: &begins}}
}

// Resolve resolves the configuration's autos and checks that the run fits into memory.
func Resolve(s *resume.Start) (*Resolved, error) {
	r := resolvingFrom(s)
	var err error
	if r.Prompts, err = findPrompts(r.Inputs); err != nil {
		return nil, err
	}
	r.Ref.unneeded = len(r.Config.DPO) > 0 && (s.From.Ended || s.From.State.Step >= r.Config.MaxSteps && r.Ranks.First() && r.Finished())
	steps := []func() error{r.readReferences, func() error { return r.resolve(false) }, func() error { return r.CheckRoom("the run") }}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if r.Ref.Pass != nil {
		if err := r.ForReference().CheckRoom(r.PassName()); err != nil {
			return nil, err
		}
	}
	return &r.Resolved, nil
}

// Sketch resolves a run for a plan only, on this many hosts (0: the real number). If the run does not fit, it returns
// the error and the request.
func Sketch(in *open.Inputs, hosts int) (*Resolved, error) {
	r := resolvingFrom(resume.Fresh(in))
	r.Hosts = hosts
	return &r.Resolved, r.resolve(false)
}

// ToEvaluate resolves the autos for an evaluation without training.
func ToEvaluate(in *open.Inputs) (*Resolved, error) {
	r := resolvingFrom(resume.Fresh(in))
	return &r.Resolved, r.resolve(true)
}

// Request returns a Resolved that has only the request for a plan, not the plan itself. The run of in starts at step
// 0.
func Request(in *open.Inputs) *Resolved {
	r := &Resolved{Start: resume.Fresh(in)}
	r.Asked = r.request(false)
	return r
}

func (r *resolving) resolve(evalOnly bool) (err error) {
	q := r.request(evalOnly).Sharing()
	if err := r.checkPositions(r.Model, "the model"); err != nil {
		return err
	}
	if r.Hosts > 1 {
		q.Ranks = r.Hosts
	}
	r.Asked = q
	if r.Plan, err = plan.Resolve(q); err != nil {
		return r.PlanError(err)
	}
	r.recordResolved()
	r.noteNumerics(q)
	if len(r.Config.StateDir) > 0 && r.Plan.StateOnDisk == nil && !q.EvalOnly {
		rounds := ""
		if r.Plan.StepRounds() > 1 {
			rounds = " in rounds"
		}
		r.note("state_dir: host memory has room for everything%s, so nothing is kept there; host_memory says how much mt may take", rounds)
	} else if len(r.Config.ParamDir) > 0 && r.Plan.WeightsOnDisk == nil && !q.EvalOnly {
		r.note("param_dir: host memory has room for the weights, so they are not kept there; host_memory says how much mt may take")
	}
	if idle := r.Plan.Idle(); idle > IdleEnough {
		r.note("%d micro-batches a step keep %d devices at work %.0f %% of the time at most: lower pipeline.micro_batch_tokens, raise the rows of a step, or use fewer devices",
			r.Plan.Limits.MicroBatches, r.Lanes, 100*(1-idle))
	}
	if err := r.checkParams(); err != nil || evalOnly {
		return err
	}
	return r.planPass()
}

// IdleEnough is a share of a step. If several devices wait for each other for more than this share, the user gets a
// note.
const IdleEnough = 0.25

// request returns the request for a plan that the configuration makes. evalOnly asks for a plan of an evaluation.
func (r *Resolved) request(evalOnly bool) plan.Request {
	c := r.Config
	q := plan.Request{Config: r.Model, Act: r.Act, Terms: op.LossTerms{Smoothing: float32(c.LabelSmoothing), Z: float32(c.ZLoss)}, Preference: preferenceLoss(c), AheadWeight: c.MTPLossWeight,
		Noise:     op.Noise{Alpha: float32(c.NoiseAlpha), Seed: uint64(c.Seed)},
		GradDType: c.GradDType, BF16Master: r.BF16Master() || evalOnly && !r.StartsRows(), Recompute: c.Recompute, HiddenStates: c.HiddenStates, Fused: r.Fuses(),
		MicroBatchTokens: c.Pipeline.MicroBatchTokens, ChunkTokens: c.Pipeline.ChunkTokens,
		Order: r.order(), AnyOrder: c.MicroBatchOrder == "auto", Rounds: c.Pipeline.Rounds, Devices: r.Lanes, Paces: r.Paces, LaneMemory: r.LaneMemory, Lane: r.Began,
		Depths: plan.Depths{WeightSlots: c.Pipeline.WeightSlots, GradBuffers: c.Pipeline.GradBuffers, GradSlabs: c.Pipeline.GradSlabs,
			ActivationSlots: c.Pipeline.ActivationSlots, BatchesAhead: c.Pipeline.BatchesAhead, ExchangeBuffers: c.Pipeline.ExchangeBuffers, GathersAhead: c.Pipeline.GathersAhead, StateSlots: c.Pipeline.StateSlots,
			MatrixBuffers: c.Pipeline.MatrixBuffers}, StateDir: len(c.StateDir) > 0, ParamDir: len(c.ParamDir) > 0 && r.Ranks.Size() <= 1 && r.Hosts <= 1, Compress: c.Compress == "byteplane", HeadShards: c.Pipeline.HeadShards,
		Rows: c.RowsPerStep(), RowTokens: r.RowTokens(), Positions: r.RopePositions(), Document: min(r.RowTokens(), c.MaxSeqLen), Clip: c.WaitsForNorm(), Unified: r.Unified, OneMemory: r.Integrated, EvalOnly: evalOnly, Planes: settings.Average(r.Config).With(r.Optimizer().Planes), Optim: c.Optim,
		NSSteps: settings.NSSteps(r.Config), Ranks: r.Ranks.Size(), Rank: r.Ranks.Rank(), Units: r.Optimizer().Units,
		Context: r.ContextBytes(), DeviceMemory: r.DeviceBudget(), HostMemory: r.Share(int64(c.HostMemory))}
	if q.HostMemory == 0 {
		room := open.BudgetOf(r.Integrated, r.Room())
		q.HostMemory, q.HostBy = room.Budget(), room.By
	}
	return q
}

// order returns in which order the layers take the micro-batches of a step.
func (r *Resolved) order() schedule.Order {
	if o := r.Config.MicroBatchOrder; o == schedule.Lanes.String() || o == "auto" && r.Lanes > 1 {
		return schedule.Lanes
	}
	return schedule.Zigzag
}

// recordResolved writes the plan's choices into the configuration, for config.yaml and for resuming.
func (r *resolving) recordResolved() {
	c, p := r.Config, r.Plan
	c.MicroBatchOrder = p.Order.String()
	c.GradDType = gradType(p)
	d := p.Depths
	c.Pipeline = config.Pipeline{WeightSlots: d.WeightSlots, GradBuffers: d.GradBuffers, ActivationSlots: d.ActivationSlots,
		BatchesAhead: d.BatchesAhead, GradSlabs: c.Pipeline.GradSlabs, ExchangeBuffers: d.ExchangeBuffers, GathersAhead: d.GathersAhead, StateSlots: cmp.Or(d.StateSlots, c.Pipeline.StateSlots),
		MatrixBuffers: cmp.Or(d.MatrixBuffers, c.Pipeline.MatrixBuffers), MicroBatchTokens: c.Pipeline.MicroBatchTokens,
		ChunkTokens: p.Spec.ChunkTokens, HeadShards: p.Spec.Shards(), Rounds: p.StepRounds()}
	if p.SlabsAreCredits() {
		c.Pipeline.GradSlabs = d.GradSlabs
	}
	if c.Pipeline.MicroBatchTokens == 0 {
		c.Pipeline.MicroBatchTokens = p.Limits.MicroBatchTokens
	}
}

// checkParams returns an error for settings that a run with weights on disks does not support.
func (r *Resolved) checkParams() error {
	if r.Plan.WeightsOnDisk == nil {
		return nil
	}
	for _, has := range []struct {
		key string
		set bool
	}{{"sample_prompt", r.Config.SamplePrompt != ""}, {"sample_prompts", len(r.Config.Samples()) > 0}} {
		if has.set {
			return r.Config.Errorf(has.key, "%s: the weights of this run are on disks (param_dir), and text is written by a model in memory: leave it out, or give more host_memory", has.key)
		}
	}
	return nil
}

// CheckRoom returns an error if the run needs more host memory than is available. Without this check the lack could
// show late, because memory is filled step by step. `what` names the run or the reference pass in the error.
func (r *Resolved) CheckRoom(what string) error {
	t, room := r.Plan.Table(), r.Room()
	need, key := t.Host, "host_memory"
	if r.Config.Device == "cpu" || r.Integrated {
		need += t.AllDevices
	}
	if r.Config.Device == "cpu" && !r.Config.Given(key) {
		key = "device_memory"
	}
	if !room.Known || need <= room.Bytes {
		return nil
	}
	return r.Config.Errorf(key, "%s: %s needs %s of this machine's memory, and %s, %s too little: lower %s to what there is, and the plan names what needs less",
		key, what, human.Bytes(need), room, human.Bytes(need-room.Bytes), key)
}

// PlanError adds a configuration key to err, the error of a plan. It is the key that set the exceeded budget, or the
// key of a wrong depth.
func (r *Resolved) PlanError(err error) error {
	var lacking *plan.NotFitting
	var depth *plan.BadDepth
	key := ""
	switch {
	case errors.As(err, &lacking):
		key = lacking.Where + "_memory"
	case errors.As(err, &depth):
		key = depth.Key
	}
	if r.Config.Given(key) {
		return r.Config.Errorf(key, "plan: %w", err)
	}
	return fmt.Errorf("plan: %w", err)
}

// WithPlan returns the run with another plan.
func (r *Resolved) WithPlan(p *plan.Run) *Resolved {
	out := *r
	out.Plan = p
	return &out
}

// noteNumerics tells how a lack of host memory changes results, if state_dir is given. It plans the request q once
// more with ample memory and compares. A small host_memory can lead to smaller micro-batches or bf16 gradients, which
// change the last bits of sums. A note names each such setting.
func (r *resolving) noteNumerics(q plan.Request) {
	if !q.StateDir || q.EvalOnly {
		return
	}
	q.HostMemory, q.StateDir, q.ParamDir = 1<<60, false, false
	roomy, err := plan.Resolve(q)
	if err != nil {
		return // with ample host memory the plan fails for another reason, the device; the run's own plan fits
	}
	var differ []string
	add := func(key string, small, large any) {
		if small != large {
			differ = append(differ, fmt.Sprintf("%s: %v (%v)", key, large, small))
		}
	}
	add("pipeline.micro_batch_tokens", r.Plan.Limits.MicroBatchTokens, roomy.Limits.MicroBatchTokens)
	add("pipeline.chunk_tokens", r.Plan.Spec.ChunkTokens, roomy.Spec.ChunkTokens)
	add("pipeline.head_shards", r.Plan.Spec.Shards(), roomy.Spec.Shards())
	add("micro_batch_order", r.Plan.Order.String(), roomy.Order.String())
	add("grad_dtype", gradType(r.Plan), gradType(roomy))
	if len(differ) > 0 {
		r.note("this host_memory decides settings that the last bits of sums depend on; a run with room for everything has %s; give these keys to both runs for the same bits", strings.Join(differ, ", "))
	}
}

// gradType returns the name of the dtype in which gradients cross the link and wait on the host in plan p.
func gradType(p *plan.Run) string {
	if p.GradBF16 {
		return "bf16"
	}
	return "fp32"
}
