package model

import (
	"fmt"
	"strconv"
	"strings"
)

// Layers returns the parameter table: the embedding, learned positions if there are any, the decoder blocks and the
// head. A block with experts is two layers, Attention and MoE. A block that has only one of these halves (Config.Alone)
// is one layer.
func (c *Config) Layers() []Layer {
	var out []Layer
	add := func(l Layer) {
		l.Index = len(out)
		c.frozen(l.Params)
		c.grouped(l.Params)
		out = append(out, l)
	}
	add(Layer{Kind: Embedding, Params: []Param{c.EmbedParam()}})
	if c.LearnedPositions {
		add(Layer{Kind: Positions, Params: []Param{matrix(RolePositions, c.HiddenSize, stack(c.outer(RolePositions), c.MaxPositions))}})
	}
	if c.PerLayerSize > 0 {
		add(Layer{Kind: PerLayer, Params: c.perLayerInputs()})
	}
	for b := range c.Blocks() {
		if b == c.NumLayers {
			add(c.aheadInput())
		}
		n := blockNames{c, b}
		if kind := c.FirstLayer(b); c.HasMLP(b) {
			add(Layer{Kind: kind, Block: b, Params: append(n.attention(), n.mlp()...)})
		} else if c.Mixes(b) {
			add(Layer{Kind: kind, Block: b, Params: n.attention()})
		}
		if !c.HasExperts(b) {
			continue
		}
		moe := n.router()
		for e := range c.AllExperts() {
			moe = append(moe, n.expert(e)...)
		}
		add(Layer{Kind: MoE, Block: b, Params: moe})
	}
	if c.Ahead > 0 {
		add(c.aheadNorm())
	}
	add(c.headLayer())
	return out
}

// perLayerInputs returns the parameters of the layer that computes the per-layer inputs of all blocks; nil: there are
// none.
func (c *Config) perLayerInputs() []Param {
	if c.PerLayerSize == 0 {
		return nil
	}
	width := c.NumLayers * c.PerLayerSize
	return []Param{matrix(RolePerLayerTable, width, stack(c.outer(RolePerLayerTable), c.PerLayerVocab)),
		matrix(RolePerLayerProj, c.HiddenSize, stack(c.outer(RolePerLayerProj), width)),
		vector(RolePerLayerNorm, stack(c.outer(RolePerLayerNorm), c.PerLayerSize))}
}

func (c *Config) headLayer() Layer {
	l := Layer{Kind: Head, Tied: c.TieEmbeddings}
	if c.Ahead == 0 {
		l.Params = []Param{vector(RoleFinalNorm, stack(c.outer(RoleFinalNorm), c.HiddenSize))}
	}
	if c.NormBias {
		l.Params = append(l.Params, vector(RoleFinalNormBias, stack(c.outer(RoleFinalNormBias), c.HiddenSize)))
	}
	if c.HeadBias {
		l.Params = append(l.Params, vector(RoleLMHeadBias, stack([]string{c.names().head + "bias"}, c.VocabSize)))
	}
	if !c.TieEmbeddings {
		p := matrix(RoleLMHead, c.HiddenSize, stack([]string{c.names().head + "weight"}, c.VocabSize))
		c.repeated(&p)
		l.Params = append(l.Params, p)
	}
	return l
}

// Layouts returns the memory layout of every layer. bf16 is as in NewLayout.
func (c *Config) Layouts(bf16 bool) []Layout {
	var out []Layout
	for _, l := range c.Layers() {
		out = append(out, NewLayout(l, bf16, c.EmbedParam()))
	}
	return out
}

// EmbedParam returns the parameter of the embedding table (VocabSize, HiddenSize).
func (c *Config) EmbedParam() Param {
	p := []Param{matrix(RoleEmbed, c.HiddenSize, stack(c.outer(RoleEmbed), c.VocabSize))}
	c.frozen(p)
	c.grouped(p)
	c.repeated(&p[0])
	return p[0]
}

// outer returns the full tensor names of role r, for a role that is not in a block, such as the
// embedding.
func (c *Config) outer(r Role) (names []string) {
	for _, s := range c.tensorNames(r) {
		names = append(names, c.names().model+s)
	}
	return names
}

// blockNames builds the parameters of one decoder block, with shapes and the family's tensor names.
type blockNames struct {
	c     *Config
	block int
}

// prefix returns the beginning that all tensor names of the block share, such as "model.layers.0.".
func (n blockNames) prefix() string {
	blocks := "layers."
	if n.block >= n.c.NumLayers && n.c.Ahead > 0 && n.c.familyOf().ahead.block != "" {
		return n.c.familyOf().ahead.block
	}
	if f := n.c.family; f != nil && f.blocks != "" {
		blocks = f.blocks
	}
	return fmt.Sprintf("%s%s%d.", n.c.names().model, blocks, n.block)
}

// stored returns the tensors of role r; rows has the number of rows of each, in order. If the family has one name for
// all of them, the result is one tensor with all rows.
func (n blockNames) stored(r Role, rows ...int) []Stored {
	return n.place(r, 0, stack(n.named(r), rows...))
}

// ofExpert returns the tensors of role r for expert e; rows has the number of rows of each.
func (n blockNames) ofExpert(e int, r Role, rows ...int) []Stored {
	names := n.named(r)
	for i := range names {
		names[i] = strings.Replace(names[i], expertNumber, strconv.Itoa(e), 1)
	}
	return n.place(r, e, stack(names, rows...))
}

// named returns the full names of the block's tensors of role r.
func (n blockNames) named(r Role) (names []string) {
	for _, s := range n.c.tensorNames(r) {
		names = append(names, n.prefix()+s)
	}
	return names
}

// attention returns the parameters of the block's first half: attention or a recurrence, with the norm before it.
func (n blockNames) attention() []Param {
	c := n.c
	heads := c.Heads(n.block)
	h, q, kv := c.HiddenSize, c.NumHeads*heads.Dim, heads.KV*heads.Dim
	if c.IsRecurrent(n.block) {
		return append(n.norm(RoleAttnNorm, RoleAttnNormBias), c.Recurrence().params(n)...)
	}
	var p []Param
	if !c.Mixes(n.block) {
		return nil
	}
	if c.NormsInputs() {
		p = n.norm(RoleAttnNorm, RoleAttnNormBias)
	}
	if c.MLA != nil {
		p = append(p, n.mla()...)
	} else {
		p = append(p, matrix(RoleQKV, h, n.queries(RoleQKV, q, kv)))
	}
	if c.QKVBias {
		p = append(p, vector(RoleQKVBias, n.queries(RoleQKVBias, q, kv)))
	}
	if c.QKNorm && !c.QKNormPlain {
		ofQ, ofK := heads.Dim, heads.Dim
		if c.QKNormWhole {
			ofQ, ofK = q, kv
		}
		if p = append(p, vector(RoleQNorm, n.stored(RoleQNorm, ofQ))); !heads.Shared {
			p = append(p, vector(RoleKNorm, n.stored(RoleKNorm, ofK)))
		}
	}
	if c.Sinks {
		p = append(p, vector(RoleSinks, n.stored(RoleSinks, c.NumHeads)))
	}
	p = append(p, matrix(RoleO, c.OutputCols(n.block), n.stored(RoleO, h)))
	if c.Beside {
		p = append(p, c.Mamba2.params(n)...)
	}
	if c.OBias {
		p = append(p, vector(RoleOBias, n.stored(RoleOBias, h)))
	}
	if c.NormsOutputs() {
		p = append(p, vector(RolePostAttnNorm, n.stored(RolePostAttnNorm, h)))
	}
	return p
}

// norm returns the parameters of a norm of the hidden state: its weight and, if the model's norms have one, its bias.
// weight and bias are their roles.
func (n blockNames) norm(weight, bias Role) []Param {
	p := []Param{vector(weight, n.stored(weight, n.c.HiddenSize))}
	if n.c.NormBias {
		p = append(p, vector(bias, n.stored(bias, n.c.HiddenSize)))
	}
	return p
}

// mlp returns the parameters of a dense block's second half: the MLP, with the norm before it.
func (n blockNames) mlp() []Param {
	c := n.c
	h, f := c.HiddenSize, c.MLPSize(n.block)
	var p []Param
	if c.NormsInputs() && !c.SharedNorm {
		p = n.norm(RoleMLPNorm, RoleMLPNormBias)
	}
	up, bias, rows := RoleGateUp, RoleGateUpBias, []int{f, f}
	if c.Ungated {
		up, bias, rows = RoleUp, RoleUpBias, []int{f}
	}
	p = append(p, matrix(up, h, n.stored(up, rows...)))
	if c.MLPBias {
		p = append(p, vector(bias, n.stored(bias, rows...)))
	}
	if c.Activation == XIELU {
		p = append(p, vector(RoleXIELU, n.stored(RoleXIELU, 1, 1)))
	}
	p = append(p, matrix(RoleDown, f, n.stored(RoleDown, h)))
	if c.MLPBias {
		p = append(p, vector(RoleDownBias, n.stored(RoleDownBias, h)))
	}
	if c.NormsOutputs() {
		p = append(p, vector(RolePostMLPNorm, n.stored(RolePostMLPNorm, h)))
	}
	if per := c.PerLayerSize; per > 0 {
		p = append(p, matrix(RolePerLayerGate, h, n.stored(RolePerLayerGate, per)), matrix(RolePerLayerOut, per, n.stored(RolePerLayerOut, h)),
			vector(RolePerLayerPostNorm, n.stored(RolePerLayerPostNorm, h)))
	}
	return append(p, n.layerScalar()...)
}

// layerScalar returns the parameter that multiplies the block's output; nil: blocks have none.
func (n blockNames) layerScalar() []Param {
	if !n.c.LayerScalar {
		return nil
	}
	p := vector(RoleLayerScalar, n.stored(RoleLayerScalar, 1))
	p.Frozen = true
	return []Param{p}
}

// router returns the parameters of part 0 of a MoE layer: the router, the norm before it and a dense MLP beside the
// experts, if there is one.
func (n blockNames) router() []Param {
	h, experts := n.c.HiddenSize, n.c.NumExperts
	stored := n.stored(RoleRouter, experts)
	if n.c.SharedGate {
		stored = append(stored, Stored{Name: n.stored(RoleSharedGate, 1)[0].Name, Row: experts, Rows: 1})
	}
	router := matrix(RoleRouter, h, stored)
	router.F32 = true
	if n.c.DenseBesideExperts {
		p := append(n.mlp(), router)
		for _, r := range [...]Role{RoleRouterNorm, RoleExpertNorm, RolePostDenseNorm, RolePostExpertNorm} {
			p = append(p, vector(r, n.stored(r, h)))
		}
		return append(p, vector(RoleExpertScales, n.stored(RoleExpertScales, experts)))
	}
	p := append(n.norm(RoleMLPNorm, RoleMLPNormBias), router)
	if n.c.RouterBias {
		p = append(p, vector(RoleRouterBias, n.stored(RoleRouterBias, experts)))
	}
	if n.c.ChoiceBias {
		bias := vector(RoleChoiceBias, n.stored(RoleChoiceBias, experts))
		bias.SavedF32, bias.Frozen = true, true
		p = append(p, bias)
	}
	if n.c.NormsExperts() {
		p = append(p, vector(RolePostMLPNorm, n.stored(RolePostMLPNorm, h)))
	}
	return p
}

// expert returns the parameters of expert e, which is part 1+e of a MoE layer. Part 0 is the router.
func (n blockNames) expert(e int) []Param {
	h, f := n.c.HiddenSize, n.c.ExpertSize(e)
	stored := func(routed, shared Role, rows ...int) []Stored {
		if e == n.c.NumExperts {
			return n.stored(shared, rows...)
		}
		return n.ofExpert(e, routed, rows...)
	}
	up := []int{f, f}
	if n.c.Ungated {
		up = up[:1]
	}
	p := []Param{matrix(RoleExpertGateUp, h, stored(RoleExpertGateUp, RoleSharedGateUp, up...)),
		matrix(RoleExpertDown, f, stored(RoleExpertDown, RoleSharedDown, h))}
	if shared := e == n.c.NumExperts; shared && n.c.SharedBias || !shared && n.c.ExpertBias {
		p = append(p, vector(RoleExpertGateUpBias, stored(RoleExpertGateUpBias, RoleSharedGateUpBias, up...)),
			vector(RoleExpertDownBias, stored(RoleExpertDownBias, RoleSharedDownBias, h)))
	}
	for i := range p {
		p[i].Part = 1 + e
	}
	return p
}

// stack makes one Stored for each name. The numbers of rows are in rows; the tensors lie one below
// the other in the parameter. A single name stands for one tensor with all rows.
func stack(names []string, rows ...int) []Stored {
	if len(names) == 1 {
		sum := 0
		for _, n := range rows {
			sum += n
		}
		rows = []int{sum}
	}
	out := make([]Stored, 0, len(rows))
	row := 0
	for i, n := range rows {
		out = append(out, Stored{Name: names[i], Row: row, Rows: n})
		row += n
	}
	return out
}

func matrix(r Role, cols int, ps []Stored) Param {
	last := ps[len(ps)-1]
	return Param{Role: r, Rows: last.Row + last.Rows, Cols: cols, Dims: 2, Stored: ps}
}

func vector(r Role, ps []Stored) Param {
	p := matrix(r, 1, ps)
	p.Dims = 1
	return p
}

// counts has two numbers of parameters: all, and the ones in matrix products.
type counts struct{ all, matrix int64 }

func count(ps []Param) counts {
	var n counts
	for _, p := range ps {
		n.all += p.Elems()
		if p.Dims == 2 && !p.InIndexer() {
			n.matrix += p.Elems()
		}
	}
	return n
}

// Params returns the number of parameters; a tied tensor counts once. It counts one block of each
// kind instead of building the whole parameter table.
func (c *Config) Params() int64 {
	n := blockNames{c, 0}
	moe, experts := int64(c.ExpertBlocks()), int64(c.NumExperts)
	head := c.headLayer()
	sum := head.Elems() + c.EmbedParam().Elems() + c.firstHalves().all + count(c.perLayerInputs()).all
	if c.LearnedPositions {
		sum += int64(c.MaxPositions) * int64(c.HiddenSize)
	}
	sum += c.mlps().all + c.aheadParams().all
	if moe > 0 {
		sum += moe * (count(n.router()).all + experts*count(n.expert(0)).all + n.sharedExpert().all)
	}
	return sum
}

// MatrixParams returns the number of parameters in the matrix products that one token passes. In a block with
// experts these are the router, NumExpertsPerTok experts and the shared one. The lm_head counts, tied or not; the
// embedding lookup does not.
func (c *Config) MatrixParams() int64 {
	n := blockNames{c, 0}
	moe := int64(c.ExpertBlocks())
	sum := int64(c.Streams())*int64(c.VocabSize)*int64(c.HiddenSize) + c.firstHalves().matrix
	sum += c.mlps().matrix + c.aheadParams().matrix
	sum += int64(c.NumLayers) * int64(c.PerLayerSize) * int64(c.HiddenSize)
	if moe > 0 {
		sum += moe * (count(n.router()).matrix + int64(c.NumExpertsPerTok)*count(n.expert(0)).matrix + n.sharedExpert().matrix)
	}
	return sum
}

// aheadParams counts the parameters of multi-token prediction outside of its block. The final norm counts in the head's
// place.
func (c *Config) aheadParams() counts {
	if c.Ahead == 0 {
		return counts{}
	}
	return count(append(c.aheadInput().Params, c.aheadNorm().Params...))
}

// mlps counts the parameters of all dense MLPs. The MLPs of the last Config.SharedKV blocks may be wider.
func (c *Config) mlps() (sum counts) {
	of := map[int]counts{} // by width
	for b := range c.Blocks() {
		if !c.HasMLP(b) {
			continue
		}
		n, known := of[c.MLPSize(b)]
		if !known {
			n = count(blockNames{c, b}.mlp())
			of[c.MLPSize(b)] = n
		}
		sum.all, sum.matrix = sum.all+n.all, sum.matrix+n.matrix
	}
	return sum
}

// firstHalves counts the parameters in the first halves of all blocks. Blocks whose attention has the same heads have
// equal counts, and so do all blocks with a recurrence, so one block of each kind is counted.
func (c *Config) firstHalves() (sum counts) {
	type half struct {
		recurrent bool
		heads     Heads
	}
	of := map[half]counts{}
	for b := range c.Blocks() {
		if !c.Mixes(b) {
			continue
		}
		kind := half{c.IsRecurrent(b), c.Heads(b)}
		n, known := of[kind]
		if !known {
			n = count(blockNames{c, b}.attention())
			of[kind] = n
		}
		sum.all, sum.matrix = sum.all+n.all, sum.matrix+n.matrix
	}
	return sum
}

// sharedExpert counts the parameters of the block's shared expert; zero if there is none.
func (n blockNames) sharedExpert() counts {
	if n.c.SharedSize == 0 {
		return counts{}
	}
	return count(n.expert(n.c.NumExperts))
}

// AttendedPairs returns how many (query, key) pairs a document of length tokens has in all blocks together.
func (c *Config) AttendedPairs(length int) (n int64) {
	for block := range c.Blocks() {
		n += c.BlockPairs(block, length)
	}
	return n
}

// BlockPairs returns how many (query, key) pairs a document of length tokens has in one block. Without a window,
// chunks and an indexer these are n(n+1)/2; a gated delta net has none. In blocks whose heads have GlobalHeadDim elements a pair
// counts GlobalHeadDim/HeadDim times, because it takes that many times the FLOPs.
func (c *Config) BlockPairs(block, length int) int64 {
	if c.IsRecurrent(block) || !c.Mixes(block) {
		return 0
	}
	if size := c.AttentionChunk(block); size > 0 && length > size {
		return int64(length/size)*c.BlockPairs(block, size) + c.BlockPairs(block, length%size)
	}
	n, w := int64(length), int64(length)
	if window := c.Window(block); window > 0 {
		w = min(n, int64(window))
	}
	if c.Chooses(length) {
		w = int64(c.MLA.Indexer.TopK)
	}
	n = w*(w+1)/2 + (n-w)*w
	if d := c.Heads(block).Dim; d != c.HeadDim {
		n = n * int64(d) / int64(c.HeadDim)
	}
	return n
}

// FLOPs returns the training FLOPs of the given tokens, forward and backward. pairs counts the attended (query,
// key) pairs of all blocks. A token takes 6·MatrixParams and a pair 3·PairFLOPs, less if tensors are frozen.
// Recomputation is not included.
func (c *Config) FLOPs(tokens, pairs int64) float64 {
	return c.ForwardFLOPs(tokens, pairs) + c.BackwardFLOPs(tokens, pairs)
}

// ForwardFLOPs returns the forward part of FLOPs: a third, if nothing is frozen.
func (c *Config) ForwardFLOPs(tokens, pairs int64) float64 {
	recurrences := float64(int64(c.recurrences()) * c.RecurrenceFLOPs())
	return (2*float64(c.MatrixParams())+recurrences)*float64(tokens) + c.PairFLOPs()*float64(pairs)
}

// QKVProducts returns the multiply-adds per token of the projections at the start of a block's attention: queries,
// keys, values, and gates if there are any.
func (c *Config) QKVProducts(block int) (sum int64) {
	for _, p := range (blockNames{c, block}).attention() {
		if p.Dims == 2 && p.Role != RoleO && p.Role != RoleRecurOut && !p.InIndexer() {
			sum += p.Elems()
		}
	}
	return sum
}
