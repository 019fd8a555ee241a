package main

// ofText breaks what becomes of data: tokens, chats, rows and batches.
var ofText = []broken{
	{"data/batch.go", []way{
		{from: "tokens+len(rows[n].IDs) <= maxTokens", to: "tokens+len(rows[n].IDs) < maxTokens", test: "TestNewBatch|TestNewBatchGroups"},
		{from: "append(append(mb.Targets, labels[1:]...), IgnoreIndex)", to: "append(mb.Targets, labels...)", test: "TestNewBatch"},
		{from: "b.Supervised += mb.Supervised", to: "b.Supervised = mb.Supervised", test: "TestNewBatch|TestNewBatchGroups"},
		{from: "if i > 0 && l != IgnoreIndex {", to: "if i >= 0 && l != IgnoreIndex {", test: "TestNewBatch"},
		{from: "mb.Positions = append(mb.Positions, i)", to: "mb.Positions = append(mb.Positions, i+int32(len(mb.IDs)-n))", test: "TestNewBatch"},
		{from: "mb.MaxSeqlen = max(mb.MaxSeqlen, n)", to: "mb.MaxSeqlen = n", test: "TestLongestDocument"},
		{from: "next[u]++", to: "", test: "TestNewBatchIndexes"},
	}},
	{"data/ranks.go", []way{
		{from: "(rank+1)*len(rows)/ranks", to: "rank*len(rows)/ranks+len(rows)/ranks", test: "TestRankBatches"},
		{from: "all.Supervised += r.Supervised()", to: "all.Supervised += int64(len(r.IDs))", test: "TestRankBatches"},
		{from: "unlabelled.Labels = slices.Repeat([]int32{IgnoreIndex}, len(unlabelled.IDs))", to: "", test: "TestRankBatches"},
		{from: "used[id] = false", to: "_ = id", test: "TestRankBatches"},
		{from: "len(ownRows(rows, rank, ranks)) == 0", to: "false", test: "TestRankBatches"},
	}},
	{"data/order.go", []way{
		{from: "l, r = r, l^scramble(r^k)&mask", to: "l, r = r, l^scramble(k)&mask", test: "TestPermutationSpreads|TestPermutationDependsOnSeedAndStream"},
		{from: "scramble(scramble(uint64(seed)) ^ stream)", to: "scramble(scramble(uint64(seed)))", test: "TestPermutationDependsOnSeedAndStream"},
		{from: "x < p.n {", to: "x <= p.n {", test: "TestPermutationIsABijection"},
	}},
	{"data/sampler.go", []way{
		{from: "s.seed, uint64(epoch))", to: "s.seed, uint64(epoch/2))", test: "TestSampler"},
		{from: "min(first+s.perStep, rows)", to: "first + s.perStep", test: "TestSampler"},
		{from: "n -= s.done + 1", to: "n -= s.done", test: "TestSampler"},
		{from: "epoch+1+n/steps, n%steps*s.perStep", to: "epoch+n/steps, n%steps*s.perStep", test: "TestSampler|TestResume"},
		{from: "int64(epoch)*int64(s.view.Rows()) + int64(end)", to: "int64(epoch)*int64(s.view.Rows()) + int64(end) - 1", test: "TestSampler|TestResume"},
		{from: "(s.view.Rows() + s.perStep - 1) / s.perStep", to: "s.view.Rows() / s.perStep", test: "TestSampler"},
	}},
	{"data/fit.go", []way{
		{from: "return cmp.Compare(lengths[b], lengths[a])", to: "return cmp.Compare(lengths[a], lengths[b])", test: "TestBestFit|TestBestFitOfMany"},
		{from: "r.free -= lengths[i]; r.free > 0", to: "r.free -= lengths[i]; r.free > 1", test: "TestBestFit|TestBestFitOfMany"},
	}},
	{"data/encode.go", []way{
		{from: "first && len(e.ids) < 2 {", to: "first && len(e.ids) < 1 {", test: "TestTextOfOneToken"},
		{from: "own[0] == e.ids[before-1] {", to: "own[0] != e.ids[before-1] {", test: "TestSpecialTokensOfText"},
		{from: "own[len(own)-1] == after[0] {", to: "own[0] == after[0] {", test: "TestSpecialTokensOfText"},
	}},
	{"data/table.go", []way{
		{from: "n > whole && t.text[n-1]", to: "n > 0 && t.text[n-1]", test: "TestTables"},
		{from: "case b == '\"' && start:", to: "case b == '\"' && (start || len(t.ends) > 0):", test: "TestTables"},
	}},
	{"data/alien.go", []way{
		{from: "slices.Contains(words, a.start) && isProse(head)", to: "slices.Contains(words, a.start)", test: "TestAliens"},
		{from: "r < ' ' && !unicode.IsSpace(r)", to: "r < ' ' && unicode.IsSpace(r)", test: "TestProseIsNoAlien"},
	}},
	{"data/chat.go", []way{
		{from: "about >= 0 && m.format.kind() == kindChat", to: "about > len(names)", test: "TestParquetErrors"},
		{from: "if err := noImages(fields); err != nil {", to: "if err := error(nil); err != nil {", test: "TestBadRows"},
		{from: "query += \"\\n\"", to: "query += \" \"", test: "TestFormats"},
		{from: "v.from = len(v.messages)\n", to: "", test: "TestFormats"},
		{from: "v.plain, v.verbatim = true, true", to: "v.plain = true", test: "TestWithoutTemplate"},
		{from: "w == int64(0) || w == float64(0)", to: "w == float64(0)", test: "TestFormats"},
		{from: "list[i] = jinja.NewObject(\"type\", \"function\", \"function\", o)", to: "list[i] = o", test: "TestFormats"},
	}},
	{"data/rendered.go", []way{
		{from: "t.Message == jinja.NoMessage || t.Message >= v.from", to: "t.Message >= v.from", test: "TestLooseMarks"},
		{from: "vars[\"add_generation_prompt\"] = true\n", to: "", test: "TestPromptsAreWhatWasLearned"},
		{from: "other.left&^out.left == 0 &&", to: "", test: "TestContentBesideCalls"},
	}},
	{"data/leftout.go", []way{
		{from: "text = text[at+n:]\n", to: "_ = n\n", test: "TestLeftOut"},
		{from: "!writes(text, said) && (answers ||", to: "!writes(text, said) && (!answers ||", test: "TestAnswerSaidElsewhere"},
	}},
	{"jinja/spans.go", []way{
		{from: "loose == len(turns) && loose == len(asked) {", to: "loose == len(asked) {", test: "TestMarks"},
		{from: "t.From <= g.From && g.To <= t.To", to: "t.From < g.From && g.To <= t.To", test: "TestMarks"},
		{from: "turn.From + len(strings.TrimRightFunc(text, isSpace))", to: "turn.From + len(text)", test: "TestSupervisedSpans"},
		{from: "(part == header || strings.TrimFunc(text[:at], isSpace) == \"\")", to: "true", test: "TestSupervisedSpans|TestSupervisedSpansRefuses|TestSupervisedEmptyThoughts"},
	}},
	{"jinja/parser.go", []way{
		{from: "|| last.orElse != nil {", to: "{", test: "TestEndsWithPrompt"},
	}},
	{"jinja/run.go", []way{
		{from: "r.t.Stop != nil && r.t.Stop() {", to: "r.t.Stop != nil && !r.t.Stop() {", test: "TestStop"},
		{from: "if i.message >= 0 {", to: "if i.message > 0 {", test: "TestErrorNamesMessage"},
	}},
	{"jinja/convert.go", []way{
		{from: "c > 0 || c == 0 && whole.Bit(0) == 1", to: "c >= 0", test: "TestAsJinja"},
	}},
	{"jinja/exec.go", []way{
		{from: "if st.stop {", to: "if !st.stop {", test: "TestAsJinja"},
	}},
	{"jinja/loop.go", []way{
		{from: "return l.length() - l.index0, true", to: "return l.length() - l.index0 - 1, true", test: "TestAsJinja"},
		{from: "l.before, l.now = l.now, item", to: "l.before, l.now = item, item", test: "TestAsJinja"},
	}},
	{"jinja/value.go", []way{
		{from: "\t\treturn markup(s)\n", to: "\t\treturn s\n", test: "TestAsJinja"},
	}},
	{"data/layout.go", []way{
		{from: "if (end-first)%n == 1 {", to: "if (end-first)%n == 0 {", test: "TestUnpackedTextIsCut"},
	}},
	{"tokenizer/merge.go", []way{
		{from: "if r := s[i].merge.rank; r < rank {", to: "if r := s[i].merge.rank; r <= rank {", test: "TestMergesAgreeWhereAllMerge"},
		{from: "a.rank == b.rank && a.pos < b.pos", to: "a.rank == b.rank && a.pos > b.pos", test: "TestMergesAgreeWhereAllMerge"},
		{from: "if left.prev >= 0 {", to: "if left.prev > 0 {", test: "TestMergesAgreeWhereAllMerge"},
		{from: "s[left.next].prev = c.pos\n", to: "", test: "TestMergesAgreeWhereAllMerge"},
		{from: "if best > 0 {", to: "if best > 1 {", test: "TestMergesAgreeWhereAllMerge"},
	}},
	{"tokenizer/bpe.go", []way{
		{from: "len(text) > m.long {", to: "len(text) >= m.long {", test: "TestIgnoreMerges"},
		{from: "if m.fallback[b] < 0 {", to: "if m.fallback[b] < -1 {", test: "TestPartialFallback"},
		{from: "case w.bytesOf(m, text[i:i+n]):", to: "case w.bytesOf(m, text[i:i+n]):\n\t\t\tflush()", test: "TestPartialFallback"},
		{from: "symbol{id: m.fallback[b], size: 1}", to: "symbol{id: m.fallback[b], size: int32(len(character))}", test: "TestShapes"},
		{from: "if !m.fuseUnk {", to: "if m.fuseUnk {", test: "TestShapes"},
		{from: "at += int(m.sizes[ids[0]])", to: "at++", test: "TestShapes|TestSameEveryTime"},
		{from: "k[0] &= 1<<(8*n) - 1", to: "k[0] &= 1<<(8*n-8) - 1", test: "TestSameEveryTime|TestShapes"},
	}},
	{"tokenizer/readmodel.go", []way{
		{from: "ok && fallback {", to: "ok {", test: "TestPartialFallback|TestShapes"},
	}},
	{"tokenizer/stream.go", []way{
		{from: "if utf8.FullRune(tail) {\n\t\t\t\treturn 0", to: "if utf8.FullRune(tail) {\n\t\t\t\treturn n", test: "TestStream|TestStreamPieces"},
		{from: "if len(s.ids)-s.seen < maxHeld {", to: "if len(s.ids)-s.seen > maxHeld {", test: "TestStream|TestStreamPieces"},
	}},
	{"tokenizer/bytes.go", []way{
		{from: "min(len(text), len(endOfText)-1)", to: "min(len(text), len(endOfText)-2)", test: "TestSplit|TestBytesEndOfText"},
		{from: "at += len(endOfText) - 1", to: "at += len(endOfText)", test: "TestBytesEndOfText|TestBytesSpecials|TestStream"},
	}},
	{"tokenizer/added.go", []way{
		{from: "tok.singleWord && (wordBefore", to: "!tok.singleWord && (wordBefore", test: "TestShapes"},
		{from: "*steps < 0 {", to: "*steps < -1<<40 {", test: "TestSlowAddedTokens"},
		{from: "if tok.lstrip {", to: "if tok.rstrip {", test: "TestShapes"},
	}},
}
