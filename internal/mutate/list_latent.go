package main

// ofLatent breaks latent attention, and the copies of heads that it is made of.
var ofLatent = []broken{
	{"layers/latent.go", []way{
		{from: "Eps: l.dims.latent.NormEps", to: "Eps: l.spec.Config.RMSNormEps", test: "TestGradientsEqualFiniteDifferences"},
		{from: "YStride: rank,\n\t\tEps: l.dims.latent.NormEps, Offset: l.spec.Config.NormOffset}", to: "YStride: rank,\n\t\tEps: l.dims.latent.NormEps}", test: "TestGradientsEqualFiniteDifferences"},
		{from: "XStride: stride, Offset: l.spec.Config.NormOffset}", to: "XStride: stride}", test: "TestGradientsEqualFiniteDifferences"},
		{from: ", d.headDim-at.ValueDim\n", to: ", 0\n", test: "TestGradientsEqualFiniteDifferences"},
		{from: "Zeros: d.headDim - d.latent.ValueDim,\n", to: "Zeros: 0 * d.headDim,\n", test: "TestGradientsEqualFiniteDifferences"},
		{from: "turning.SrcStride, turning.SrcHead = b.kva.width, 0", to: "turning.SrcStride, turning.SrcHead = b.kva.width, 1", test: "TestGradientsEqualFiniteDifferences"},
		{from: "from(kv, at.NopeDim), from(b.kva.of(c), at.KVRank)", to: "from(kv, at.NopeDim), b.kva.of(c)", test: "TestGradientsEqualFiniteDifferences"},
		{from: "Dst: from(dkva, at.KVRank), Src: turning.Dst", to: "Dst: from(dkva, at.KVRank), Src: turning.Src", test: "TestGradientsEqualFiniteDifferences"},
		{from: "range [...]op.CopyHeads{keys, values}", to: "range []op.CopyHeads{keys, values}[:1]", test: "TestGradientsEqualFiniteDifferences"},
		{from: "K: b.dkva.width, A: dkva, B: l.w[model.RoleKVA], C: n, D: n}", to: "K: b.dkva.width, A: dkva, B: l.w[model.RoleKVA], D: n}", test: "TestGradientsEqualFiniteDifferences"},
		{from: "l.narrow(c)\n\tdq, source", to: "dq, source", test: "TestGradientsEqualFiniteDifferences|TestChunkSizes"},
		{from: "b.rstdKVA.of(c), model.RoleKVANorm", to: "b.rstdQA.of(c), model.RoleKVANorm", test: "TestGradientsEqualFiniteDifferences"},
	}},
	{"layers/attention_backward.go", []way{
		{from: "l.projectLatentBackward(dqkv, c)\n\t\t}\n\t\tl.normBackward(model.RoleAttnNorm, l.x.of(c), c)\n", to: "l.projectLatentBackward(dqkv, c)\n\t\t}\n", test: "TestGradientsEqualFiniteDifferences"},
	}},
	{"layers/attention.go", []way{
		{from: "X: from(x, cfg.RopeAt())", to: "X: x", test: "TestGradientsEqualFiniteDifferences"},
	}},
	{"layers/flops.go", []way{
		{from: "l.QRank+l.KVRank+l.RopeDim)\n", to: "l.QRank+l.KVRank)\n", test: "TestRecomputedFLOPsOfLatentAttention"},
	}},
	{"layers/block_backward.go", []way{
		{from: "model.RoleQANorm, ", to: "", test: "TestGradientsEqualFiniteDifferences"},
		{from: "model.RoleKVANorm, ", to: "", test: "TestGradientsEqualFiniteDifferences"},
	}},
	{"device/op/heads.go", []way{
		{from: "a.Heads > 1 && a.DstHead < a.C+a.Zeros", to: "a.Heads > 1 && a.DstHead < a.C", test: "TestBad"},
		{from: "strided(a.Heads, a.DstHead, a.C+a.Zeros)", to: "strided(a.Heads, a.DstHead, a.C)", test: "TestEveryField"},
	}},
	{"device/cpu/heads.go", []way{
		{from: "clear(part(a.Dst, to+a.C, a.Zeros))\n", to: "", test: "TestOps/threads=2/CopyHeads"},
		{from: "a.Src, t*a.SrcStride+h*a.SrcHead, a.C))", to: "a.Src, t*a.SrcStride+h*a.DstHead, a.C))", test: "TestOps/threads=2/CopyHeads"},
		{from: "clear(sum)\n", to: "", test: "TestOps/threads=2/SumHeads"},
		{from: "in.load(sc, 1, t*a.SrcStride+h*a.SrcHead, a.C)", to: "in.load(sc, 1, t*a.SrcStride+0*h, a.C)", test: "TestOps/threads=2/SumHeads"},
	}},
	{"device/cuda/kernels/heads.go", []way{
		{from: "wideBy(a.Dst.DType, a.C, a.Zeros, ", to: "wideBy(a.Dst.DType, a.C+a.Zeros, ", test: "TestOp/CopyHeads"},
		{from: "wideBy(a.Dst.DType, a.C, a.Zeros, a.DstStride, a.DstHead, a.SrcStride, a.SrcHead)", to: "wideBy(a.Dst.DType, a.C, a.Zeros, a.DstStride, a.DstHead, a.SrcStride)", test: "TestOp/CopyHeads"},
		{from: "wideBy(dt, a.C, a.DstStride, a.SrcStride, a.SrcHead)", to: "wideBy(dt, a.C, a.SrcStride, a.SrcHead)", test: "TestOp/SumHeads"},
	}},
	{"model/init.go", []way{
		{from: "RoleQANorm, RoleKVANorm, ", to: "", test: "TestLatentNormsStartAtOne"},
	}},
}
