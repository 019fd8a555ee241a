package model

func init() {
	register(family{
		arch: "Mistral3ForConditionalGeneration", modelType: "mistral3",
		// Published files have tie_word_embeddings nowhere; their class ties embeddings where there is no head.
		nested:   &nested{key: "text_config", types: []string{"mistral"}, alone: "mistral", topTies: true, headTells: true},
		prefixes: towerPrefixes,
		defaults: map[string]any{"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
			"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": 4096,
			"bos_token_id": 1, "eos_token_id": 2},
		keys:    []string{"sliding_window", "layer_types"},
		options: (*Config).uniformWindow,
	})
}

// towerPrefixes are those of models whose vision tower is beside the language model: the Hub's files have the first,
// Transformers 5 has the second.
var towerPrefixes = []prefix{{"language_model.model.", "language_model.lm_head."}, {"model.language_model.", "lm_head."}}
