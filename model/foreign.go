package model

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"mt/base/files"
)

// Foreign recognises directories and files that are not in the format of save_pretrained, such as a
// LoRA adapter or a GGUF file. It returns text for an error, with advice. "": not recognised.
func Foreign(path string) string {
	if st, err := os.Stat(path); err == nil && !st.IsDir() {
		return foreignFile(path)
	}
	var names []string
	entries, _ := os.ReadDir(path)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	has := func(patterns ...string) string {
		for _, name := range names {
			for _, p := range patterns {
				if ok, _ := filepath.Match(p, strings.ToLower(name)); ok && !trainersState.MatchString(name) { // the patterns are well formed
					return name
				}
			}
		}
		return ""
	}
	switch {
	case has("adapter_config.json") != "":
		return "it holds a LoRA adapter of " + baseModel(path) + " (adapter_config.json), which is no model by itself: merge the two with peft's " +
			"merge_and_unload() and save_pretrained(DIR), and give that directory"
	case has("adapter_model.*") != "":
		return "it holds an adapter (" + has("adapter_model.*") + "), which is no model by itself: merge it into its base model, and give that directory"
	case has("*.gguf") != "":
		return foreignFile(has("*.gguf"))
	case has("params.json") != "":
		return "it holds params.json, which is how Mistral and Meta lay out their own files: take the model's directory in Hugging Face's layout, with config.json and " +
			"model*.safetensors, or convert it with Transformers' convert_*_weights_to_hf.py"
	case has("consolidated*.safetensors") != "":
		return "it holds " + has("consolidated*.safetensors") + ", the weights by Mistral's own names: take the model's model*.safetensors, in Hugging Face's layout"
	case has(pickled...) != "":
		return "it holds pickled weights (" + has(pickled...) + "), which are not read: save the model with save_pretrained(..., safe_serialization=True)"
	case has("*.safetensors", "*.safetensors.index.json") != "":
		return ""
	case has(otherWeights...) != "":
		return "it holds " + has(otherWeights...) + ", weights of another program: take the model's directory in Hugging Face's layout, with config.json and model*.safetensors"
	}
	return ""
}

var (
	// pickled are patterns for files of weights that torch.save writes; names are compared in lower case.
	pickled = []string{"pytorch_model*.bin", "consolidated*.pth", "*.pt", "*.pth", "*.ckpt"}
	// otherWeights are patterns for files of weights of TensorFlow, Flax, ONNX and MLX; names are compared in lower
	// case.
	otherWeights = []string{"*.h5", "*.msgpack", "*.onnx", "*.npz"}
)

// trainersState matches a trainer's own files that torch.save writes beside the weights.
var trainersState = regexp.MustCompile(`^(optimizer|scheduler|scaler|rng_state|training_args)[._]`)

// below looks for a config.json one directory further down, because dir has none. If exactly one such directory exists,
// it returns text for an error that names the directory; otherwise "".
func below(dir string) string {
	for _, pattern := range []string{"*", "snapshots/*"} { // the latter is the layout of the Hub's cache
		found, _ := filepath.Glob(filepath.Join(escaped(dir), pattern, "config.json")) // the patterns are well formed
		switch len(found) {
		case 0:
		case 1:
			return "the model is in " + filepath.Dir(found[0]) + ": give that directory"
		default:
			return fmt.Sprintf("models are in %s and %d more directories: give one of them", filepath.Dir(found[0]), len(found)-1)
		}
	}
	return ""
}

// foreignFile returns Foreign's words for a path that is a file, because a model is a directory.
func foreignFile(path string) string {
	name := filepath.Base(path)
	if strings.HasSuffix(strings.ToLower(name), ".gguf") {
		return name + " is a GGUF file, which is for llama.cpp, and mostly quantized: take the directory that it was made from, with config.json and model*.safetensors"
	}
	return name + " is a file: give the directory that holds config.json and model*.safetensors"
}

// baseModel returns the base model's name from adapter_config.json, which a LoRA adapter's
// directory has. If the file cannot be read or lacks the name, it returns "another model".
func baseModel(dir string) string {
	var f struct {
		Base string `json:"base_model_name_or_path"`
	}
	text, err := files.Read(filepath.Join(dir, "adapter_config.json"), 1<<20)
	if err != nil || json.Unmarshal(files.JSON(text), &f) != nil || f.Base == "" {
		return "another model"
	}
	return cut(f.Base)
}

// escaped returns a path whose special characters are escaped for filepath.Glob.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
