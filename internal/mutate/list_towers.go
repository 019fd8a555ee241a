package main

// ofTowers breaks what models with vision towers need.
var ofTowers = []broken{
	{"model/nested.go", []way{
		{from: "of = append(of, tiedKey)", to: "_ = tiedKey", test: "TestTowerSpellings"},
		{from: "if n.flat && top.err == nil {", to: "if false {", test: "TestPublishedTowers"},
		{from: "!slices.Contains(n.types, t)", to: "slices.Contains(n.types[:0], t)", test: "TestTowerSpellings"},
	}},
	{"model/prefix.go", []way{
		{from: "c.headTells && len(names) > 0", to: "c.headTells", test: "TestAsStored"},
		{from: "c.TieEmbeddings = names[", to: "_ = names[", test: "TestAsStored"},
		{from: "rows != cols && len(at)", to: "len(at)", test: "TestAsStored"},
		{from: "filepath.Base(file) == file", to: "true", test: "TestAsStored"},
	}},
	{"model/mistral3.go", []way{
		{from: "f.setDefaults(ministralDefaults)\n", to: "", test: "TestTowerSpellings"},
		{from: "c.Temper = &Temper{Scale: scale,", to: "c.Temper = &Temper{Scale: 1,", test: "TestTowerSpellings"},
		{from: "rope[tempersKey] = float(c.Temper.Scale)", to: "rope[tempersKey] = float(0)", test: "TestJSONOfOptions"},
	}},
	{"internal/export/config.go", []way{
		{from: "k != \"rope_parameters\" || s", to: "true || s", test: "TestTemperRefused"},
	}},
	{"model/qwen2vl.go", []way{
		{from: "sum != c.HeadDim/2", to: "sum < 0", test: "TestTowerSpellings"},
	}},
	{"model/qwen3vl.go", []way{
		{from: "f.vals[\"num_experts\"] = 60", to: "", test: "TestTowerSpellings"},
		{from: "if !c.NormTopKProb {", to: "if false {", test: "TestTowerSpellings"},
	}},
	{"model/write.go", []way{
		{from: "if err != nil || c.source", to: "if c.source", test: "TestResized"},
	}},
	{"internal/export/keys.go", []way{
		{from: "position_embedding_type\") == \"rope\"", to: "position_embedding_type\") != \"rope\"", test: "TestGranite4"},
		{from: "append(of, 0)) // llama.cpp has a fourth", to: "of) //", test: "TestTowers"},
		{from: "p.add(\"attention.temperature_scale\", float32(scale))", to: "", test: "TestTowers"},
		{from: "i >= 3*int(sections[i%3])", to: "i > 3*int(sections[i%3])", test: "TestStill"},
	}},
	{"internal/export/tensors.go", []way{
		{from: "p.model.TieEmbeddings {", to: "false {", test: "TestTowers"},
	}},
	{"jinja/load.go", []way{
		{from: "{\"tokenizer_config.json\", \"chat_template.json\"}", to: "{\"tokenizer_config.json\"}", test: "TestLoad"},
	}},
}
