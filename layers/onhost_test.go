package layers

import (
	"reflect"
	"testing"

	"mt/device"
	"mt/model"
)

// onHost is s with hidden states on the host.
func onHost(s Spec) Spec {
	s.OnHost, s.Keep = true, nil
	return s
}

// TestHiddenStatesOnTheHost: with hidden states on the host losses and gradients have the bits that they
// have with all on the device, for every kind of block, of ragged micro-batches, whole heads and heads in
// parts, in training and in an evaluation.
func TestHiddenStatesOnTheHost(t *testing.T) {
	onEach(t, func(t *testing.T, dev device.Device, cfg *model.Config) {
		for _, act := range []device.DType{device.F32, device.BF16} {
			for shards := 1; shards <= 3; shards += 2 {
				s := spec(cfg, KeepNothing, act)
				s.HeadShards = shards
				var results []result
				var losses [][]float64
				for _, s := range []Spec{s, onHost(s)} {
					r := newRig(t, dev, s, nil)
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
