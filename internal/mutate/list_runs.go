package main

// ofRuns breaks what a user sees of a run: keys, rates, figures, model files for
// others, generation, measurements.
var ofRuns = []broken{
	{"internal/config/schedule.go", []way{
		{from: "s := step - 1 - c.Laid.Base", to: "s := step - c.Laid.Base", test: "TestScheduleEqualsTransformers"},
		{from: "if s < warm {", to: "if s <= warm {", test: "TestSchedule"},
		{from: "float64(c.length()-s)/steps", to: "float64(c.length()-s-1)/steps", test: "TestSchedule"},
		{from: "c.floor(0.5*(1+math.Cos(math.Pi*(float64(s-first)/steps))))", to: "c.floor(0.5*(1+math.Cos(math.Pi*(float64(s)/steps))))", test: "TestScheduleEqualsTransformers"},
		{from: "start := c.length() - n\n", to: "start := c.length() - n + 1\n", test: "TestSchedule"},
		{from: "x*(1-c.MinLRRatio) + c.MinLRRatio", to: "max(x, c.MinLRRatio)", test: "TestSchedule|TestScheduleEqualsTransformers"},
		{from: "int(math.Ceil(float64(c.length()) * c.WarmupRatio))", to: "int(float64(c.length()) * c.WarmupRatio)", test: "TestSchedule|TestScheduleEqualsTransformers"},
	}},
	{"internal/config/check.go", []way{
		{from: "n == 0 || n >= layers ||", to: "n == 0 || n > layers ||", test: "TestCheckGradSlabs"},
		{from: "if !held {", to: "if held {", test: "TestWarnings|TestSavingWithoutEffect"},
		{from: "n > 0 && n != len(c.Dataset) {", to: "n > 0 && n < len(c.Dataset) {", test: "TestErrorsSayWhere|TestAllMistakesAtOnce"},
		{from: "c.NumDecaySteps > c.MaxSteps {", to: "c.NumDecaySteps < c.MaxSteps {", test: "TestSchedule"},
	}},
	{"internal/config/compat.go", []way{
		{from: "if a, b := saved.RowsPerStep(), c.RowsPerStep(); a != b {", to: "if a, b := saved.RowsPerStep(), c.RowsPerStep(); a > b {", test: "TestChanges"},
		{from: "d.Part != PartRows && d.Now != \"auto\"", to: "d.Part != PartRows", test: "TestChanges"},
		{from: "*p = *k.field(saved).(*Bytes)", to: "", test: "TestKeepResolved"},
		{from: " || k.isPipeline() && !pipeline {", to: " {", test: "TestKeepResolved"},
	}},
	{"internal/config/flags.go", []way{
		{from: "return isTruth || arg == \"auto\"", to: "return isTruth", test: "TestSwitches"},
		{from: "return f.NoOptDefVal == \"\"", to: "return f.NoOptDefVal == \"\" && !strings.HasPrefix(arg, \"--\")", test: "TestArgs|TestSwitches"},
		{from: "return !strings.HasPrefix(arg, \"--\")", to: "return arg != \"--\"", test: "TestFlags"},
		{from: "|| foreignSwitches[name] {", to: "{", test: "TestFlags|TestSwitches"},
		{from: "if seen[f] {", to: "if seen[f] && arg == typed {", test: "TestFlags|TestArgs"},
		{from: "k.typed = typed", to: "k.typed = flagName(typed)", test: "TestSwitches"},
	}},
	{"internal/config/hub.go", []way{
		{from: "case errors.Is(err, fs.ErrNotExist):", to: "case err != nil:", test: "TestHubThatCannotBeRead"},
		{from: "errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir()", to: "err != nil || !st.IsDir()", test: "TestHubThatCannotBeRead"},
	}},
	{"internal/config/lists.go", []way{
		{from: "r == ',' && depth <= 0:", to: "r == ',':", test: "TestFlags|TestAliasesAndSpellings|TestLoad"},
	}},
	{"internal/config/value.go", []way{
		{from: "if depth > maxDepth {", to: "if depth > maxDepth && false {", test: "TestErrorsSayWhere"},
	}},
	{"internal/generate/sample.go", []way{
		{from: "if kept += all[i].p; kept >= s.o.TopP*total {", to: "if kept += all[i].p; kept > s.o.TopP*total {", test: "TestTopPAtItsBorder"},
		{from: "all, total = all[:i+1], kept", to: "all = all[:i+1]", test: "TestDistribution"},
		{from: "math.Exp((all[i].p - best.p) / s.o.Temperature)", to: "math.Exp((all[i].p - best.p) * s.o.Temperature)", test: "TestDistribution"},
		{from: "all = all[:s.o.TopK]", to: "all = all[:s.o.TopK+1]", test: "TestDistribution"},
		{from: "l != l || l > math.MaxFloat32", to: "l > math.MaxFloat32", test: "TestLogitsThatAreNotFinite"},
		{from: "cmp.Compare(b.id, a.id)) })\n\tif", to: "cmp.Compare(a.id, b.id)) })\n\tif", test: "TestGreedySampling"},
	}},
	{"internal/generate/generate.go", []way{
		{from: "if limit > 0 {", to: "if limit > 1 {", test: "TestLogits"},
		{from: "math.Tanh(float64(out[i])/limit)", to: "math.Tanh(float64(out[i]))", test: "TestLogits"},
		{from: "d.start += n\n", to: "d.start += chunk\n", test: "TestLogits|TestGreedy"},
		{from: "int32(d.shift+d.start+i)", to: "int32(d.shift+i)", test: "TestLogits"},
		{from: "if slices.Contains(o.Stop, id) {", to: "if !slices.Contains(o.Stop, id) && len(o.Stop) > 0 {", test: "TestStops"},
		{from: "n < o.MaxNewTokens; n++", to: "n <= o.MaxNewTokens; n++", test: "TestGreedy|TestStops"},
		{from: "id < 0 || int(id) >= o.Config.VocabSize", to: "id < 0 || int(id) > o.Config.VocabSize", test: "TestErrors"},
	}},
	{"internal/generate/stages.go", []way{
		{from: "p.x.Slice(p.x.Len-h, h)", to: "p.x.Slice(0, h)", test: "TestLogits"},
		{from: "p.pairs(v.Part - 1)", to: "p.pairs(0)", test: "TestLogits"},
	}},
	{"internal/export/rope.go", []way{
		{from: "float32(own/scale(1))", to: "float32(own)", test: "TestRope"},
		{from: "case wavelen < old/high:", to: "case wavelen < old/low:", test: "TestRope"},
		{from: "1 / ((1-smooth)/factor + smooth)", to: "(1-smooth)*factor + smooth", test: "TestRope"},
		{from: "int(part * float64(p.headDim))", to: "int(part) * p.headDim", test: "TestPhiName|TestLongRope|TestRope"},
		{from: "math.Log(factor)/math.Log(original)", to: "math.Log(factor)/original", test: "TestLongRope"},
	}},
	{"internal/export/tensors.go", []way{
		{from: "it.heads = p.kvHeads", to: "it.heads = p.heads", test: "TestLlama"},
		{from: "it.shift = p.family.shift", to: "it.shift = 0", test: "TestGemma"},
		{from: "len(it.Shape) < 2 || h == norm || h == router:", to: "len(it.Shape) < 2 || h == norm:", test: "TestExperts"},
	}},
	{"checkpoint/gguf/elements.go", []way{
		{from: "scale := most / 127", to: "scale := most / 128", test: "TestQ8"},
		{from: "most = max(most, float32(math.Abs(float64(v))))", to: "most = max(most, v)", test: "TestQ8"},
		{from: "bits+0xfff+bits>>13&1", to: "bits+0x1000", test: "TestHalves"},
		{from: "bfloat.Round(v)", to: "uint16(math.Float32bits(v) >> 16)", test: "TestBrain"},
		{from: "bits >= 0x47800000: // 65536", to: "bits > 0x47800000:", same: "65536 rounds to the infinity either way"},
	}},
	{"internal/lint/unused.go", []way{
		{from: "u.tested[tested] || !r.reaches(name, target, map[string]bool{})", to: "true", test: "TestUnusedByTests"},
		{from: "if name == target {", to: "if false {", same: "an arrow to itself is no entry"},
		{from: "; test && tested != \"\" {", to: "; tested != \"\" {", test: "TestUnusedByTests"},
		{from: "n != \"\" && within(to, start)", to: "n != \"\"", test: "TestUnused"},
	}},
	{"checkpoint/gguf/types.go", []way{
		{from: "typeUint64  = 10", to: "typeUint64  = 11", test: "TestRoundTrip"},
		{from: "version = 3", to: "version = 2", test: "TestRoundTrip"},
	}},
	{"checkpoint/gguf/write.go", []way{
		{from: "off += padded(t.Bytes())", to: "off += t.Bytes()", test: "TestRoundTrip"},
		{from: "for i := len(t.Shape) - 1; i >= 0; i-- {", to: "for i := range t.Shape {", test: "TestRoundTrip"},
	}},
	{"bench/stats.go", []way{
		{from: "return (sorted[half-1] + sorted[half]) / 2", to: "return sorted[half]", test: "TestMedian"},
		{from: "n := (i + round + 1) % len(contestants)", to: "n := i", test: "TestAlternateTakesTurns"},
		{from: "round >= 0 {", to: "round >= -1 {", test: "TestAlternateTakesTurns"},
		{from: "out[i] = over[i] / under[i]", to: "out[i] = under[i] / over[i]", test: "TestRatios"},
	}},
	{"bench/report.go", []way{
		{from: "sum / float64(max(len(x), 1))", to: "sum", test: "TestGeomean"},
	}},
	{"bench/tail.go", []way{
		{from: "max(0, len(t.kept)-tailBytes)", to: "max(0, len(p)-tailBytes)", test: "TestTail"},
	}},
	{"internal/train/job.go", []way{
		{from: "model.InitRow(c, tl.Param, r, seed, row)", to: "model.InitRow(c, tl.Param, i*rowsAt, seed, row)", test: "TestInitialise"},
		{from: "model.InitRow(c, tl.Param, r, seed, row)", to: "model.InitRow(c, tl.Param, r, 0, row)", test: "TestInitialise"},
		{from: "for r := i * rowsAt; r < min(tl.Rows, (i+1)*rowsAt); r++ {", to: "for r := i * rowsAt; r < min(tl.Rows, (i+1)*rowsAt)-1; r++ {", test: "TestInitialise"},
		{from: "Clip: c.MaxGradNorm > 0,", to: "Clip: c.MaxGradNorm > 1,", test: "TestRecordings"},
		{from: "c.NumTrainEpochs * float64(j.train.StepsPerEpoch())", to: "c.NumTrainEpochs * float64(j.set.Train().Rows())", test: "TestEndedEpochsAreDone"},
		{from: "Beta1: c.AdamBeta1, Beta2: c.AdamBeta2", to: "Beta1: c.AdamBeta1, Beta2: c.AdamBeta1", test: "TestRecordings"},
		{from: "Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay", to: "Eps: 1e-8, WeightDecay: c.WeightDecay", test: "TestRecordings"},
		{from: "WeightDecay: c.WeightDecay}", to: "}", test: "TestRecordings"},
	}},
	{"internal/train/train.go", []way{
		{from: "clear(p.Data)", to: "_ = p", test: "TestOtherDataAndMoments"},
		{from: "FirstStep: from.state.Step + 1", to: "FirstStep: from.state.Step", test: "TestResumeAfterInterrupts"},
	}},
	{"internal/train/ended.go", []way{
		{from: "AdamStep: r.state.AdamStep,", to: "AdamStep: int64(r.state.Step),", test: "TestCheckpointsKeepTheCountOfSkippedSteps"},
		{from: "if checkpoint.IsDiskError(err) {", to: "if false {", test: "TestFinishedRunThatCannotBeRead"},
		{from: "r.dir == \"\" && damage != nil", to: "false", test: "TestDamagedEnd"},
		{from: "c.OverwriteOutputDir || !holdsWeights(c.OutputDir)", to: "!holdsWeights(c.OutputDir)", test: "TestDamagedEnd"},
		{from: "c.OverwriteOutputDir || !holdsWeights(c.OutputDir)", to: "c.OverwriteOutputDir", test: "TestDamagedEnd"},
		{from: "ok = errors.Is(err, os.ErrNotExist)", to: "ok = errors.Is(err, os.ErrExist)", test: "TestWhatIsSaved|TestEndedRunIsNotLengthened"},
	}},
	{"internal/train/disk.go", []way{
		{from: "w.Kept = kept\n", to: "_ = kept\n", test: "TestDiskOfAResumedRun"},
		{from: "return max(n, 1)", to: "return n", test: "TestDiskIsLookedAt"},
	}},
	{"internal/train/resume.go", []way{
		{from: "case good != \"\" && modelOnly(good):", to: "case false:", test: "TestModelsAreNoWayBack"},
	}},
	{"internal/train/log.go", []way{
		{from: "|| at.Step > step {", to: "|| at.Step >= step {", test: "TestResumeAfterInterrupts"},
		{from: "l.failed = fmt.Errorf", to: "_ = fmt.Errorf", test: "TestMetricsCannotBeWritten"},
		{from: "return l.note(\"sync\", l.f.Sync())", to: "return nil", same: "only a machine that loses power shows it"},
	}},
	{"internal/train/state.go", []way{
		{from: "\tif err := s.log.sync(); err != nil {\n\t\treturn err // a checkpoint must not be ahead of the metrics\n\t}\n", to: "", test: "TestNoCheckpointWithoutItsMetrics"},
		{from: "NonFinite: st.NonFinite, Tokens: st.Tokens,", to: "Tokens: st.Tokens,", test: "TestCheckpointsKeepTheCountOfSkippedSteps"},
	}},
	{"internal/train/output.go", []way{
		{from: "reflect.DeepEqual(end, from.state) &&", to: "reflect.DeepEqual(end, from.state) ||", test: "TestFinished"},
	}},
	{"internal/train/progress.go", []way{
		{from: "max(0, l.drawn-width)", to: "max(0, width-l.drawn)", test: "TestProgressOfReading"},
		{from: "if tenth == shown && (!o.Interactive || done >= total) {", to: "if tenth == shown && !o.Interactive {", test: "TestProgressOfReading"},
	}},
	{"internal/train/metrics.go", []way{
		{from: "float64(m.maxSteps-step)", to: "float64(m.maxSteps-step+1)", test: "TestMetricsOfMadeUpTimes"},
		{from: "TFLOPSExec: executed / sec / 1e12", to: "TFLOPSExec: executed / sec / 1e9", test: "TestMetricsOfMadeUpTimes"},
		{from: "len(m.recent) > etaSteps {", to: "len(m.recent) > etaSteps+1 {", test: "TestETALooksAtTheLastSteps"},
		{from: "out.MFU = flops / sec / m.peakFLOPS", to: "out.MFU = executed / sec / m.peakFLOPS", test: "TestMetricsOfMadeUpTimes"},
	}},
	{"internal/parallel/pool.go", []way{
		{from: "if failed {\n\t\tpanic(cause)", to: "if !failed && cause != nil {\n\t\tpanic(cause)", test: "TestPanicReachesTheCaller"},
	}},
	{"internal/queue/queue.go", []way{
		{from: "q.reading = len(batch) > 0", to: "q.reading = false", test: "TestEmptyAndWait"},
	}},
	{"internal/histogram/svg.go", []way{
		{from: "most/(n*ten) <= maxTicks", to: "most/(n*ten) < maxTicks", test: "TestTickStep"},
		{from: "p.bottom-height, 0.8*p.slot, height", to: "p.top, 0.8*p.slot, height", test: "TestSVG"},
		{from: "float64(i*step)*p.perCount", to: "float64(i*step)*p.perCount*headroom", test: "TestSVG"},
		{from: "args[i] = text.String()", to: "args[i] = a", test: "TestSVG"},
	}},
	{"internal/histogram/histogram.go", []way{
		{from: "max(1, int(float64(n)", to: "max(0, int(float64(n)", test: "TestText"},
	}},
	{"internal/tensorboard/writer.go", []way{
		{from: "+ 0xa282ead8", to: "", test: "TestFileIsAsTensorBoardReadsIt"},
		{from: "one = append(one, 2<<3|5)", to: "one = append(one, 2<<3|1)", test: "TestFileIsAsTensorBoardReadsIt"},
	}},
	{"device/op/rmsnorm.go", []way{
		{from: "c.tensor(\"RStd\", a.RStd, a.Rows*a.Groups, device.F32)\n", to: "", test: "TestEveryField"},
		{from: "!a.Residual.None() && a.Residual.Addr == a.X.Addr &&", to: "", test: "TestGood|TestBad"},
	}},
	{"device/op/rope.go", []way{
		{from: "a.Rotary%2 != 0 || ", to: "", test: "TestBad"},
	}},
	{"device/op/table.go", []way{
		{from: "\t*c = *o.(P)\n", to: "", test: "TestCallsAreCopies"},
		{from: "defer k.pool.Put(c)", to: "k.pool.Put(c)", test: "TestArgumentsAreHeld"},
		{from: "c = k.pool.Get().(*O)", to: "c = new(O)", test: "TestNothingIsAllocated"},
	}},
	{"device/op/do.go", []way{
		{from: "\t*p = o\n\td.Do(s, P(p))\n\tpool", to: "\td.Do(s, P(p))\n\tpool", test: "TestCallsAreCopies"},
		{from: "\td.Do(s, P(p))\n\tpool.(*sync.Pool).Put(p)\n", to: "\tpool.(*sync.Pool).Put(p)\n\td.Do(s, P(p))\n", test: "TestArgumentsAreHeld"},
	}},
	{"device/cpu/gemm/plan.go", []way{
		{from: "return from, min(p.kc, k-from)", to: "return from, p.kc", test: "TestExactProducts"},
		{from: "ceil(n, maxTileN)", to: "n / maxTileN", test: "TestExactProducts|TestNoGarbage"},
	}},
	{"device/cuda/memory.go", []way{
		{from: "!errors.As(err, &e) || e.Library != cudart.Runtime {", to: "!errors.As(err, &e) {", test: "TestEveryCallFailsOnce"},
		{from: "rounded > u.Limit-u.Total {", to: "rounded > u.Limit {", test: "TestBudgetIsForAll"},
	}},
	{"internal/accounts/accounts.go", []way{
		{from: "if p != HostStaging {\n", to: "{\n", test: "TestCount"},
		{from: "u.Peak[p] = max(u.Peak[p], u.Now[p])", to: "u.Peak[p] = u.Now[p]", test: "TestCount"},
		{from: "u.PeakTotal = max(u.PeakTotal, u.Total)", to: "u.PeakTotal = u.Total", test: "TestCount"},
	}},
	{"device/cpu/scalerows.go", []way{
		{from: "vec.Scale(grad, grad, w[p])\n", to: "", test: "TestOps/threads=2/ScaleRowsBackward"},
	}},
	{"device/cpu/addrows.go", []way{
		{from: "vec.Add(out[u*a.C:(u+1)*a.C], in.load(sc, 0, t*a.C, a.C))", to: "vec.Scale(out[u*a.C:(u+1)*a.C], in.load(sc, 0, t*a.C, a.C), 1)", test: "TestOps/threads=2/AddRows"},
	}},
}
