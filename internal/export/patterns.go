package export

// pattern is a way of splitting text before byte pairs are merged: the regular
// expression in tokenizer.json and llama.cpp's name for it.
type pattern struct {
	regex string
	// name where the vocabulary's own tokens are taken whole before merging
	// (ignore_merges), and where they are not. llama.cpp's names say both.
	whole, merged string
}

// patterns are those of the families' tokenizers. Sources: the files
// tokenizer.json of the models, and llama_vocab_pre_type in llama.cpp's
// src/llama-vocab.cpp.
var patterns = []pattern{
	{ // Llama 3
		regex: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "llama-bpe", merged: "dbrx",
	},
	{ // cl100k as Phi-4 writes it; what it matches is what the one above does
		regex: `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
		whole: "llama-bpe", merged: "dbrx",
	},
	{ // Qwen 2, 2.5, 3
		regex: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "qwen2", merged: "qwen2",
	},
	{ // GPT-4o (o200k), Phi-4-mini
		regex: `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
			`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "gpt-4o", merged: "gpt-4o",
	},
	{ // Mistral's tekken
		regex: `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
			`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "tekken", merged: "tekken",
	},
	{ // GPT-2, as ByteLevel with use_regex has it built in
		regex: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		whole: "gpt-2", merged: "gpt-2",
	},
}

// gpt2 is the last of patterns.
var gpt2 = patterns[len(patterns)-1].regex

// preTokenizer is llama.cpp's name of how the tokenizer splits text, and false
// where it has none. Without merges nothing depends on it.
func (t *tokenizerFile) preTokenizer() (string, bool) {
	var regex []string
	bytes := false
	for _, step := range t.PreTokenizer.flat() {
		switch step.Type {
		case "Split":
			regex = append(regex, step.Pattern.Regex)
		case "ByteLevel":
			bytes = true
			if step.UseRegex == nil || *step.UseRegex {
				regex = append(regex, gpt2)
			}
			if step.AddPrefixSpace {
				return "", false
			}
		default:
			return "", false
		}
	}
	if !bytes {
		return "", false
	}
	if len(t.Model.Merges) == 0 {
		return "gpt-2", true
	}
	for _, p := range patterns {
		if len(regex) == 1 && regex[0] == p.regex {
			if t.Model.IgnoreMerges {
				return p.whole, true
			}
			return p.merged, true
		}
	}
	return "", false
}
