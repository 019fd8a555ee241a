package main

// ofImports breaks what is read of other tools' configs, and what mt has of their keys.
var ofImports = []broken{
	{"internal/config/schedulerargs.go", []way{
		{from: "return end / c.LearningRate\n", to: "return end\n", test: "TestSchedulerArgs"},
		{from: "return c.schedulerArg(\"min_lr_rate\", c.MinLRRatio)", to: "return c.MinLRRatio", test: "TestSchedulerArgs"},
		{from: "c.LearningRate <= end {", to: "c.LearningRate < 0 {", test: "TestSchedulerArgsAreChecked"},
		{from: "a.whole && x != math.Trunc(x):", to: "a.whole && x == math.Trunc(x):", test: "TestSchedulerArgsAreChecked"},
	}},
	{"internal/config/lrgroups.go", []way{
		{from: "lr * (g.LR / c.LearningRate)", to: "lr * g.LR", test: "TestLRGroups"},
		{from: "case g.LR == 0:", to: "case false:", test: "TestLRGroupsAreChecked"},
		{from: "len(c.LRGroups) > 0 && c.LearningRate == 0", to: "false", test: "TestLRGroupsAreChecked"},
	}},
	{"internal/config/import_axolotl_groups.go", []way{
		{from: "f.val = partsOfNames(f.val)", to: "_ = partsOfNames", test: "TestImports"},
		{from: "number(by*of)", to: "number(by+0*of)", test: "TestImportedGroups"},
		{from: "&& im.doc.get(\"unfrozen_parameters\").unset() {", to: "{", test: "TestImportedGroups"},
	}},
	{"internal/config/load.go", []way{
		{from: "if lost := im.Lost(); len(lost) > 0 {", to: "if lost := im.Lost(); len(lost) > 1 {", test: "TestImportedIsTrained"},
		{from: "return im.entries(), nil", to: "return l.fileEntries(doc), nil", test: "TestImportedIsTrained"},
	}},
	{"internal/config/import.go", []way{
		{from: "if again := *im.c; k.set(", to: "if again := *im.c; false && k.set(", test: "TestImports"},
		{from: "if err := k.set(im.c, e.spelled, s.val); err != nil {", to: "if err := k.set(im.c, e.spelled, s.val); err != nil && false {", test: "TestImports"},
		{from: "if _, given := im.given[key]; given || im.refused != nil {", to: "if im.refused != nil {", test: "TestImports"},
		{from: "if im.refused != nil {\n\t\treturn nil, im.refused\n\t}\n", to: "", test: "TestImportedIsTrained"},
		{from: "e.val.kind == plain && grouped.MatchString(e.val.text) {", to: "false && grouped.MatchString(e.val.text) {", test: "TestImports"},
	}},
	{"internal/config/importrules.go", []way{
		{from: "1/(float64(n)*epochs)", to: "1/float64(n)", test: "TestImports"},
		{from: "if e.val.unset() {", to: "if false {", test: "TestImports"},
		{from: "if !e.val.is(\"true\") {", to: "if false {", test: "TestImports"},
		{from: "if v.kind == list {", to: "if false {", test: "TestImports"},
		{from: "keep = append(keep, item)", to: "_ = item", test: "TestImports"},
		{from: "ok && x > 0 && x < 1 {", to: "ok && x > 1 {", test: "TestImportedKeys"},
		{from: "case im.doc.get(\"fp16\").is(\"true\"):", to: "case false:", test: "TestImportedKeys"},
		{from: "case e.val.is(\"false\"):", to: "case false:", test: "TestImportedKeys"},
		{from: "unlessOff(func(im *importer, e entry) { im.refuse(e, why) })", to: "func(im *importer, e entry) { im.refuse(e, why) }", test: "TestImportedKeys"},
	}},
	{"internal/config/import_trl.go", []way{
		{from: "name.kind == null && split.kind == null {", to: "name.kind == null {", test: "TestImportedKeys"},
		{from: "when.unset() || path.kind == null {", to: "when.unset() && path.kind == null {", test: "TestImportedKeys"},
		{from: "[]value{trlSet(path, im.doc.get(\"dataset_config\"), e.val)}", to: "[]value{trlSet(path, value{}, e.val)}", test: "TestImportedKeys"},
		{from: "if e.val.is(\"keep_start\") {", to: "if !e.val.is(\"keep_start\") {", test: "TestImportedKeys"},
	}},
	{"internal/config/import_axolotl_sets.go", []way{
		{from: "if len(layouts) > 1 {", to: "if false {", test: "TestImportedKeys"},
		{from: "case another:", to: "case false && another:", test: "TestImports"},
		{from: "case f.name == \"text_column\":", to: "case f.name == \"text_columns\":", test: "TestImportedKeys"},
		{from: "im.lose(entry{e.spelled + \".\" + f.name, f.pos, f.val}, \"the layout", to: "im.idle(entry{e.spelled + \".\" + f.name, f.pos, f.val}, \"the layout", test: "TestImportedKeys"},
	}},
	{"internal/config/import_llamafactory.go", []way{
		{from: "if im.doc.get(\"stage\").is(\"pt\") {", to: "if true {", test: "TestImports"},
		{from: "map[bool]string{true: \"false\", false: \"true\"}[val]", to: "map[bool]string{true: \"true\", false: \"false\"}[val]", test: "TestImports"},
		{from: "data.NamesFile(name) || ", to: "", test: "TestImportedIsTrained"},
		{from: "[2]string{\"master_dtype\", \"bf16\"}, ", to: "", test: "TestImportedKeys"},
		{from: "ifTrue(means(\"\", [2]string{\"optim\", \"muon\"}, [2]string{\"adjust_lr_fn\", \"match_rms_adamw\"}))", to: "means(\"\", [2]string{\"optim\", \"muon\"}, [2]string{\"adjust_lr_fn\", \"match_rms_adamw\"})", test: "TestImportedKeys"},
		{from: "strings.HasSuffix(e.val.text, \".yaml\") ||", to: "", test: "TestImportedKeys"},
	}},
	{"internal/config/import_axolotl.go", []way{
		{from: "fmt.Sprint(n/micro)", to: "fmt.Sprint(n)", test: "TestImports"},
		{from: "micro < 1 || n%micro != 0:", to: "micro < 1:", test: "TestImportedKeys"},
		{from: "\t\tmicro = 1\n", to: "\t\tmicro = 0\n", test: "TestImportedKeys"},
		{from: "if e.val.kind == mapping {\n\t\tim.give(e, specialTokensKey", to: "if false {\n\t\tim.give(e, specialTokensKey", test: "TestImportedKeys"},
		{from: "if strings.Contains(item.text, \"[:\") || ", to: "if ", test: "TestImportedKeys"},
		{from: "dots.ReplaceAllString(item.text, `\\.$1`)", to: "item.text", test: "TestImportedKeys"},
		{from: "\treturn 1\n", to: "\treturn 2\n", test: "TestImportedKeys"},
		{from: "if !slices.ContainsFunc([]string{\"liger\"", to: "if false && !slices.ContainsFunc([]string{\"liger\"", test: "TestImportedKeys"},
		{from: "if !im.axolotlChats() {", to: "if false {", test: "TestImportedKeys"},
		{from: "if _, given := im.given[\"save_steps\"]; !given {", to: "if _, given := im.given[\"save_steps\"]; given {", test: "TestImports"},
	}},
	{"internal/config/import_torchtune.go", []way{
		{from: "plainAt(e.val, fmt.Sprint(n*epochs))", to: "plainAt(e.val, fmt.Sprint(n))", test: "TestImports"},
		{from: "if !decay && strings.Contains(name.text, \"AdamW\") {", to: "if decay {", test: "TestImports"},
		{from: "\t\t\treturn at.text\n", to: "\t\t\treturn m\n", test: "TestImports"},
		{from: "\t\tepochs = 1\n", to: "\t\tepochs = 2\n", test: "TestImportedKeys"},
		{from: "if e.val.is(\"1\") {", to: "if true {", test: "TestImportedKeys"},
		{from: "if !f.val.unset() {", to: "if false {", test: "TestImportedKeys"},
		{from: "packed.kind != null && key == \"datasets\" {", to: "false {", test: "TestImportedKeys"},
		{from: "if n := e.val.get(\"num_cycles\"); n.kind != null {", to: "if n := e.val.get(\"num_cycles\"); false {", test: "TestImportedKeys"},
		{from: "if !strings.HasSuffix(name.text, \"get_cosine_schedule_with_warmup\") {", to: "if false {", test: "TestImportedKeys"},
	}},
	{"checkpoint/companions.go", []way{
		{from: "\"video_preprocessor_config.json\", ", to: "", test: "TestCompanions"},
		{from: "\"merges.txt\",\n", to: "\n", test: "TestCompanions"},
		{from: "ok { // the patterns", to: "ok || strings.HasPrefix(name, pattern) { // the patterns", test: "TestCompanions"},
	}},
	{"model/experts.go", []way{
		{from: ", \"num_mtp_layers\"})", to: "})", test: "TestFurtherTokens"},
	}},
	{"data/laid.go", []way{
		{from: "e.labs[t.from] = end", to: "", test: "TestLayouts"},
		{from: "copy(e.labs[start:], e.ids[start:])", to: "copy(e.labs[start+1:], e.ids[start+1:])", test: "TestLayouts"},
		{from: "e.ids, empty = append(e.ids, empty...), nil", to: "empty = nil", test: "TestLayouts"},
		{from: "strings.TrimLeft(thought.ReplaceAllLiteralString(text, \"\"), \"\\n\")", to: "thought.ReplaceAllLiteralString(text, \"\")", test: "TestLayouts"},
		{from: "case role != due:", to: "case false:", test: "TestLayouts"},
		{from: "if l.replaces {", to: "if false {", test: "TestLayoutsEndWithTheirOwn"},
		{from: "if bare && (!e.spec.MaskHistory || isLast) {", to: "if bare {", test: "TestLayouts"},
		{from: "i == 0 && l.replaces || slices", to: "slices", same: "every layout that replaces EOS has it in its pieces"},
	}},
	{"data/render.go", []way{
		{from: "return f.layout.id()", to: "return \"layout\"", test: "TestLayoutsEndWithTheirOwn"},
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
		{from: "c.Roles = anyRoles()", to: "c.Roles = maps.Clone(shareGPTRoles)", test: "TestSets"},
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
		{from: "{set.Format, set.Columns, set.Names, set.Kept}", to: "{set.Format, set.Columns, set.Names, \"\"}", test: "TestSetsTogether"},
	}},
	{"tokenizer/name.go", []way{
		{from: "ends = append(ends, was)", to: "_ = was", test: "TestEndsWith"},
		{from: "tokens[key] = old.Token(id)", to: "tokens[key] = \"\"", test: "TestName"},
	}},
	{"internal/train/model.go", []way{
		{from: "m.save(map[string][]byte{name: text})", to: "", test: "TestSpecialTokensTrain"},
	}},
}
