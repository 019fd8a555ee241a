package model

// Indexer chooses, for every query, the TopK keys with the largest index scores; attention reads no other keys. A score
// is the weighted sum of Heads products of HeadDim elements, without negative ones. A document of at most TopK tokens
// has all its keys chosen. Source: arXiv:2512.02556; transformers, modeling_glm_moe_dsa and modeling_deepseek_v32.
type Indexer struct {
	Heads, HeadDim, TopK int
	Interleaved          bool // the rotation pairs neighbouring elements, not halves
}

// indexerKeys are the keys of config.json that Config.indexerFields reads.
var indexerKeys = []string{"index_n_heads", "index_head_dim", "index_topk", "indexer_types", "index_topk_freq", "index_topk_pattern",
	"index_skip_topk_offset"}

// indexerFields reads the indexer of latent attention. The family's defaults must include its sizes. Indexers that
// several blocks share are an error.
func (c *Config) indexerFields(f *fields) {
	x := &Indexer{Heads: f.need("index_n_heads", 1, maxHidden), HeadDim: f.need("index_head_dim", 2, maxHeadDim),
		TopK: f.need("index_topk", 1, maxPositions)}
	c.MLA.Indexer = x
	if c.MLA.QRank == 0 {
		f.fail("q_lora_rank", "null: the indexer projects its queries from the latent vector of queries")
	}
	if x.HeadDim < c.MLA.RopeDim {
		f.fail("index_head_dim", "%d is less than qk_rope_head_dim, %d", x.HeadDim, c.MLA.RopeDim)
	}
	for b, t := range f.strs("indexer_types") {
		if t != "full" {
			f.fail("indexer_types", "layer %d is %q; only full is supported: every layer has an indexer of its own", b, t)
		}
	}
	if n := f.int("index_topk_freq", 1, 1, maxLayers); n != 1 {
		f.fail("index_topk_freq", "%d is not supported: every layer has an indexer of its own", n)
	}
	if f.has("index_topk_pattern") {
		f.fail("index_topk_pattern", "is not supported: every layer has an indexer of its own")
	}
}

func (c *Config) indexerJSON(m map[string]any) {
	x := c.MLA.Indexer
	m["index_n_heads"], m["index_head_dim"], m["index_topk"] = x.Heads, x.HeadDim, x.TopK
}

// indexer returns the parameters of the block's indexer; nil: the model has none.
func (n blockNames) indexer() []Param {
	l := n.c.MLA
	x := l.Indexer
	if x == nil {
		return nil
	}
	p := []Param{
		matrix(RoleIndexQ, l.QRank, n.stored(RoleIndexQ, x.Heads*x.HeadDim)),
		matrix(RoleIndexK, n.c.HiddenSize, n.stored(RoleIndexK, x.HeadDim)),
		vector(RoleIndexKNorm, n.stored(RoleIndexKNorm, x.HeadDim)),
		vector(RoleIndexKNormBias, n.stored(RoleIndexKNormBias, x.HeadDim)),
		matrix(RoleIndexWeights, n.c.HiddenSize, n.stored(RoleIndexWeights, x.Heads)),
	}
	for i := range p {
		p[i].Frozen = true
	}
	return p
}

// InIndexer says that p belongs to an indexer, which runs in the forward alone and, if no document is longer than TopK,
// not at all. FLOPs do not count it.
func (p Param) InIndexer() bool {
	switch p.Role {
	case RoleIndexQ, RoleIndexK, RoleIndexKNorm, RoleIndexKNormBias, RoleIndexWeights:
		return true
	}
	return false
}

// Chooses says whether an indexer chooses the keys of a document of this many tokens.
func (c *Config) Chooses(tokens int) bool {
	return c.MLA != nil && c.MLA.Indexer != nil && tokens > c.MLA.Indexer.TopK
}
