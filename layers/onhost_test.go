package layers

import (
	"reflect"
	"testing"

	"mt/device"
	"mt/device/op"
	"mt/layers/schedule"
	"mt/model"
)

// onHost returns s with hidden states in host memory.
func onHost(s Spec) Spec {
	s.OnHost, s.Keep = true, nil
	return s
}

// TestHiddenStatesOnTheHost: hidden states on the host change no bit of losses and gradients. The test covers every
// kind of block, ragged micro-batches, whole heads and heads in parts, training and evaluation.
func TestHiddenStatesOnTheHost(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		if cfg.MLA != nil && cfg.MLA.Indexer != nil {
			t.Skip("a plan refuses hidden states on the host with documents longer than index_topk, as TestWhatKeepsHiddenStates of package plan holds")
		}
		if cfg.PerLayerSize > 0 || cfg.SharedKV > 0 {
			t.Skip("a plan refuses hidden states on the host with per-layer inputs or shared keys and values, as TestWhatKeepsHiddenStates of package plan holds")
		}
		for _, act := range []device.DType{device.F32, device.BF16} {
			for shards := 1; shards <= 3; shards += 2 {
				s := spec(cfg, KeepNothing, act)
				s.HeadShards, s.Noise = shards, op.Noise{Alpha: 3, Seed: 4}
				var results []result
				var losses [][]float64
				for _, s := range []Spec{s, onHost(s)} {
					r := newRig(t, dev, s, nil)
					r.at = 2
					b := r.batch(micro(cfg)...)
					results = append(results, r.step(b))
					losses = append(losses, r.evaluate(b))
				}
				if !reflect.DeepEqual(results[0], results[1]) {
					t.Errorf("%s, %d parts of the head: a step has other bits", act, shards)
				}
				if !reflect.DeepEqual(losses[0], losses[1]) {
					t.Errorf("%s, %d parts of the head: an evaluation has other bits", act, shards)
				}
			}
		}
	})
}

// TestCrossesIsWhatLaunchesCopy: with hidden states on the host, a step copies the bytes that
// Spec.Crosses says, for whole heads and heads in parts.
func TestCrossesIsWhatLaunchesCopy(t *testing.T) {
	crossing(t, config(func(c *model.Config) {
		c.NumHeads, c.NumKVHeads, c.HiddenSize, c.LearnedPositions, c.MaxPositions = 4, 2, 36, true, 13
	}))
	crossing(t, config(func(c *model.Config) { c.Alone, c.Ungated = []model.Half{model.BothHalves, model.SecondHalf}, true }))
	crossing(t, mlaConfig(5, 5))
	crossing(t, mlaConfig(5, 9))
	for _, c := range configs {
		if c.cfg.OutputGate || c.cfg.Recurrence() != nil {
			crossing(t, c.cfg)
		}
	}
}

func crossing(t *testing.T, cfg *model.Config) {
	t.Helper()
	for shards := 1; shards <= 3; shards++ {
		for _, act := range []device.DType{device.F32, device.BF16} {
			toy, s := newToy(), onHost(spec(cfg, KeepNothing, act))
			s.HeadShards = shards
			r := newRig(t, toy, s, nil)
			b := r.batch(micro(cfg)...)
			grads, embed := r.gradients(len(b.ids))
			ws, losses := r.alloc(s.WorkspaceBytes()), r.tensor(device.F32, 13)
			for _, mb := range b.mbs {
				var up, down int64
				for _, l := range r.layouts {
					stages := KindOf(l.Kind).Stages(s, l)
					for _, pass := range [][]schedule.Visit{stages.Forward, stages.Backward} {
						for _, v := range pass {
							if v.Phase = schedule.Forward; v.Grad() {
								v.Phase = schedule.Backward
							}
							u, d := s.Crosses(v, l.Block, mb.Tokens)
							up, down = up+u, down+d
						}
					}
				}
				toy.up, toy.down = 0, 0
				other := r.filled
				r.stepOne(b, mb, grads, embed, losses, ws, true)
				if toy.up-(r.filled-other) != up || toy.down != down {
					t.Errorf("%d parts, %s: %d bytes up and %d down, said to be %d and %d", shards, act, toy.up-(r.filled-other), toy.down, up, down)
				}
			}
			if up, down := spec(cfg, KeepNothing, act).Crosses(schedule.Visit{Stage: schedule.Block}, 0, 5); up != 0 || down != 0 {
				t.Error("something is said to cross where all is on the device")
			}
		}
	}
}
