package main

// ofRanks breaks what processes that train together are told apart by, and exchange by.
// The tests of internal/ranks that run processes are skipped where there is no mpirun; those
// mutations need one.
var ofRanks = []broken{
	{"internal/mpi/abi.go", []way{
		{from: "filepath.Base(file), \"libmpi_abi.\"):", to: "filepath.Base(file), \"libmpiabi.\"):", test: "TestABI"},
		{from: "\"libmpi_abi.\") && !standard:", to: "\"libmpi_abi.\") && false:", test: "TestABI"},
		{from: "if *to = symbol(name); *to == 0 {", to: "if *to = symbol(name); false {", test: "TestABI"},
		{from: "inPlace: 1, shared: 221}, nil", to: "shared: 221}, nil", same: "it needs MPICH 5's library of the standard ABI, which Debian does not have"},
		{from: "line, _, _ = strings.Cut(line, \",\")\n", to: "", test: "TestVersion"},
		{from: "words[i] = w[1:]", to: "words[i] = w", test: "TestVersion"},
		{from: "strings.HasPrefix(version, \"Open MPI\") {", to: "strings.HasPrefix(version, \"OpenMPI\") {", test: "TestFind"},
		{from: "if abi == OpenMPI || ", to: "if ", test: "TestFind"},
	}},
	{"internal/mpi/open_dl.go", []way{
		{from: "\tdefer keepSignals()()\n", to: "", test: "TestSignalsStay"}, // where a library catches signals, as Debian's MPICH does
	}},
	{"internal/mpi/signals_linux.go", []way{
		{from: "setAction(int(unix.SIGABRT), &sigaction{})", to: "", test: "TestAbortEndsAtOnce"},
		{from: "if now[i] != before[i] {", to: "if now[i] == before[i] {", test: "TestKeepSignals"},
	}},
	{"internal/mpi/launch.go", []way{
		{from: "rank < 0 || rank >= size {", to: "rank < 0 {", test: "TestLaunch"},
		{from: "case l.wrong != nil && size > 1:", to: "case l.wrong != nil:", test: "TestLaunch"},
		{from: "\t\t\tcontinue // one process, which needs no MPI\n", to: "", test: "TestLaunch"},
		{from: "getenv(\"SLURM_STEP_ID\") != \"\" && l.family == OfMPICH:", to: "false:", test: "TestLaunch"},
	}},
	{"internal/mpi/search.go", []way{
		{from: "if name.family != OfAny && l.Family != OfAny && name.family != l.Family {", to: "if false {", test: "TestFind"},
		{from: "l.Family != OfAny && family != l.Family {\n\t\tf.Failed", to: "l.Family != OfAny && family == l.Family {\n\t\tf.Failed", test: "TestFind"},
		{from: "\t\te.shut(lib)\n", to: "", test: "TestFind"},
		{from: "[]string{\"No such file\", \"no such file\", \"not found\"}", to: "[]string{\"No such file\"}", test: "TestAbsent"},
		{from: "_, rest, _ := strings.Cut(says, name)", to: "rest := says; _ = name", test: "TestAbsent"},
		{from: "f := Found{family: l.Family}", to: "f := Found{}", test: "TestStartWithoutALibrary"},
		{from: "if l.By != \"\" {", to: "if true {", test: "TestFind"},
		{from: "if isLauncher(program) {", to: "if false {", test: "TestFind"},
		{from: "\t\tf.blame(Variable)\n\t\treturn f\n", to: "\t\tf.blame(Variable)\n", test: "TestFind"},
		{from: "strings.LastIndexByte(string(stat), ')')", to: "strings.IndexByte(string(stat), ')')", test: "TestParents"},
	}},
	{"internal/mpi/comm.go", []way{
		{from: "first, last := max(begin, from), min(begin+n, to)", to: "first, last := begin, min(begin+n, to)", test: "TestWindow"},
		{from: "int32(first-from))", to: "int32(first))", test: "TestWindow"},
		{from: "addressOf(data[at:to]),", to: "addressOf(data),", test: "TestMPIConforms", in: "internal/ranks"},
		{from: "n := min(len(rest), c.w.largest)", to: "n := min(len(rest), c.w.largest+c.w.rank)", test: "TestMPIConforms", in: "internal/ranks"},
		{from: "\t\tcopy(part(recv, recvCounts, me), part(send, sendCounts, me)) // while the others travel\n", to: "", test: "TestMPIConforms", in: "internal/ranks"},
		{from: "if len(counts) != size || sum != len(data) {", to: "if len(counts) != size {", test: "TestMPIConforms", in: "internal/ranks"},
		{from: "err = fmt.Errorf(\"%s of %s: %w\", name, c.name, err)", to: "_ = name", test: "TestMPIConforms", in: "internal/ranks"},
	}},
	{"internal/mpi/engine.go", []way{
		{from: "if err == nil && len(f.open) > 0 {", to: "if err == nil && len(f.open) > 1 {", test: "TestMPIConforms", in: "internal/ranks"},
		{from: "\t\tif e.ended {\n\t\t\tf(errEnded)\n", to: "\t\tif false {\n\t\t\tf(errEnded)\n", test: "TestPostedWhileEnding"},
		{from: "if e.lib.int(0) == 0 {", to: "if e.lib.int(0) != 0 {", test: "TestMPIConforms", in: "internal/ranks"},
	}},
	{"internal/mpi/world.go", []way{
		{from: "if w.size != l.Size || w.rank != l.Rank {", to: "if false {", test: "TestMPIEnds", in: "internal/ranks"},
		{from: "if !w.engine.isEnded() {\n\t\tw.Abort(code)\n\t}\n", to: "", same: "the launchers that were tried end the other ranks too when one ends with a code that is not 0"},
		{from: "\t\t\ttellLauncher(l, code)\n", to: "\t\t\t_ = l\n", test: "TestMPIEndsEarly", in: "internal/ranks"}, // with MPICH's mpirun
		{from: "if len(firsts[out[i]]) > 1 {", to: "if false {", test: "TestHostNames"},
	}},
	{"internal/ranks/mpi.go", []way{
		{from: "w.Rank(), w.Hosts()[w.Rank()], reason)", to: "w.Rank(), w.Hosts()[w.Rank()], \"\")", test: "TestMPIEnds"},
	}},
	{"internal/ranks/rates.go", []way{
		{from: "took = max(took, math.Float64frombits(binary.LittleEndian.Uint64(v)))", to: "_ = v", test: "TestMeasure"},
		{from: "values[r], all = all[:n:n], all[n:]", to: "values[r] = all[:n:n]", test: "TestLocalConforms"},
	}},
	{"internal/ranks/local/local.go", []way{
		{from: "e.end(at, w.aborted)", to: "e.end(at, nil)", test: "TestLocalAbort", in: "internal/ranks"},
		{from: "if r.calls[w.rank] != nil {", to: "if false {", test: "TestLocalTellsMisuse", in: "internal/ranks"},
	}},
	{"internal/ranks/local/exchange.go", []way{
		{from: "case one.name != first.name:", to: "case false:", test: "TestLocalTellsMisuse", in: "internal/ranks"},
		{from: "!slices.Equal(one.recvCounts, first.recvCounts):", to: "!slices.Equal(one.recvCounts, one.recvCounts):", test: "TestLocalTellsMisuse", in: "internal/ranks"},
		{from: "n != want {", to: "n > want+1 {", test: "TestLocalTellsMisuse", in: "internal/ranks"},
		{from: "part(other.send, other.sendCounts, to))", to: "part(other.send, other.sendCounts, from))", test: "TestLocalConforms", in: "internal/ranks"},
		{from: "side.used && (len(side.counts) != size || sum != len(side.data))", to: "side.used && len(side.counts) != size", test: "TestLocalConforms", in: "internal/ranks"},
	}},
	{"internal/checkup/ranks.go", []way{
		{from: "if len(on[h]) > 1 {", to: "if len(on[h]) > 2 {", test: "TestRanks"},
		{from: "if r.Cores == 1 && r.Online > 1 {", to: "if r.Cores == 1 {", test: "TestRanks"},
		{from: "for _, r := range all[1:] {", to: "for _, r := range all {", test: "TestRanks"},
		{from: "1e6*r.Latency", to: "1e3*r.Latency", test: "TestRanks"},
	}},
	{"cmd/mt/ranks.go", []way{
		{from: "case err != nil && l.Rank > 0:\n\t\treturn l, otherRank{}\n", to: "", test: "TestRanksAreRefused"},
		{from: "case l.Rank > 0:\n\t\treturn otherRank{}\n", to: "", test: "TestRanksAreRefused"},
		{from: "if w.Rank() == 0 {", to: "if true {", test: "TestDoctorOfRanks"},
		{from: "\tcase w.Rank() > 0:\n\t\treturn nil // as otherRank\n", to: "\tcase w.Rank() >= 0:\n\t\treturn nil\n", test: "TestDoctorOfRanks"},
	}},
	{"cmd/mt/train.go", []way{
		{from: "case dry && a.world != nil:", to: "case false:", test: "TestRanksThatFail"},
	}},
	{"internal/train/team.go", []way{
		{from: "stop = stop || all[r].Stop", to: "stop = stop && all[r].Stop", test: "TestTeamMeets"},
		{from: "most = max(most, s.Kind)", to: "most = s.Kind", test: "TestTeamEnds"},
		{from: "if theirs.Value == f.Value {", to: "if theirs.Name == f.Name {", test: "TestTeamMeets"},
		{from: "if theirs.Way != way {", to: "if false {", test: "TestRanksDiffer"},
		{from: "agreed = agreed && s.Agreed && s.Kind == most", to: "agreed = false", test: "TestTeamWaits"},
		{from: "if !s.Agreed {", to: "if err != nil {", test: "TestTeamWaits"},
		{from: "case errors.As(err, new(*noLog)):\n\t\treturn ofLogging\n", to: "", test: "TestTeamEnds"},
		{from: "if !slices.Contains(texts, s.Error) {", to: "if !slices.Contains(texts[:0], s.Error) {", test: "TestTeamEnds"},
		{from: "case ends > 0 && ends < len(all):", to: "case false:", test: "TestTeamMeets"},
	}},
	{"internal/train/pulse.go", []way{
		{from: "missing[h.rank] = false", to: "", test: "TestPulseNamesTheSilent"},
		{from: "if s != going {", to: "if s == staying+2 {", test: "TestPulseStops"},
	}},
	{"internal/train/staging.go", []way{
		{from: "*free = (*free)[optim.Pages(all):]", to: "", test: "TestTogether"},
		{from: "host.NewArena(accounts.Collected, s.plan.CollectBytes(), s.pool)", to: "host.NewArena(accounts.Collected, 2*s.plan.CollectBytes(), s.pool)", test: "TestMemoryOfRanks"},
		{from: "if what != everything && (", to: "if what == everything && (", test: "TestTogether"},
		{from: "what == averages {\n\t\t\twhole.Mean", to: "false {\n\t\t\twhole.Mean", test: "TestRecordings"},
		{from: "return optim.MeanOf(l.Planes) != nil", to: "return false", test: "TestRecordings"},
	}},
	{"internal/train/elsewhere.go", []way{
		{from: "tile[0] = int(l.Layout.TileBytes)", to: "tile[0] = int(l.Layout.TileBytes) / 2; tile[1] = int(l.Layout.TileBytes) - tile[0]", test: "TestTogetherApart"},
		{from: "sends[r] = int(bytes(r))", to: "sends[r] = int(bytes(g.team.Size() - 1 - r))", test: "TestTogetherApart"},
		{from: "free = free[optim.Pages(bytes):]", to: "", test: "TestTogetherApart"},
		{from: "checkpoint.Digest(r.local) == first[0].Digest", to: "checkpoint.Digest(r.local) != \"\"", test: "TestTogetherApart"},
		{from: "r.Layer(i, whole.Layer, beside)", to: "r.Layer(i, whole.Layer, checkpoint.LowerHalves)", test: "TestTogetherApart"},
		{from: "r.Layer(i, whole.Layer, beside)", to: "r.Layer(i, whole.Layer, checkpoint.Everything)", test: "TestBestApart"},
		{from: "mine = filled{Unloadable: bad.dir, Why: bad.err.Error()}", to: "return bad", test: "TestDoesNotLoadApart"},
	}},
	{"internal/train/output.go", []way{
		{from: "return j.done", to: "return false", test: "TestTogetherApart"},
	}},
	{"internal/train/together.go", []way{
		{from: "if f.Tiles[i] != all[0].Tiles[i] {", to: "if false {", test: "TestModelsDiffer"},
	}},
	{"internal/train/alter.go", []way{
		{from: "max(1, a.from.state.Ranks) != a.team.size()", to: "false", test: "TestOtherNumbersOfRanks"},
	}},
	{"cmd/mt/main.go", []way{
		{from: "mpi.Exit(code)", to: "os.Exit(code)", same: "no rank of mt doctor leaves without MPI's knowledge unless something fails"},
	}},
}
