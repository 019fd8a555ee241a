package train

import (
	"cmp"
	"fmt"

	"mt/device/op"
	"mt/internal/config"
	"mt/plan"
	"mt/schedule"
)

// Resolved is a run whose every auto is settled: its plan, and settings that say so.
type Resolved struct {
	*Start
	plan    *plan.Run
	asked   plan.Request   // what the plan was asked for
	hosts   int            // how many it is only planned for; 0: as many as there are
	prompts []samplePrompt // sample_prompts, with sample_steps
	ref     reference      // of training on pairs
	notes   []string       // for the user, once
}

// resolving is a run that is being resolved.
type resolving struct{ Resolved }

func (j *resolving) note(format string, args ...any) {
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

// Under are Inputs' and a start's values under settings that the plan may write to.
func resolvingFrom(s *Start) *resolving {
	begins := *s
	begins.Inputs = s.with(s.c.Clone())
	return &resolving{Resolved{Start: &begins}}
}

// Resolve settles what the configuration leaves to mt, and checks that the run fits into memory.
func Resolve(s *Start) (*Resolved, error) {
	j := resolvingFrom(s)
	var err error
	if j.prompts, err = findPrompts(j.Inputs); err != nil {
		return nil, err
	}
	j.ref.unneeded = len(j.c.DPO) > 0 && (s.from.ended || s.from.state.Step >= j.c.MaxSteps && j.team.first() && j.finished())
	steps := []func() error{j.readReferences, func() error { return j.resolve(false) }, func() error { return j.checkRoom("the run") }}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if j.ref.pass != nil {
		if err := j.reference().checkRoom(j.passName()); err != nil {
			return nil, err
		}
	}
	return &j.Resolved, nil
}

// Sketch resolves a run that is only planned for, on so many hosts (0: as many as there are). Where the run does not fit,
// what it was asked for is returned too.
func Sketch(in *Inputs, hosts int) (*Resolved, error) {
	j := resolvingFrom(Fresh(in))
	j.hosts = hosts
	return &j.Resolved, j.resolve(false)
}

// ToEvaluate resolves an evaluation alone.
func ToEvaluate(in *Inputs) (*Resolved, error) {
	j := resolvingFrom(Fresh(in))
	return &j.Resolved, j.resolve(true)
}

// Request is what a plan of the settings is asked for, without a start.
func Request(in *Inputs) *Resolved {
	r := &Resolved{Start: Fresh(in)}
	r.asked = r.request(false)
	return r
}

func (j *resolving) resolve(evalOnly bool) (err error) {
	q := j.request(evalOnly)
	if err := j.checkPositions(j.model, "the model"); err != nil {
		return err
	}
	if j.hosts > 1 {
		q.Ranks = j.hosts
	}
	j.asked = q
	if j.plan, err = plan.Resolve(q); err != nil {
		return j.planError(err)
	}
	j.recordResolved()
	j.noteNumerics(q)
	if len(j.c.StateDir) > 0 && j.plan.Away == nil && !q.EvalOnly {
		j.note("state_dir: host memory has room for everything, so nothing is kept there; host_memory says how much mt may take")
	} else if len(j.c.ParamDir) > 0 && j.plan.ParamAway == nil && !q.EvalOnly {
		j.note("param_dir: host memory has room for the weights, so they are not kept there; host_memory says how much mt may take")
	}
	if idle := j.plan.Idle(); idle > idleEnough {
		j.note("%d micro-batches a step keep %d devices at work %.0f %% of the time at most: lower pipeline.micro_batch_tokens, raise the rows of a step, or use fewer devices",
			j.plan.Limits.MicroBatches, j.lanes, 100*(1-idle))
	}
	if err := j.checkParams(); err != nil || evalOnly {
		return err
	}
	return j.planPass()
}

// idleEnough is the share of a step in which several devices may stand still, as predicted, before
// the user is told.
const idleEnough = 0.25

// request asks for the plan of what the configuration says.
func (j *Resolved) request(evalOnly bool) plan.Request {
	c := j.c
	q := plan.Request{Config: j.model, Act: j.act, Terms: op.LossTerms{Smoothing: float32(c.LabelSmoothing), Z: float32(c.ZLoss)}, Preference: preferenceLoss(c),
		Noise:     op.Noise{Alpha: float32(c.NoiseAlpha), Seed: uint64(c.Seed)},
		GradDType: c.GradDType, BF16Master: j.bf16Master() || evalOnly && !j.startsRows(), Recompute: c.Recompute, HiddenStates: c.HiddenStates, Fused: j.fuses(),
		MicroBatchTokens: c.Pipeline.MicroBatchTokens, ChunkTokens: c.Pipeline.ChunkTokens,
		Order: j.order(), Devices: j.lanes, Paces: j.paces, LaneMemory: j.memory, Lane: j.began,
		Depths: plan.Depths{WeightSlots: c.Pipeline.WeightSlots, GradBuffers: c.Pipeline.GradBuffers, GradSlabs: c.Pipeline.GradSlabs,
			ActivationSlots: c.Pipeline.ActivationSlots, BatchesAhead: c.Pipeline.BatchesAhead, ExchangeBuffers: c.Pipeline.ExchangeBuffers, GathersAhead: c.Pipeline.GathersAhead, StateSlots: c.Pipeline.StateSlots,
			MatrixBuffers: c.Pipeline.MatrixBuffers}, StateDir: len(c.StateDir) > 0, ParamDir: len(c.ParamDir) > 0 && j.team.Size() <= 1 && j.hosts <= 1, Compress: c.Compress == "byteplane", HeadShards: c.Pipeline.HeadShards,
		Rows: c.RowsPerStep(), RowTokens: j.rowTokens(), Positions: j.ropePositions(), Clip: c.WaitsForNorm(), Unified: j.unified, OneMemory: j.integrated, EvalOnly: evalOnly, Planes: average(j.c).With(j.optimizer().Planes), Optim: c.Optim,
		NSSteps: nsSteps(j.c), Ranks: j.team.Size(), Rank: j.team.Rank(), Units: j.optimizer().Units,
		Context: j.contextBytes(), DeviceMemory: j.deviceBudget(), HostMemory: j.share(int64(c.HostMemory))}
	if q.HostMemory == 0 {
		room := budgetOf(j.integrated, j.room())
		q.HostMemory, q.HostBy = room.Budget(), room.By
	}
	return q
}

// order is in which order layers take the micro-batches.
func (j *Resolved) order() schedule.Order {
	if o := j.c.MicroBatchOrder; o == schedule.Lanes.String() || o == "auto" && j.lanes > 1 {
		return schedule.Lanes
	}
	return schedule.Zigzag
}

// recordResolved writes what the plan chose into the configuration, for
// config.yaml and for resuming.
func (j *resolving) recordResolved() {
	c, p := j.c, j.plan
	c.MicroBatchOrder = p.Order.String()
	c.GradDType = gradType(p)
	d := p.Depths
	c.Pipeline = config.Pipeline{WeightSlots: d.WeightSlots, GradBuffers: d.GradBuffers, ActivationSlots: d.ActivationSlots,
		BatchesAhead: d.BatchesAhead, GradSlabs: c.Pipeline.GradSlabs, ExchangeBuffers: d.ExchangeBuffers, GathersAhead: d.GathersAhead, StateSlots: cmp.Or(d.StateSlots, c.Pipeline.StateSlots),
		MatrixBuffers: cmp.Or(d.MatrixBuffers, c.Pipeline.MatrixBuffers), MicroBatchTokens: c.Pipeline.MicroBatchTokens,
		ChunkTokens: p.Spec.ChunkTokens, HeadShards: p.Spec.Shards()}
	if p.SlabsAreCredits() {
		c.Pipeline.GradSlabs = d.GradSlabs
	}
	if c.Pipeline.MicroBatchTokens == 0 {
		c.Pipeline.MicroBatchTokens = p.Limits.MicroBatchTokens
	}
}

// checkParams refuses what a run whose weights are on disks cannot do.
func (j *Resolved) checkParams() error {
	if j.plan.ParamAway == nil {
		return nil
	}
	for _, has := range []struct {
		key string
		set bool
	}{{"sample_prompt", j.c.SamplePrompt != ""}, {"sample_prompts", len(j.c.Samples()) > 0}} {
		if has.set {
			return j.c.Errorf(has.key, "%s: the weights of this run are on disks (param_dir), and text is written by a model in memory: leave it out, or give more host_memory", has.key)
		}
	}
	return nil
}
