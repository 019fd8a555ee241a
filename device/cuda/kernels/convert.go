package kernels

import (
	"mt/device"
	"mt/device/op"
)

func init() { add(Convert) }

var (
	convertTo = byAccess{
		{device.F32: {Module: "convert", Name: "convert_f32_bf16"}, device.BF16: {Module: "convert", Name: "convert_bf16_f32"}},
		{device.F32: {Module: "convert", Name: "convert16_f32_bf16"}, device.BF16: {Module: "convert", Name: "convert16_bf16_f32"}},
	}
	copyOf = forAccess("convert", "copy")
)

// Convert launches op.Convert.
func Convert(l Launcher, a *op.Convert) {
	const threads, units = 256, 4
	if a.N == 0 {
		return
	}
	wide, each := wideAt(a.Dst, a.Src), int64(1)
	k := convertTo.of(wide, a.Dst.DType)
	if a.Dst.DType == a.Src.DType {
		k = copyOf.of(wide, a.Dst.DType)
		each = int64(chunkOf(wide, a.Dst.DType))
	} else if wide {
		each = 4
	}
	p := l.Params().Tensor(a.Dst).Tensor(a.Src).I64(a.N)
	l.Launch(k, line(ceilDiv(ceilDiv(a.N, each), threads*units)), line(threads), 0, p)
}
