package main

// ofMeasure breaks what is measured, and what is made of it.
var ofMeasure = []broken{
	{"internal/measure/measure.go", []way{
		{from: "max(took, 1).Seconds()/float64(repeats))", to: "max(took, 1).Seconds())", test: "TestTimes"},
		{from: "if took >= o.Most {", to: "if false {", test: "TestTimes"},
		{from: "(sorted[(n-1)/2] + sorted[n/2]) / 2", to: "sorted[n-1]", test: "TestMedian"},
	}},
	{"internal/measure/product.go", []way{
		{from: "pairs += w*(w+1)/2 + (n-w)*w", to: "pairs += w*(w+1)/2 + 0*n", test: "TestAttentionFLOPs"},
		{from: "for left := a.Tokens; left > 0; left -= a.Length {", to: "for left := a.Tokens; left > a.Length; left -= a.Length {", test: "TestAttentionFLOPs"},
		{from: "\t\tproducts = 5", to: "\t\tproducts = 4", test: "TestAttentionFLOPs"},
	}},
	{"internal/measure/copies.go", []way{
		{from: "\t\tc.undo = append(c.undo, func() { m.dev.Free(*mem) })", to: "", test: "TestCopies"},
		{from: "c.undo = append(c.undo, func() { _ = arena.Close() })", to: "", test: "TestCopies"},
	}},
	{"internal/measure/host.go", []way{
		{from: "bytes += 2 * u.handedSize() * u.elems()", to: "_ = bytes", test: "TestHost"},
		{from: "UpdateBytes(u.layout()) + u.GradBytes()", to: "UpdateBytes(u.layout())", test: "TestHost"},
		{from: "bytes = size * int64(rows)", to: "bytes = 2 * size * int64(rows)", test: "TestHost"},
	}},
	{"internal/measure/disk.go", []way{
		{from: "f.Close(), os.Remove(f.Name()))", to: "f.Close())", test: "TestDisk"},
	}},
	{"bench/ondevice.go", []way{
		{from: "Min: amount / t.Most, Max: amount / t.Least", to: "Min: amount / t.Least, Max: amount / t.Most", test: "TestRateOf"},
	}},
	{"bench/gauge.go", []way{
		{from: "|| try == attempts {", to: "|| try >= 1 {", test: "TestTimed"},
		{from: "return (before + after) / 2, nil", to: "return before, nil", test: "TestTimed"},
	}},
	{"actors/predict.go", []way{
		{from: "if r.NSSteps > 0 { // what is no matrix", to: "if false {", test: "TestPredictedStall"},
		{from: "p.moved(h.UpdateBy(r.Optim), float64(r.PrepareBytes", to: "p.moved(h.Update, float64(r.PrepareBytes", test: "TestPredictedStall"},
		{from: "p.moved(h.UpdateBy(by), share*r.UnitBytes", to: "p.moved(h.UpdateBy(by+by), share*r.UnitBytes", test: "TestPredictedStall"},
	}},
	{"plan/rates/slower.go", []way{
		{from: "h.Updates = maps.Clone(h.Updates)", to: "", test: "TestSlower"},
		{from: "h.Updates[name] = op.slower(times)", to: "h.Updates[name] = op", test: "TestSlower"},
		{from: "all = slices.Clone(all)\n\t\tfor i := range all {\n\t\t\tall[i].Rate /= times", to: "for i := range all {\n\t\t\tall[i].Rate /= times", test: "TestSlower"},
		{from: "Fixed: o.Fixed * times, Rate: o.Rate / times", to: "Fixed: o.Fixed, Rate: o.Rate / times", test: "TestSlower"},
	}},
	{"internal/calibrate/calibrate.go", []way{
		{from: "l.Wires = rate > max(l.Up, l.Down)", to: "l.Wires = rate < max(l.Up, l.Down)", test: "TestSeveralDevices"},
	}},
	{"internal/calibrate/messages.go", []way{
		{from: "if of(predicted.Report).Seconds() < seconds {", to: "if of(predicted.Report).Seconds() > seconds {", test: "TestMessageFor"},
	}},
	{"bench/matmul.go", []way{
		{from: "seen := map[model.Role]bool{model.RoleEmbed: true}", to: "seen := map[model.Role]bool{}", test: "TestMatMulReport"},
	}},
	{"bench/codecs.go", []way{
		{from: "d = x<<1 ^ uint32(int32(x)>>31)", to: "d = x << 1", test: "TestWaysGiveBackWhatTheyGot"},
		{from: "if !bytes.Equal(back[:n], src) {", to: "if false && !bytes.Equal(back[:n], src) {", test: "TestWaysGiveBackWhatTheyGot"},
		{from: "d = uint32(x<<1 ^ uint16(int16(x)>>15))", to: "d = uint32(x)", test: "TestDifference|TestWaysGiveBackWhatTheyGot"},
		{from: "return 8 * float64(size) / max(bits, 1e-9)", to: "return 8 / max(bits, 1e-9)", test: "TestEntropy"},
	}},
	{"bench/samples.go", []way{
		{from: "\tw.Update.Step(u, weight, planes, grad)\n\tx.w1", to: "\tx.w1", test: "TestSamplerChangesNothing"},
		{from: "if step > s.points[len(s.points)-1] {", to: "if false {", test: "TestSamplerChangesNothing"},
		{from: "\tw.s.grads[at] = now\n", to: "", test: "TestSamplerChangesNothing"},
		{from: "step := int(r.Step-s.first) + 1", to: "step := int(r.Step)", test: "TestSamplerChangesNothing"},
		{from: "return bytes.Clone(p.Of(w.Layout, u))", to: "return bytes.Clone(p.Of(w.Layout, optim.Unit{Tensor: u.Tensor, N: u.N}))", test: "TestSamplerChangesNothing"},
	}},
	{"bench/compress.go", []way{
		{from: "defer os.RemoveAll(dir)", to: "", test: "TestCompress"},
		{from: "max(c.MaxSteps, o.Steps+1)", to: "c.MaxSteps", test: "TestCompress"},
	}},
	{"bench/worth.go", []way{
		{from: "if x.Kind != j.kind || needsBefore(x.Transform) {", to: "if x.Kind != j.kind {", test: "TestWorth"},
		{from: "math.Min(g.At*x.Ratio, speed)/g.At", to: "x.Ratio", test: "TestWorth"},
		{from: "speed *= float64(cores)", to: "", test: "TestWorth"},
		{from: "if j.compress {", to: "if !j.compress {", test: "TestWorth"},
	}},
	{"bench/shapes.go", []way{
		{from: "s.HeadDim = s.headDim()\n", to: "s.HeadDim = k * s.headDim()\n", test: "TestShapes"},
		{from: "warning, mark = aliasedNote+\"\\n\", \" ALIASED\"", to: "warning, mark = \"\", \"\"", test: "TestShapes"},
		{from: "title, under = \"ALIASED LAYERS, speed only: \"+title, under+\" — \"+aliasedNote", to: "_ = under", test: "TestShapes"},
		{from: "if ran == 0 {", to: "if false {", test: "TestShapesLeaveOut"},
	}},
	{"host/aliased.go", []way{
		{from: "state.Layout = l\n", to: "_ = l\n", test: "TestAliased"},
		{from: "s.Layers, s.aliased = nil, true", to: "s.Layers = nil", test: "TestAliased"},
	}},
	{"actors/run.go", []way{
		{from: "a.Aliased() && !o.Schedule.NoSave {", to: "a.Aliased() && false {", test: "TestAliasedLayersAreNotSaved"},
	}},
	{"internal/train/synthetic.go", []way{
		{from: "if u := d.Usage(); u.PeakTotal > most.PeakTotal {", to: "if u := d.Usage(); u.PeakTotal < most.PeakTotal {", test: "TestSyntheticDevices"},
		{from: "\tif o.Devices > 1 {\n\t\torder = schedule.Lanes\n\t}", to: "", test: "TestSyntheticDevices"},
		{from: "\t\trate = 0\n", to: "", test: "TestAliasedLayersMoveTheSame"},
		{from: "newStore = host.NewAliased", to: "", test: "TestAliasedLayersMoveTheSame"},
		{from: "taken += total(host.AliasedBytes(", to: "taken -= total(host.AliasedBytes(", test: "TestAliasedLayersMoveTheSame"},
	}},
}
