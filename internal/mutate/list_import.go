package main

// ofImports breaks what is read of other tools' configs, and what mt has of their keys.
var ofImports = []broken{
	{"internal/config/schedulerargs.go", []way{
		{from: "return end / c.LearningRate\n", to: "return end\n", test: "TestSchedulerArgs"},
		{from: "return c.schedulerArg(\"min_lr_rate\", c.MinLRRatio)", to: "return c.MinLRRatio", test: "TestSchedulerArgs"},
		{from: "c.LearningRate <= end {", to: "c.LearningRate < 0 {", test: "TestSchedulerArgsAreChecked"},
		{from: "a.whole && x != math.Trunc(x):", to: "a.whole && x == math.Trunc(x):", test: "TestSchedulerArgsAreChecked"},
	}},
	{"internal/config/perepoch.go", []way{
		{from: "float64(n)*c.NumTrainEpochs > 1 {", to: "n > 0 {", test: "TestPerEpoch"},
		{from: "c.origin[k.steps] = c.origin[k.key]", to: "", test: "TestPerEpoch"},
		{from: "case n == 0, isFlag(k.steps) && !isFlag(k.key):", to: "case n == 0:", test: "TestPerEpoch"},
		{from: "		*k.n = 0\n", to: "", test: "TestPerEpoch"},
	}},
	{"internal/config/datasets.go", []way{
		{from: "if s.Path == \"\" {", to: "if false {", test: "TestDatasetsKey"},
		{from: "len(k.sets) > 0 && len(k.given) > 0 {", to: "false {", test: "TestDatasetsKey"},
		{from: "out[role] = append(list, name)", to: "out[role] = append(list[:0], name)", test: "TestDatasetsKey"},
	}},
	{"data/set.go", []way{
		{from: "maps.Copy(c.Roles, openAIRoles)\n", to: "", test: "TestSets"},
		{from: "dir != \"\" && !filepath.IsLocal(pattern) {", to: "false && !filepath.IsLocal(pattern) {", test: "TestSets"},
		{from: "set.Kept = cmp.Or(s.Kept, s.Path)", to: "set.Kept = cmp.Or(s.Kept, \"text\")", test: "TestSets"},
	}},
	{"data/sets.go", []way{
		{from: "first = from + size*p.Shard + min(p.Shard, longer)", to: "first = from + size*p.Shard", test: "TestSets"},
		{from: "p.Shard < longer {", to: "p.Shard <= longer {", test: "TestSets"},
		{from: "return !p.Cut && p.Shards == 0 }", to: "return !p.Cut }", test: "TestSets"},
	}},
	{"data/paths.go", []way{
		{from: "described || !from.plain() {", to: "described {", test: "TestSetsTogether"},
		{from: "case described && own:", to: "case false:", test: "TestSetsTogether"},
	}},
	{"data/cache.go", []way{
		{from: "{set.Format, set.Columns, set.Kept}", to: "{set.Format, set.Columns, \"\"}", test: "TestSetsTogether"},
	}},
	{"tokenizer/name.go", []way{
		{from: "ends = append(ends, was)", to: "_ = was", test: "TestEndsWith"},
		{from: "tokens[key] = old.Token(id)", to: "tokens[key] = \"\"", test: "TestName"},
	}},
	{"internal/train/model.go", []way{
		{from: "m.save(map[string][]byte{name: text})", to: "", test: "TestSpecialTokensTrain"},
	}},
}
