package main

// ofRecipes are mistakes in what other trainers' recipes ask for: noise on embeddings, layers that are frozen.
var ofRecipes = []broken{
	{"device/op/noise.go", []way{
		{from: "a.First + a.From + a.T; end", to: "a.First + a.From; end", test: "TestLargestPlace"},
	}},
	{"device/cpu/noise.go", []way{
		{from: "cu[i+1]) > at", to: "cu[i+1]) >= at", test: "TestOps/threads=2/AddNoise"},
		{from: "uint32(a.First+at)", to: "uint32(at)", test: "TestOps/threads=2/AddNoise"},
		{from: "uint32(seed >> 32)", to: "0", test: "TestOps/threads=2/AddNoise"},
		{from: "for range 10 {", to: "for range 9 {", test: "TestPhilox"},
		{from: "end > int(cu[a.Seqs])", to: "end > int(cu[a.Seqs])+9", test: "TestBadIndicesAreErrors"},
	}},
	{"device/cuda/kernels/noise.go", []way{
		{from: ".I32(a.First).I32(a.Step)", to: ".I32(a.Step).I32(a.First)", test: "TestNoise"},
	}},
	{"layers/embedding.go", []way{
		{from: "if !cfg.EmbedRounded {", to: "if cfg.EmbedRounded {", test: "TestNoise"},
		{from: "noise.Alpha == 0 || step == 0", to: "noise.Alpha == 0", test: "TestNoiseOfSteps", in: "internal/train"},
		{from: "float64(t.dims.hidden)) / t.residualUnit()", to: "float64(t.dims.hidden))", test: "TestNoise"},
		{from: "From: c.at, First: mb.First", to: "First: mb.First", test: "TestHiddenStatesOnTheHost"},
	}},
	{"actors/stages.go", []way{
		{from: "if v.Phase == schedule.Forward {", to: "{", test: "TestNoiseOfSteps", in: "internal/train"},
	}},
	{"actors/batchslot.go", []way{
		{from: "First: batch.FirstToken() + b.offset[i]", to: "First: batch.FirstToken()", test: "TestNoiseOfSteps", in: "internal/train"},
		{from: "First: batch.FirstToken() + b.offset[i]", to: "First: b.offset[i]", test: "TestOtherNumbersOfRanks", in: "internal/train"},
	}},
	{"data/ranks.go", []way{
		{from: "if i < rank*len(rows)/ranks {", to: "if i <= rank*len(rows)/ranks {", test: "TestRankBatches"},
	}},
	{"internal/config/import_freeze.go", []way{
		{from: "first = max(0, all-trained)", to: "first = 0", test: "TestFreezeTuning"},
		{from: "all = min(-trained, all)", to: "all = -trained", test: "TestFreezeTuning"},
		{from: "im.freeze(e, e.val, im", to: "im.freeze(e, im.doc, im", test: "TestFreezeTuning"},
		{from: "first = stride - 1", to: "first = 0", test: "TestFreezeTuning"},
		{from: "regexp.QuoteMeta(fmt.Sprintf(\".%d.%s\", l, m))", to: "fmt.Sprintf(\".%d.%s\", l, m)", test: "TestFreezeTuning"},
	}},
	{"model/seedoss.go", []way{
		{from: "		dropout: true,\n", to: "", test: "TestParseSpellings"},
	}},
	{"internal/export/gemma.go", []way{
		{from: "		p.add(key, float32(c))\n", to: "", test: "TestGemma2"},
		{from: "if c == 0 {", to: "if false {", test: "TestGemma2Refused"},
		{from: "if !p.model.TieEmbeddings {", to: "if false {", test: "TestGemma2Refused"},
		{from: "c := p.model.LogitSoftcap; c > 0", to: "c := p.s.num(\"final_logit_softcapping\", 0); c > 0", test: "TestGemma"},
		{from: "6))), 62)", to: "6))), 46)", test: "TestGemma3Of27B"},
		{from: "s.int(\"_sliding_window_pattern\", 6)", to: "6", test: "TestGemma3Windows"},
		{from: "	case 1:\n		s.fail(", to: "	case 0:\n		s.fail(", test: "TestGemma2Refused"},
		{from: "p.gemmaAttention(period, 46)", to: "p.gemmaAttention(period, 62)", test: "TestGemma2Refused"},
		{from: "if period > 1 {", to: "if period > 0 {", test: "TestGemma3WithoutWindows"},
		{from: "s.need(\"hidden_size\") / p.heads", to: "s.need(\"hidden_size\")", test: "TestGemma2Refused"},
		{from: "	p.noBias()\n", to: "", test: "TestGemma2Refused"},
		{from: "		{\"post_feedforward_layernorm\", \"post_ffw_norm\", norm},\n", to: "		{\"post_feedforward_layernorm\", \"post_ffw_norm\", copied},\n", test: "TestGemma2"},
	}},
	{"internal/export/keys.go", []way{
		{from: "case act == p.family.act:", to: "case true:", test: "TestActivations"},
		{from: "case act == model.GELU && p.family.act == model.GELUTanh:", to: "case false:", test: "TestActivations"},
		{from: "[]string{\"use_bias\", \"attention_bias\"}", to: "[]string{\"use_bias\"}", test: "TestGemma2Refused"},
	}},
	{"internal/export/latent.go", []way{
		{from: "n: n.nope, turned: true}", to: "n: n.nope}", test: "TestLatent"},
		{from: "from: n.nope, n: n.value", to: "n: n.value", test: "TestLatent"},
		{from: "key, value = int(n.rank+n.rope), int(n.rank)", to: "key, value = int(n.nope+n.rope), int(n.value)", test: "TestDefaults"},
		{from: "float32(0.1*all)", to: "float32(all)", test: "TestLatent"},
		{from: "if m != all || m == 0 {", to: "if m != all {", test: "TestLatentRefused"},
		{from: "j.turned[int64(i)%cols*rows.n+int64(i)/cols] = v", to: "j.turned[i] = v", test: "TestLatent"},
		{from: "open < all {", to: "false && open < all {", test: "TestLatent"},
		{from: "p.deepseekKeys(softmax)", to: "p.deepseekKeys(2)", test: "TestLatent"},
	}},
	{"internal/export/tensors.go", []way{
		{from: "it.rows.from = n\n", to: "", test: "TestGranite4"},
		{from: "		return slices.Concat(p.latentAttention(), of)", to: "		return slices.Concat(of)", test: "TestLatent"},
	}},
	{"model/presets.go", []way{
		{from: "11008, 36, 16, 4, 128, 128256", to: "11008, 36, 16, 8, 128, 128256", test: "TestParams"},
		{from: "qwen25(131072, 1e-5, false)),\n	\"qwen2.5-32b\"", to: "qwen25(131072, 1e-6, false)),\n	\"qwen2.5-32b\"", test: "TestPresetsOfQwen"},
		{from: "\"eos_token_id\": 151645, \"tie", to: "\"eos_token_id\": 151643, \"tie", test: "TestPresetsOfQwen"},
	}},
	{"internal/train/job.go", []way{
		{from: "Seed: uint64(c.Seed)}", to: "}", test: "TestNoiseOfSteps"},
	}},
}
