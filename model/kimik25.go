package model

// Kimi-K2.5 has DeepSeek-V3's language model beside a vision tower. Published files name the class
// KimiK25ForConditionalGeneration and the language model kimi_k2. The class of Transformers 5.24 saves blocks of the
// language model as language_model.model.blocks, a name of its tower, which no published directory has.
// Source: transformers.Kimi_K25Config.
func init() {
	beside := deepseek3
	beside.arch, beside.modelType, beside.otherTypes = "Kimi_K25ForConditionalGeneration", "kimi_k25", nil
	beside.nested = &nested{key: "text_config", types: append([]string{deepseek3.modelType}, deepseek3.otherTypes...), alone: deepseek3.modelType, topTies: true, headTells: true}
	beside.prefixes = towerPrefixes
	beside.write = nil
	register(beside)
}
