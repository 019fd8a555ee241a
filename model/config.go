package model

// Rope describes the rotary embedding (arXiv:2104.09864).
type Rope struct {
	Type                 string // "default", "llama3"
	Theta                float64
	Factor               float64 // llama3
	LowFreqFactor        float64 // llama3
	HighFreqFactor       float64 // llama3
	OriginalMaxPositions int     // llama3
}

// Config is an architecture of the Llama family in the terms of config.json.
type Config struct {
	Arch             string // "LlamaForCausalLM"
	ModelType        string // "llama", "qwen2", "qwen3"
	VocabSize        int
	HiddenSize       int
	IntermediateSize int
	NumLayers        int
	NumHeads         int
	NumKVHeads       int
	HeadDim          int
	MaxPositions     int
	RMSNormEps       float32
	Rope             Rope
	TieEmbeddings    bool
	QKVBias          bool
	OBias            bool
	MLPBias          bool
	QKNorm           bool
	InitializerRange float64
	BOS, EOS, PAD    []int // token ids, empty where config.json has none

	source source // config.json as it was read; empty for an inline config
}
