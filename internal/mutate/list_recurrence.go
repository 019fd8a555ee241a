package main

// ofRecurrence breaks recurrences, output gates, and the operations that they are made of.
var ofRecurrence = []broken{
	{"model/recurrence.go", []way{
		{from: "First: d, Run: d, Step: 2 * d", to: "First: 0, Run: d, Step: 2 * d", test: "TestRecurrentPlaces"},
		{from: "c.Recurrent[b] = (b+1)%every != 0", to: "c.Recurrent[b] = b%every != 0", test: "TestRecurrentBlocks"},
		{from: "taps.Dims, taps.F32 = 3, true", to: "taps.Dims, taps.F32 = 2, true", test: "TestRecurrentPlaces"},
		{from: "return r.ConvFLOPs() + r.StateFLOPs()", to: "return r.StateFLOPs()", test: "TestRecurrentBlocks"},
	}},
	{"model/place.go", []way{
		{from: "return rows / c.Recurrence.KeyHeads", to: "return rows", test: "TestRecurrentPlaces"},
	}},
	{"model/freeze.go", []way{
		{from: "recurrences += float64(2 * c.Recurrence.FLOPs())", to: "recurrences += 0", test: "TestRecurrentBackwardFLOPs"},
		{from: "max(1, c.NumLayers-c.RecurrentBlocks())", to: "max(1, c.NumLayers)", test: "TestRecurrentBackwardFLOPs"},
	}},
	{"layers/recurrence.go", []way{
		{from: "A: dgates, B: l.w[model.RoleRecurGates], C: n, D: n}", to: "A: dgates, B: l.w[model.RoleRecurGates], D: n}", test: "TestGradientsEqualFiniteDifferences"},
		{from: "return op.SigmoidGate", to: "return op.SiLU", test: "TestGradientsEqualFiniteDifferences"},
		{from: "Dst: from(l.dqkv.of(c), d.gateAt())", to: "Dst: l.dqkv.of(c)", test: "TestGradientsEqualFiniteDifferences"},
		{from: "if step.Start == 0 {", to: "if step.Start != 0 {", test: "TestCachedEqualsWhole"},
		{from: "l.convolve(tail)", to: "_ = tail\n\tl.convolve(device.Tensor{})", test: "TestCachedEqualsWhole"},
		{from: "l.recurrence(last)", to: "_ = last\n\tl.recurrence(device.Tensor{})", test: "TestCachedEqualsWhole"},
	}},
	{"layers/attention_backward.go", []way{
		{from: "case l.dims.recurs: // what", to: "case false: // what", test: "TestKeepChangesNothing"},
	}},
	{"layers/block_backward.go", []way{
		{from: "model.RoleRecurTaps, ", to: "", test: "TestGradientsEqualFiniteDifferences"},
		{from: "model.RoleRecurNorm,", to: "", test: "TestGradientsEqualFiniteDifferences"},
	}},
	{"layers/flops.go", []way{
		{from: "n += d.recurrence.ConvFLOPs()", to: "n += 0", test: "TestRecomputedFLOPsOfRecurrences"},
		{from: "n += d.recurrence.StateFLOPs()", to: "n += 0", test: "TestRecomputedFLOPsOfRecurrences"},
	}},
	{"device/op/gateddelta.go", []way{
		{from: "(a.T + DeltaChunk - 1) / DeltaChunk * a.Heads", to: "a.T / DeltaChunk * a.Heads", test: "TestEveryField"},
	}},
	{"device/cpu/shortconv.go", []way{
		{from: "case from >= first:", to: "case from >= 0:", test: "TestOps/threads=2/ShortConv"},
		{from: "t := u + a.Taps - 1 - j; t < end {", to: "t := u + a.Taps - 1 - j; t < max(end, a.T) {", test: "TestOps/threads=2/ShortConvBackward"},
		{from: "c.slope(sc, a, t, dw, t < to)", to: "c.slope(sc, a, t, dw, true)", test: "TestOps/threads=2/ShortConvBackward"},
		{from: "row = tail.load(sc, convRow, (t+a.Taps-1)*a.C, a.C)", to: "row = tail.load(sc, convRow, 0, a.C)", test: "TestOps/threads=2/ShortConv"},
	}},
	{"device/cpu/gateddelta.go", []way{
		{from: "for e := range i + 1 {\n\t\t\trow[e]", to: "for e := range i {\n\t\t\trow[e]", test: "TestOps/threads=2/GatedDelta"},
		{from: "math.Exp(sum - sums[e])", to: "math.Exp(sum)", test: "TestOps/threads=2/GatedDelta"},
		{from: "clear(row)\n", to: "", test: "TestOpsWithPoisonedBuffers"},
		{from: "vec.Scale(s, s, h.from[j.n-1])", to: "vec.Scale(s, s, h.from[0])", test: "TestOps/threads=2/GatedDelta"},
		{from: "for i := 1; i < j.n; i++ {", to: "for i := 2; i < j.n; i++ {", test: "TestOps/threads=2/GatedDelta"},
		{from: "if states != nil && j.at > j.first {", to: "if states != nil {", test: "TestOps/threads=2/GatedDelta"},
	}},
	{"device/cpu/gateddelta_backward.go", []way{
		{from: "b.dof[b.n-1] += left", to: "", test: "TestOps/threads=2/GatedDeltaBackward"},
		{from: "if clear(b.state(dStates, g)); b.at > b.first {", to: "if clear(b.state(dStates, g)); false {", test: "TestOps/threads=2/GatedDeltaBackward"},
		{from: "b.dof[b.n-1] += h.from[b.n-1] * vec.Dot", to: "b.dof[b.n-1] += 0 * vec.Dot", test: "TestOps/threads=2/GatedDeltaBackward"},
		{from: "b.addRows(b.dk, term, b.k, h.from, -1)", to: "b.addRows(b.dk, term, b.k, h.from, 1)", test: "TestOps/threads=2/GatedDeltaBackward"},
		{from: "if e < i {", to: "if e <= i {", test: "TestOps/threads=2/GatedDeltaBackward"},
		{from: "by := -dl[at] * h.decay[at]", to: "by := dl[at] * h.decay[at]", test: "TestOps/threads=2/GatedDeltaBackward"},
	}},
	{"device/conformance/oracle/delta.go", []way{
		{from: "dg += ds[n] * st.mid[n]", to: "dg += ds[n] * st.before[n]", test: "TestGatedDeltaBackward"},
		{from: "dkn[i] -= st.mid[n] * st.beta * dd[j]", to: "", test: "TestGatedDeltaBackward"},
	}},
	{"internal/export/recurrence.go", []way{
		{from: "if value != key {", to: "if value > key {", test: "TestRecurrenceRefused"},
		{from: "attends = p.period(types)", to: "p.period(types)", test: "TestRecurrence"},
		{from: "uint32(heads*value)", to: "uint32(keys*value)", test: "TestRecurrence"},
	}},
	{"internal/export/tensors.go", []way{
		{from: "p.model.IsRecurrent(b)", to: "false", test: "TestRecurrence"},
		{from: "!p.model.HasExperts(b)", to: "b == 0", test: "TestExpertsInterleaved"},
		{from: "range p.model.NumExperts", to: "range p.model.NumExpertsPerTok", test: "TestExperts"},
	}},
	{"internal/export/gguf.go", []way{
		{from: "-math.Exp(float64(v))", to: "math.Exp(float64(v))", test: "TestRecurrence"},
	}},
	{"internal/export/families.go", []way{
		{from: `{"linear_attn.norm", "ssm_norm", copied}`, to: `{"linear_attn.norm", "ssm_norm", norm}`, test: "TestRecurrence"},
	}},
	{"plan/onhost.go", []way{
		{from: "case q.Config.Recurrence != nil:", to: "case false:", test: "TestRecurrencesKeepHiddenStates"},
	}},
}
