package main

// ofPairs breaks pairs of answers: how they are read, tokenised, kept in the cache and laid into rows.
var ofPairs = []broken{
	{"data/batch.go", []way{
		{from: "Chosen: before + p.Chosen", to: "Chosen: p.Chosen", test: "TestPairBatches"},
		{from: "b.Pairs += int64(len(mb.Pairs))", to: "b.Pairs = int64(len(mb.Pairs))", test: "TestPairBatches"},
	}},
	{"data/ranks.go", []way{
		{from: "all.Pairs += int64(len(r.Pairs))", to: "all.Pairs = int64(len(r.Pairs))", test: "TestPairBatches"},
		{from: "unlabelled.Pairs = nil", to: "", test: "TestPairBatches"},
	}},
	{"data/pairs.go", []way{
		{from: "min(len(a), len(b))-1, 0", to: "min(len(a), len(b)), 0", test: "TestPairs|TestPairsOfTRL"},
		{from: "texts[0][n-1] == ' '", to: "texts[0][n-1] == '.'", test: "TestPairs|TestPairsOfTRL"},
		{from: "c.roleIn(first, named) != \"assistant\"", to: "false", test: "TestPairs"},
		{from: "maps.Copy(c.Roles, named.Roles)", to: "maps.Copy(c.Roles, openAIRoles)", test: "TestPairColumns"},
		{from: "asked.plain = true", to: "", test: "TestPairsWithoutTemplate"},
		{from: "return reflect.DeepEqual(plain[0], plain[1])", to: "return reflect.DeepEqual(a, plain[1])", test: "TestPairs"},
	}},
	{"data/pairtokens.go", []way{
		{from: "n = min(n, agreeing(prompt, side, equal))", to: "n = agreeing(prompt, side, equal)", test: "TestPairsPromptCut|TestPairsOfTRL"},
		{from: "append(ignored(e.labs[:0], n), side[n:]...)", to: "append(ignored(e.labs[:0], n-1), side[n-1:]...)", test: "TestPairs"},
		{from: "e.ids, e.labs, e.cut = ids, labs, len(sides[0])", to: "e.ids, e.labs, e.cut = ids, labs, len(sides[1])", test: "TestPairs"},
		{from: "slices.Clone(e.around.before)", to: "nil", test: "TestPairsOfTRL"},
		{from: "flags |= flagPromptCut", to: "", test: "TestPairsPromptCut"},
		{from: "flags = flagVerbatim", to: "", test: "TestPairsWithoutTemplate"},
	}},
	{"data/cache.go", []way{
		{from: "return docBytes + 8", to: "return docBytes", test: "TestPairs"},
		{from: "c.docs[i*c.docBytes()+16:]", to: "c.docs[16:]", test: "TestPairBatches"},
		{from: "s.Format, s.Pairs,", to: "s.Format, false,", test: "TestPairCache"},
	}},
	{"data/layout.go", []way{
		{from: "d.c.Kind != kindIDs && d.c.Kind != kindPairs", to: "d.c.Kind != kindIDs", test: "TestPairsPromptCut"},
		{from: "{0, min(cut, most)}", to: "{0, cut}", test: "TestPairsTooLong"},
		{from: "min(end-first, cut+most)", to: "end - first", test: "TestPairsTooLong"},
		{from: "return 2 * maxSeqLen", to: "return maxSeqLen", test: "TestPairsTooLong"},
		{from: "Pair{ID: doc,", to: "Pair{ID: int64(n)/2 - 1,", test: "TestPairBatches"},
		{from: "lengths[i] = d.length(doc)", to: "lengths[i] = d.length(doc) / 2", test: "TestPairsTooLong|TestPairsKeepTheirIDs|TestBestFit"},
	}},
	{"data/format.go", []way{
		{from: "if s.Pairs && d.Format == \"\" && fields", to: "if s.Pairs && d.Format != \"\" && fields", test: "TestPairErrors"},
		{from: "given(fields[f.cols.Response]) == nil && given(fields[chosenField]) != nil", to: "false", test: "TestFormats"},
	}},
	{"data/build.go", []way{
		{from: "case b.spec.Pairs && k != kindPairs:", to: "case false:", test: "TestPairErrors"},
	}},
	{"data/sets.go", []way{
		{from: "slices.Contains(either, name) && isMessages(value)", to: "slices.Contains(either, name)", test: "TestPairColumns"},
	}},
	{"data/set.go", []way{
		{from: "Turn: s.Fields[\"instruction\"] != \"\"", to: "Turn: s.Fields[\"prompt\"] != \"\"", test: "TestPairColumns"},
	}},
	{"data/parquet.go", []way{
		{from: "range []*columns{s.sets[set].Columns, s.sets[set].Names}", to: "range []*columns{s.sets[set].Columns}", test: "TestPairColumns"},
	}},
	{"data/info.go", []way{
		{from: "c.Chosen, c.Rejected, c.Turn = chosenField, rejectedField, true", to: "c.Chosen, c.Rejected = chosenField, rejectedField", test: "TestDatasetInfo"},
	}},
	{"data/report.go", []way{
		{from: "side, part.from, part.to, first = rejectedField, 0, part.to-part.from, cut", to: "side, first = rejectedField, cut", test: "TestPairsPromptCut"},
	}},
	{"cmd/mt/data_rows.go", []way{
		{from: "supervised := i > document &&", to: "supervised := i > first &&", test: "TestInspectShowsPairs"},
	}},
	{"internal/config/import_dpo.go", []way{
		{from: "ok && zero == 0 && p.to != \"beta\" {", to: "ok && zero == -1 {", test: "TestImports"},
		{from: "plainAt(e.val, \"0.1\")", to: "plainAt(e.val, \"0.2\")", test: "TestImports"},
		{from: "if dir.text == im.filled(im.doc.get(\"checkpointer\").get(\"checkpoint_dir\")).text {", to: "if dir.text == \"\" {", test: "TestImports"},
		{from: "alpha.val = weights[1]", to: "", test: "TestImports"},
		{from: "isNumber && x == 1", to: "isNumber && x != 2", test: "TestImportedIsTrained"},
	}},
}
