package kernels

import "mt/device/op"

func init() { add(AddNoise) }

var addNoise = forAccess("noise", "add_noise")

// AddNoise launches op.AddNoise. Rows outside the documents become NaN.
func AddNoise(l Launcher, a *op.AddNoise) {
	if a.T == 0 || a.C == 0 {
		return
	}
	wide := wideAt(a.X) && wideBy(a.X.DType, a.C)
	grid, block := columnBlocks(a.T, a.C, 16, 128)
	p := l.Params().Tensor(a.X).Tensor(a.Cu).I32(a.Seqs).I32(a.From).I32(a.First).I32(a.Step).I32(a.C).F32(a.Scale).I64(int64(a.Seed))
	l.Launch(addNoise.of(wide, a.X.DType), grid, block, 0, p)
}
