package main

// ofRuns breaks what a user sees of a run: keys, rates, figures, model files for
// others, generation, measurements.
var ofRuns = []broken{
	{"internal/checkup/gpu.go", []way{
		{from: "now.lanes < min(card.lanes, slot.lanes)", to: "now.lanes < slot.lanes", test: "TestParts"},
		{from: "path.Dir(path.Join(pciDevices, target))", to: "path.Join(pciDevices, target)", test: "TestParts"},
		{from: "!s.exists(\"dev/nvidiactl\") && s.inContainer()", to: "s.inContainer() && false", test: "TestParts"},
	}},
	{"internal/checkup/processor.go", []way{
		{from: "case s.Arch == \"arm64\":", to: "case s.Arch == \"riscv64\":", test: "TestParts"},
		{from: "got < float64(s.CPUs)", to: "got <= float64(s.CPUs) / 2", test: "TestParts"},
		{from: "driver != \"intel_pstate\" && ", to: "", test: "TestParts"},
		{from: "if dir == \"/\" {", to: "if dir != \"\" {", test: "TestParts"},
	}},
	{"internal/checkup/memory.go", []way{
		{from: "s.text(\"proc/sys/kernel/numa_balancing\") == \"1\"", to: "s.text(\"proc/sys/kernel/numa_balancing\") == \"0\"", test: "TestParts"},
		{from: "used := all - s.kib(", to: "used := s.kib(", test: "TestParts"},
		{from: "s.Room.Bytes < leastMemory", to: "s.Room.Bytes < 0", test: "TestParts"},
	}},
	{"internal/calibrate/host.go", []way{
		{from: "rate > 0 && rate <= 2*alone", to: "rate > 0", test: "TestLine"},
		{from: "max(0, seconds[0]-bytes[0]/rate)", to: "seconds[0]", test: "TestLine"},
	}},
	{"internal/calibrate/calibrate.go", []way{
		{from: "{{false, true}, {false, false}, {true, false}}", to: "{{false, true}, {true, false}}", test: "TestMeasure"},
		{from: "return false, context.Cause(ctx)", to: "return false, nil", test: "TestMeasureEnds"},
	}},
	{"plan/lanes.go", []way{
		{from: "with := load[lane] + times[lane][l]", to: "with := load[lane] + times[0][l]", test: "TestDevicesThatDiffer"},
		{from: " && 1+slices.Max(q.Lane) == q.Devices {", to: " {", test: "TestDevicesThatDiffer"},
		{from: "if !slices.Contains(r.Lane, lane) {", to: "if false {", test: "TestDevicesThatDiffer"},
	}},
	{"plan/rates/machine.go", []way{
		{from: "if o, ok := h.Updates[optimizer]; ok {", to: "if o, ok := h.Updates[optimizer]; ok && false {", test: "TestUpdates"},
		{from: "if i > 0 && len(m.More) > 0 {", to: "if false {", test: "TestPlanPredicts", in: "cmd/mt"},
		{from: "out.More = slices.Clone(out.More)", to: "_ = slices.Clone(out.More)", test: "TestDevicesThatDiffer"},
		{from: "\t\tout.Link.PerSwitch = m.Link.PerSwitch ", to: "\t\t", test: "TestDevicesThatDiffer"},
		{from: "change(&out.More[i].Device, &out.More[i].Link)", to: "_ = i", test: "TestDevicesThatDiffer"},
	}},
	{"plan/rates/find.go", []way{
		{from: "if len(next.More) > 0 {", to: "if false {", test: "TestSeveralNames"},
		{from: "with && !isFile(strings.TrimSpace(first))", to: "with && false", test: "TestSeveralNames"},
	}},
	{"plan/rates/check.go", []way{
		{from: "h.Updates[name].check(c, \"host.updates.\"+name)", to: "_ = name", test: "TestLoadRefuses"},
		{from: "if !more.Device.Unified {", to: "if true {", test: "TestSeveralNames"},
	}},
	{"internal/train/state.go", []way{
		{from: "Lanes: j.table(), ", to: "", test: "TestDevicesThatDiffer"},
	}},
	{"internal/train/devices.go", []way{
		{from: "if j.differ || slices.Equal(j.plan.Lane, j.began) {", to: "if true {", test: "TestDevicesGiveTheSameBits"},
		{from: "said = \"--gpu\"", to: "said = \"device_rates\"", test: "TestRatesOfGivenCards"},
		{from: "case m != nil && j.c.DeviceRates != \"auto\":", to: "case false:", test: "TestRatesOfGivenCards"},
		{from: "case distinct > 1:", to: "case false:", test: "TestRatesByName"},
		{from: "Link.Peer > 0 && j.profile", to: "Link.Peer > 0 || j.profile", test: "TestPassingBetweenDevicesThatDiffer"},
		{from: "n > 1 && n != j.lanes {", to: "n > 9 {", test: "TestDevicesThatCannotBe"},
	}},
	{"internal/train/scaling.go", []way{
		{from: "if c.Speedup > 0 {", to: "if true {", test: "TestScalingInWords"},
		{from: "if !l.Wires {", to: "if false {", test: "TestFasterLinks"},
		{from: "\t\to.Rate *= 2\n\t}\n\tf.Host.Updates", to: "\t\to.Rate *= 1\n\t}\n\tf.Host.Updates", test: "TestScaling"},
		{from: "2*l.Up, 2*l.Down, 2*l.Both", to: "l.Up, l.Down, l.Both", test: "TestScaling"},
		{from: "s.Links >= limiting", to: "s.Links >= 10*limiting", test: "TestScaling"},
		{from: "s.Turns >= idleEnough", to: "s.Turns >= 1", test: "TestScaling"},
		{from: " && busy[virtual.Cores.String()] > busy[virtual.HostMemory.String()]:", to: ":", test: "TestScaling"},
		{from: "cmp.Or(out.HostFrom, line.Devices)", to: "line.Devices", test: "TestScaling"},
		{from: "\trows.Rows *= 2\n", to: "", test: "TestScaling"},
	}},
	{"internal/config/schedule.go", []way{
		{from: "s := step - 1 - c.Laid.Base", to: "s := step - c.Laid.Base", test: "TestScheduleEqualsTransformers"},
		{from: "if s < warm {", to: "if s <= warm {", test: "TestSchedule"},
		{from: "float64(c.length()-s)/steps", to: "float64(c.length()-s-1)/steps", test: "TestSchedule"},
		{from: "c.floor(0.5*(1+math.Cos(math.Pi*waves*(float64(s-first)/steps))))", to: "c.floor(0.5*(1+math.Cos(math.Pi*waves*(float64(s)/steps))))", test: "TestScheduleEqualsTransformers"},
		{from: "start := c.length() - n\n", to: "start := c.length() - n + 1\n", test: "TestSchedule"},
		{from: "x*(1-c.lowest()) + c.lowest()", to: "max(x, c.lowest())", test: "TestSchedule|TestScheduleEqualsTransformers"},
		{from: "int(math.Ceil(float64(c.length()) * c.WarmupRatio))", to: "int(float64(c.length()) * c.WarmupRatio)", test: "TestSchedule|TestScheduleEqualsTransformers"},
	}},
	{"internal/config/check.go", []way{
		{from: "n == 0 || n >= layers ||", to: "n == 0 || n > layers ||", test: "TestCheckGradSlabs"},
		{from: "if !held {", to: "if held {", test: "TestWarnings|TestSavingWithoutEffect"},
		{from: "n > 0 && n != len(c.Dataset)+len(c.Datasets) {", to: "n > 0 && n < len(c.Dataset) {", test: "TestErrorsSayWhere|TestAllMistakesAtOnce"},
		{from: "c.NumDecaySteps > c.MaxSteps {", to: "c.NumDecaySteps < c.MaxSteps {", test: "TestSchedule"},
		{from: "c.EMAAfter+1 < c.MaxSteps", to: "c.EMAAfter < c.MaxSteps", test: "TestAverageBeginsBeforeTheEnd"},
	}},
	{"internal/config/compat.go", []way{
		{from: "if a, b := saved.RowsPerStep(), c.RowsPerStep(); a != b {", to: "if a, b := saved.RowsPerStep(), c.RowsPerStep(); a > b {", test: "TestChanges"},
		{from: "d.Part != PartRows && d.Now != \"auto\"", to: "d.Part != PartRows", test: "TestChanges"},
		{from: "*p = *k.field(saved).(*Bytes)", to: "", test: "TestKeepResolved"},
		{from: " || k.isPipeline() && !pipeline {", to: " {", test: "TestKeepResolved"},
		{from: " || k.anew", to: "", test: "TestKeepResolved"},
	}},
	{"internal/config/flags.go", []way{
		{from: "return isTruth || arg == \"auto\"", to: "return isTruth", test: "TestSwitches"},
		{from: "|| k.name == dashboardKey && address.MatchString(arg)", to: "", test: "TestFlags"},
		{from: "return f.NoOptDefVal == \"\"", to: "return f.NoOptDefVal == \"\" && !strings.HasPrefix(arg, \"--\")", test: "TestArgs|TestSwitches"},
		{from: "return !strings.HasPrefix(arg, \"--\")", to: "return arg != \"--\"", test: "TestFlags"},
		{from: "|| foreignSwitches[name] {", to: "{", test: "TestFlags|TestSwitches"},
		{from: "if seen[f] {", to: "if seen[f] && arg == typed {", test: "TestFlags|TestArgs"},
		{from: "k.typed = typed", to: "k.typed = flagName(typed)", test: "TestSwitches"},
	}},
	{"internal/timeline/file.go", []way{
		{from: "\t\tf.lost++\n", to: "", test: "TestSlowDisk"},
		{from: "if err != nil && !f.failed {", to: "if err != nil {", test: "TestFullDisk"},
		{from: "\tif f.failed {\n\t\treturn\n\t}\n\tb := ", to: "\tb := ", same: "a bufio.Writer that has failed writes nothing more"},
		{from: "'0'+byte(r/10%10)", to: "'0'+byte(r/10)", test: "TestFile"},
	}},
	{"internal/timeline/recorder.go", []way{
		{from: "\t\tr.o.File.rouse()\n", to: "", test: "TestAStepIsWritten"},
		{from: "s.Start < end && s.End > begin", to: "s.Start >= begin && s.End <= end", test: "TestSteps"},
		{from: "if i == 0 && s.End > end {", to: "if i == 0 {", test: "TestSteps"},
		{from: "r.recent = append(r.recent[:0], r.recent[maxRecent/2:]...)", to: "r.recent = append(r.recent[:0:0], r.recent...)", test: "TestSteps"},
	}},
	{"internal/train/trials.go", []way{
		{from: "n > 1 && n < t.job.lanes {", to: "n < t.job.lanes {", test: "TestTrialsNameEachDevice"},
		{from: "machine.CloseAll(devs)) }()\n\t}\n", to: "machine.CloseAll(devs)) }()\n\t}\n\tdevs = devs[:1]\n", test: "TestTrialsOnDevices"},
	}},
	{"internal/train/trace.go", []way{
		{from: "if !timeline.IsTrace(f) {", to: "if false {", test: "TestTraceThatCannotBe"},
		{from: "errors.Join(made.Close(), os.Remove(path))", to: "made.Close()", test: "TestTraceThatCannotBe"},
		{from: "if !s.o.Timeline || time.Since", to: "if time.Since", test: "TestTimelineFile|TestTraceFile"},
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
		{from: "it.Shape = t.shape[1:]", to: "", test: "TestSharedGate"},
		{from: "it.shift = p.family.shift", to: "it.shift = 0", test: "TestGemma"},
		{from: "len(it.Shape) < 2 || h == norm || h == normIfAny || h == router || h == taps:", to: "len(it.Shape) < 2 || h == norm || h == normIfAny || h == taps:", test: "TestExperts"},
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
	{"bench/agree.go", []way{
		{from: "if !(d <= v.bound) {", to: "if d > v.bound {", test: "TestCompare"},
		{from: "if len(a) != len(b) {", to: "if len(a) > len(b) && len(b) == 0 {", test: "TestCompare"},
	}},
	{"bench/train.go", []way{
		{from: "steps[1 : len(steps)-1]", to: "steps[2:]", test: "TestPeerProtocol"},
		{from: "} else if round%2 == 1 && len(done) == 2 {", to: "} else if len(done) == 2 {", test: "TestTrainWantsTheSameTraining"},
	}},
	{"bench/handover.go", []way{
		{from: "uint64(r-t.Row)*uint64(p.Cols)", to: "uint64(r)*uint64(p.Cols)", test: "TestHandedOverWeights"},
		{from: "(step-1)%len(h.batches)", to: "step%len(h.batches)", test: "TestHandedOverBatches"},
	}},
	{"bench/published.go", []way{
		{from: "flops := c.FLOPs(1, 0)", to: "flops := six", test: "TestPublished"},
	}},
	{"internal/selftest/selftest.go", []way{
		{from: "c.errorf(\"%s\", s)", to: "_ = s", test: "TestProductsThatFellBack"},
	}},
	{"bench/report.go", []way{
		{from: "sum / float64(max(len(x), 1))", to: "sum", test: "TestGeomean"},
	}},
	{"bench/tail.go", []way{
		{from: "max(0, len(t.kept)-tailBytes)", to: "max(0, len(p)-tailBytes)", test: "TestTail"},
	}},
	{"internal/tune/halving.go", []way{
		{from: "keep := (len(alive) + 1) / 2", to: "keep := len(alive) / 2", test: "TestHalve"},
		{from: "alive[(i+turn)%len(alive)]", to: "alive[(i+0*turn)%len(alive)]", test: "TestHalve"},
	}},
	{"internal/tune/pairs.go", []way{
		{from: "return f.Least > 1 ", to: "return f.Ratio > 1 ", test: "TestNeverSlower"},
		{from: "looks, chance = 3, 0.05 / looks", to: "looks, chance = 3, 0.15", test: "TestNeverSlower"},
		{from: "len(ratios)%2 == 1", to: "false", test: "TestPairs"},
	}},
	{"internal/tune/search.go", []way{
		{from: "if better(q, next) {", to: "if false {", test: "TestDescend"},
		{from: "s.highest(k, up)...", to: "nil...", test: "TestDescend"},
	}},
	{"internal/tune/space.go", []way{
		{from: "case !newBits && !sameBits(r, start):", to: "case false:", test: "TestSameBits"},
	}},
	{"internal/config/edit.go", []way{
		{from: "Position.Column-1)+field", to: "Position.Column)+field", test: "TestEdit"},
	}},
	{"host/store.go", []way{
		{from: "l.pool = pool", to: "_ = l", test: "TestUse"},
	}},
	{"internal/train/job.go", []way{
		{from: "fill(tl.Param, r, row)", to: "fill(tl.Param, i*rowsAt, row)", test: "TestInitialise"},
		{from: "model.InitRow(c, p, r, seed, row)", to: "model.InitRow(c, p, r, 0, row)", test: "TestInitialise"},
		{from: "for r := i * rowsAt; r < min(tl.Rows, (i+1)*rowsAt); r++ {", to: "for r := i * rowsAt; r < min(tl.Rows, (i+1)*rowsAt)-1; r++ {", test: "TestInitialise"},
		{from: "MatrixBuffers: c.Pipeline.MatrixBuffers}", to: "}", test: "TestMatrixBuffers"},
		{from: "cmp.Or(d.MatrixBuffers, c.Pipeline.MatrixBuffers)", to: "c.Pipeline.MatrixBuffers + 1", test: "TestMatrixBuffers"},
		{from: "Clip: c.WaitsForNorm(),", to: "Clip: c.MaxGradNorm > 1,", test: "TestRecordings"},
		{from: "c.NumTrainEpochs * float64(j.train.StepsPerEpoch())", to: "c.NumTrainEpochs * float64(j.set.Train().Rows())", test: "TestEndedEpochsAreDone"},
	}},
	{"internal/train/average.go", []way{
		{from: "case s.reached.AdamStep == 0:", to: "case false:", test: "TestAverageOfNothing"},
		{from: "if err := s.writeModel(s.averageDir(), what, extra); err != nil {", to: "if err := s.writeModel(s.averageDir(), lowerHalves, extra); err != nil {", test: "TestRecordings"},
		{from: "return s.dropAverage()", to: "return nil", test: "TestAverageOfAnEarlierRun"},
		{from: " || !holdsWeights(dir) {", to: " {", test: "TestAverageOfAnEarlierRun"},
	}},
	{"internal/train/optimizer.go", []way{
		{from: "Beta1: c.AdamBeta1, Beta2: c.AdamBeta2", to: "Beta1: c.AdamBeta1, Beta2: c.AdamBeta1", test: "TestRecordings"},
		{from: "Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay", to: "Eps: 1e-8, WeightDecay: c.WeightDecay", test: "TestRecordings"},
		{from: "Eps: c.AdamEpsilon, WeightDecay: c.WeightDecay}", to: "Eps: c.AdamEpsilon}", test: "TestRecordings"},
		{from: "if j.c.MasterDType != \"bf16\" || ", to: "if j.c.MasterDType == \"bf16\" || ", test: "TestAnotherMaster"},
		{from: "return rate / c.LearningRate", to: "return rate", test: "TestMuonsRates"},
		{from: "Scale: g.LR / highest", to: "Scale: g.LR / j.c.LearningRate", test: "TestGroupsRates"},
		{from: "Scale: share(c.MuonLR)", to: "Scale: share(c.AdamLR)", test: "TestMuonsRates"},
	}},
	{"internal/train/train.go", []way{
		{from: "clear(p.Data)", to: "_ = p", test: "TestOtherDataAndMoments"},
		{from: "FirstStep: s.lastStep + 1", to: "FirstStep: s.lastStep", test: "TestResumeAfterInterrupts"},
		{from: "if s.samplesOwed() {", to: "if false {", test: "TestSamples"},
		{from: "if s.endsEarly() {\n\t\tlast = s.lastStep\n\t}\n", to: "", test: "TestEarlyStopping"},
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
		{from: "if saved.AttentionKernels == \"auto\" {", to: "if false {", test: "TestOlderRun"},
		{from: "case good != \"\" && modelOnly(good):", to: "case false:", test: "TestModelsAreNoWayBack"},
	}},
	{"internal/train/log.go", []way{
		{from: "|| at.Step > step {", to: "|| at.Step >= step {", test: "TestResumeAfterInterrupts"},
		{from: "l.failed = fmt.Errorf", to: "_ = fmt.Errorf", test: "TestMetricsCannotBeWritten"},
		{from: "return l.note(\"sync\", l.f.Sync())", to: "return nil", same: "only a machine that loses power shows it"},
	}},
	{"internal/train/state.go", []way{
		{from: "if err := s.log.sync(); err != nil {\n\t\t\treturn err", to: "if err := s.log.sync(); err != nil {\n\t\t\terr = nil", test: "TestNoCheckpointWithoutItsMetrics"},
		{from: "NonFinite: st.NonFinite, Tokens: st.Tokens,", to: "Tokens: st.Tokens,", test: "TestCheckpointsKeepTheCountOfSkippedSteps"},
	}},
	{"internal/train/output.go", []way{
		{from: "reflect.DeepEqual(end, from.state) &&", to: "reflect.DeepEqual(end, from.state) ||", test: "TestFinished"},
		{from: "(j.c.EMADecay == 0 || whole(j.averageDir()))", to: "true", test: "TestAverageIsWrittenAgain"},
		{from: "[]string{j.c.OutputDir, j.averageDir()} {", to: "[]string{j.c.OutputDir} {", test: "TestAverageIsAModel"},
		{from: "{\"dpo.reference_model\", reference}} {", to: "{\"dpo.reference_model\", reference[:0]}} {", test: "TestPairsRefused"},
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
	}},
	{"internal/histogram/histogram.go", []way{
		{from: "max(1, int(float64(n)", to: "max(0, int(float64(n)", test: "TestText"},
	}},
	{"internal/svg/svg.go", []way{
		{from: "args[i] = text.String()", to: "args[i] = a", test: "TestSVG", in: "internal/chart"},
		{from: "math.Round(a*d.Scale)/d.Scale", to: "math.Round(a)/d.Scale", test: "TestSVG", in: "internal/chart"},
	}},
	{"internal/chart/svg.go", []way{
		{from: "f.bottom - f.y.at(p.y)", to: "f.top + f.y.at(p.y)", test: "TestSVG"},
		{from: "for _, k := range []int{i, min(low, high), max(low, high), end - 1} {", to: "for _, k := range []int{i, end - 1} {", test: "TestThin"},
	}},
	{"internal/chart/scale.go", []way{
		{from: "every := max(1, math.Ceil((hi-lo)/float64(max(1, n))))", to: "every := 1.0", test: "TestTicks"},
	}},
	{"internal/chart/chart.go", []way{
		{from: "out[i] = sum / weight", to: "out[i] = sum", test: "TestSmooth"},
		{from: "\t\t\topen = false\n", to: "", test: "TestGaps"},
	}},
	{"internal/board/board.go", []way{
		{from: "n := max(0, end-q.first)", to: "n := min(len(q.points), batch)", test: "TestDroppedMeanwhile"},
		{from: "if over := len(q.points) - most; over > 0 {", to: "if over := len(q.points) - most; over > 1<<20 {", test: "TestAbsentSink"},
		{from: "if q.warned {\n\t\treturn\n\t}\n", to: "", test: "TestQueue"},
	}},
	{"internal/trackio/trackio.go", []way{
		{from: "WHERE run_id = ? AND step > ?\", s.run.ID, s.run.Resumed", to: "WHERE step > ?\", s.run.Resumed", test: "TestRuns"},
	}},
	{"internal/mlflow/client.go", []way{
		{from: "at.User = nil\n", to: "", test: "TestCheck"},
		{from: "&& s != http.StatusTooManyRequests", to: "", test: "TestWays"},
	}},
	{"internal/mlflow/run.go", []way{
		{from: "range slices.Chunk(all, mostMetrics)", to: "range slices.Chunk(all, 10*mostMetrics)", test: "TestLimits"},
	}},
	{"checkpoint/state.go", []way{
		{from: "loss < b.Loss-threshold", to: "loss < b.Loss", test: "TestBests", in: "internal/train"},
	}},
	{"internal/train/best.go", []way{
		{from: "at.Add(s.lastEval.Step, s.lastEval.Loss, c.EarlyStoppingThreshold)", to: "", test: "TestEarlyStopping"},
		{from: "if step == s.lastStep {\n\t\treturn nil", to: "if true {\n\t\treturn nil", test: "TestSaveBest"},
	}},
	{"internal/train/generate.go", []way{
		{from: "BF16Master = !j.startsRows()", to: "BF16Master = true", test: "TestGeneratingKeepsNoLowerHalves"},
	}},
	{"internal/train/samples.go", []way{
		{from: "if n == prompts {", to: "if n > 0 {", test: "TestKeptSamples"},
		{from: "at.Step > step:", to: "at.Step > step+1:", test: "TestKeptSamples"},
	}},
	{"internal/train/curve.go", []way{
		{from: "out[at] = (out[at] + v) / 2", to: "out[at] += 0 * v", test: "TestCurve"},
	}},
	{"internal/train/board.go", []way{
		{from: "\t\ts.boards.events = nil\n", to: "", test: "TestFullDiskOfEvents"},
	}},
	{"internal/tensorboard/writer.go", []way{
		{from: "_ = w.f.Truncate(w.whole)", to: "", test: "TestFullDiskOfEvents", in: "internal/train"},
		{from: "os.O_CREATE | os.O_EXCL |", to: "os.O_CREATE |", test: "TestRunsOfOneSecond"},
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
	{"device/cpu/gemm/eights.go", []way{
		{from: "i := from; i < k; i++", to: "i := from + 1; i < k; i++", test: "TestExactProducts"},
		{from: "narrowGeneric((*uint16)(unsafe.Add(unsafe.Pointer(dst), 2*whole))", to: "narrowGeneric((*uint16)(unsafe.Add(unsafe.Pointer(dst), whole))", test: "TestExactProducts"},
	}},
	{"device/cpu/vec/generic.go", []way{
		{from: "clear(g[seen:])", to: "", test: "TestStrips"},
		{from: "tops[r] = max(tops[r], most(first(row), seen)*scale)", to: "tops[r] = most(first(row), seen) * scale", test: "TestStrips"},
	}},
	{"device/cpu/vec/vec.go", []way{
		{from: "NEON: 1, ", to: "", test: "TestChoose"},
		{from: "u*c-v*s, v*c+u*s", to: "u*c-v*s, v*c-u*s", test: "TestRotate"},
	}},
	{"device/cpu/gemm/pairs.go", []way{
		{from: "acc = addFlushed(acc, x&upper, y&upper)\n\treturn addFlushed(acc, x<<16, y<<16)", to: "acc = addFlushed(acc, x<<16, y<<16)\n\treturn addFlushed(acc, x&upper, y&upper)", test: "TestAddsInOrder"},
		{from: "leastNormal-0x1p-151", to: "leastNormal-0x1p-150", test: "TestAddFlushedRoundsOnce"},
		{from: "float64(flush(acc)) + float64", to: "float64(acc) + float64", test: "TestAddFlushedRoundsOnce|TestPairsAreTheTwins"},
		{from: "(got == got || want == want) {", to: "got == got {", same: "no trial's sum is a number where an instruction would give none"},
		{from: "kernel(2, (*float32)", to: "kernel(1, (*float32)", test: "TestAddsInOrder"},
	}},
	{"device/cpu/gemm/level_pairs_amd64.go", []way{
		{from: "clearLower(at(dst, r*rowStride+k/2), 1)", to: "_ = r", test: "TestPairsAreFilledWithZeros"},
		{from: "clearLower(at(end, p*stride), nr512)", to: "_ = p", test: "TestPairsAreFilledWithZeros"},
		{from: "min(i, k-j-1)", to: "min(i, k-1)", same: "rows past the end are packed where no kernel reads, and lie in memory that can be read"},
		{from: "if k >= 2 {", to: "if k >= 3 {", test: "TestPairsKeepTheBits"},
		{from: "s.first16(column, n-j), k)", to: "s.first16(column, n), k)", same: "columns past the end are packed where their products are not stored, and lie in memory that can be read"},
	}},
	{"device/cpu/gemm/workspace.go", []way{
		{from: "a.ABF16 && a.BBF16 && w", to: "a.ABF16 && w", test: "TestPairsTakeOnlyBF16|TestErrorBound"},
		{from: "a.ABF16 && a.BBF16 && w", to: "a.BBF16 && w", test: "TestPairsTakeOnlyBF16|TestExactProducts"},
	}},
	{"device/cpu/gemm/blocks.go", []way{
		{from: "kb * w.plan.panels * w.panelStride(w.plan.kc)", to: "kb * w.plan.panels * w.plan.kc", test: "TestExactProducts|TestPairsKeepTheBits"},
		{from: "\tk = w.layout.steps(k)\n", to: "", test: "TestExactProducts|TestPairsKeepTheBits"},
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
		{from: "vec.Add(sum, row)", to: "vec.Scale(sum, row, 1)", test: "TestOps/threads=2/AddRows"},
	}},
	{"internal/watch/address.go", []way{
		{from: "errors.Is(err, syscall.EADDRINUSE) && !asked", to: "errors.Is(err, syscall.EADDRINUSE)", test: "TestListenWherePortsAreTaken"},
		{from: "ok && !at.IP.IsLoopback()", to: "ok && at.IP.IsLoopback()", test: "TestListenElsewhere"},
		{from: "strings.HasSuffix(host, \".localhost\")", to: "strings.HasSuffix(host, \"localhost\")", test: "TestKnownHost"},
		{from: "if at.IP.IsUnspecified() {", to: "if false {", test: "TestListenElsewhere"},
	}},
	{"internal/calibrate/inrun.go", []way{
		{from: "range corrections {", to: "range 0 {", test: "TestMatch"},
		{from: ", ok := d.Ops[op]; ok && dtype == r.operands() {", to: ", ok := d.Ops[op]; ok {", test: "TestMatch"},
		{from: "Backward / times)", to: "Backward * times)", test: "TestMatch"},
	}},
	{"internal/watch/follow.go", []way{
		{from: "l.hand(now, stride, each)", to: "_, _ = f.Seek(l.off, io.SeekStart)\n\tl.hand(f, stride, each)", test: "TestFollowAFileInGrowth"},
		{from: "|| st.Size() < l.off", to: "", test: "TestFollow"},
		{from: "!os.SameFile(l.at, st) ||", to: "", test: "TestFollow"},
		{from: "(l.keep == nil || !l.keep(line))", to: "true", test: "TestFollowThins"},
		{from: "skipped = line", to: "skipped = nil", test: "TestFollowThins"},
		{from: "l.off += size", to: "l.off += size - 1", test: "TestFollow"},
	}},
	{"internal/watch/server.go", []way{
		{from: "!knownHost(r.Host, s.names)", to: "false", test: "TestOnlyWithTheToken"},
		{from: "s.is(asked) || s.is(s.shown(r))", to: "asked == \"\" || s.is(s.shown(r))", test: "TestOnlyWithTheToken"},
		{from: "HttpOnly: true, ", to: "", test: "TestOnlyWithTheToken"},
		{from: "r.Method != http.MethodGet && r.Method != http.MethodHead", to: "r.Method == http.MethodPost", test: "TestOnlyWithTheToken"},
	}},
	{"internal/watch/events.go", []way{
		{from: "s.watching >= maxViewers", to: "false", test: "TestViewersComeAndGo"},
		{from: "last = true", to: "return", test: "TestEvents"},
	}},
	{"internal/watch/run.go", []way{
		{from: "events[0].Again = again", to: "", test: "TestEvents"},
		{from: "|| bytes.Contains(line, []byte(`\"skipped\":true`))", to: "", test: "TestFollowThins"},
	}},
	{"internal/train/dashboard.go", []way{
		{from: "if !take {", to: "if false {", test: "TestDashboardRefused"},
		{from: "s.closers = append(s.closers, server.Close)", to: "", test: "TestDashboard"},
	}},
	{"internal/train/memory.go", []way{
		{from: "m.Host[p.String()] = d + h", to: "m.Host[p.String()] = h", test: "TestMetricsOfMadeUpTimes"},
		{from: "arenas.Total+dev.Now[accounts.HostStaging]", to: "arenas.Total", test: "TestMetricsOfMadeUpTimes"},
		{from: ">= time.Second", to: ">= 0", test: "TestGlance"},
	}},
}
