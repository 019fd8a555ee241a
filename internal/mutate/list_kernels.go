package main

// ofKernels breaks the counting of what kernels do, and what is made of it.
var ofKernels = []broken{
	{"cudart/emu/ptx/count.go", []way{
		{from: "s := Step{At: pc, Off: mask == 0 && class != ClassBranch}", to: "s := Step{At: pc, Off: mask == 0}", test: "TestCountsOrder|TestDivergence"},
		{from: "parts := mask != 0 && mask != all && in.op != opExit", to: "parts := mask != 0 && in.op != opExit", test: "TestDivergence"},
		{from: "parts = parts || w.r32[in.a][i] != first", to: "parts = w.r32[in.a][i] != first && false", test: "TestDivergence"},
		{from: "clear(c.read)\n", to: "", test: "TestFresh"},
		{from: "to.Sum.Add(n, 1)", to: "to.Sum.Add(n, 2)", test: "TestCountedProduct"},
		{from: "rows := full >> (32 - 8*uint32(in.n))\n\t\tw.offsets", to: "rows := full >> (24 - 4*uint32(in.n))\n\t\tw.offsets", test: "TestCountedProduct"},
	}},
	{"cudart/emu/ptx/countmemory.go", []way{
		{from: "reads && (strong || !seen)", to: "reads && !seen", test: "TestStrongLoadsAreFresh"},
		{from: "width = int(128 / bytes)", to: "width = 32", test: "TestBanks"},
		{from: "to.Conflicts += int64(n - 1)", to: "to.Conflicts += int64(n)", test: "TestBanks"},
		{from: "if b.words[bank][i] == word {", to: "if b.words[bank][i] == word && false {", test: "TestBanks"},
		{from: "if known[i] == sector {", to: "if known[i] == sector && i == n-1 && false {", test: "TestSectors"},
		{from: "reads := to == &c.now.Load || to == &c.now.Copied", to: "reads := true", test: "TestTranspose|TestFresh|TestCountedProduct"},
		{from: "case sharedWindow:\n\t\t\t\tglobal, shared", to: "case localWindow + 1:\n\t\t\t\tglobal, shared", test: "TestBanks"},
	}},
	{"cudart/emu/ptx/meaning.go", []way{
		{from: "if i == 0 && !o.mem", to: "if i == 1 && !o.mem", test: "TestMeanings"},
		{from: "m.Groups = Closes", to: "m.Groups = 0", test: "TestMeanings"},
	}},
	{"cudart/emu/ptx/launchrun.go", []way{
		{from: "at = j.launch.Only[at]", to: "_ = j.launch.Only[at]", test: "TestCountsOrder"},
		{from: "if uint64(b) > last {", to: "if uint64(b) > last+1 {", test: "TestCountsOrder"},
	}},
	{"cudart/emu/silicon/occupancy.go", []way{
		{from: "registersOfSM / max(each, 1) / warpUnit * warpUnit / warps", to: "registersOfSM / max(each, 1) / warps", test: "TestOccupancy"},
		{from: "roundUp(b.Shared+sharedReserved, sharedUnit)", to: "roundUp(b.Shared+1, sharedUnit)", test: "TestOccupancy"},
		{from: "roundUp(32*b.Registers, registerUnit)", to: "32*b.Registers", test: "TestOccupancy"},
	}},
	{"cudart/emu/silicon/bound.go", []way{
		{from: "issue += float64(n.Off)", to: "_ = n.Off", test: "TestBound"},
		{from: "shared.Wavefronts+n.By[ptx.ClassShuffle]", to: "shared.Wavefronts", test: "TestBound"},
	}},
	{"cudart/emu/silicon/warp.go", []way{
		{from: "w.writers[r] = append(w.writers[r][:0], needs...)", to: "w.writers[r] = w.writers[r][:0]", test: "TestReplay"},
		{from: "m.memory = max(m.memory, m.now) + float64(moved)*m.sector", to: "m.memory = m.now + float64(moved)*m.sector", test: "TestReplayOfBlocks"},
		{from: "for i := range len(g.closed) - but {", to: "for i := range len(g.closed) {", test: "TestReplay"},
		{from: "w.waits, w.wake = s.Event, math.Inf(1)", to: "w.waits = s.Event", test: "TestReplay"},
		{from: "q.units[k.unit] = m.now + k.cycles", to: "q.units[k.unit] = m.now + 1", test: "TestReplay"},
	}},
	{"cudart/emu/silicon/launch.go", []way{
		{from: "heap.Fix(&h, 0)", to: "_ = heap.Fix", test: "TestSpread"},
		{from: "r.Resident = min(r.Resident, (len(weights)+g.SMs-1)/g.SMs)", to: "_ = g.SMs", test: "TestExpected"},
	}},
	{"device/cuda/appraise/sample.go", []way{
		{from: "if off > deviation {\n\t\t\ts.repeats", to: "if false {\n\t\t\ts.repeats", test: "TestSequencesThatDiffer"},
		{from: "if off <= deviation {", to: "if true {", test: "TestKink"},
		{from: "if i == len(s.lines)-1 {", to: "if i == len(s.lines) {", test: "TestKink"},
		{from: "between := heads * int64(l.to-l.from-1)", to: "between := heads * int64(l.to-l.from)", test: "TestKink"},
		{from: "if s.once || s.groups <= few {", to: "if s.groups <= few {", test: "TestKink"},
	}},
}
