package kernels

import "mt/device/op"

func init() { add(PreferenceWeights) }

var preferenceWeights = Kernel{Module: "preferenceweights", Name: "preference_weights"}

// PreferenceWeights launches op.PreferenceWeights: a block for each pair.
func PreferenceWeights(l Launcher, a *op.PreferenceWeights) {
	if a.T == 0 || a.Pairs == 0 {
		return
	}
	p := l.Params().Tensor(a.Weights).Tensor(a.Losses).Tensor(a.Targets).Tensor(a.Cu).Tensor(a.Reference).I32(int(a.Loss.Kind))
	p.F32(a.Loss.Beta).F32(a.Loss.Smoothing).F32(a.Likelihood)
	l.Launch(&preferenceWeights, line(int64(a.Pairs)), line(256), 0, p)
}
