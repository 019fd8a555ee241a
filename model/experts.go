package model

import (
	"slices"
	"strings"
)

// Limits on experts per layer (maxExperts) and per token (maxExpertsUsed), both with the shared
// expert, on experts of all layers (maxExpertsAll), and on groups of experts. They come from the
// device's router operation and from the number of parts that a parameter table can have.
const (
	maxExperts      = 1024
	maxExpertsUsed  = 32
	maxExpertsAll   = 1 << 17
	maxExpertGroups = 32
)

// expertKeys are the keys of config.json that Config.experts reads, and balanceKeys the keys that
// Config.balance reads.
var (
	expertKeys = append([]string{"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
		"decoder_sparse_step", "mlp_only_layers"}, balanceKeys...)
	balanceKeys = []string{"output_router_logits", "router_aux_loss_coef"}
)

// balance reads the keys of the auxiliary loss that balances the load of experts.
func (c *Config) balance(f *fields) {
	c.OutputRouterLogits = f.bool("output_router_logits", false)
	c.RouterAuxLossCoef = f.float("router_aux_loss_coef", 0.001, 0, 1e6)
}

func (c *Config) balanceJSON(m map[string]any) {
	m["output_router_logits"], m["router_aux_loss_coef"] = c.OutputRouterLogits, float(c.RouterAuxLossCoef)
}

// experts reads, in the keys of Qwen3-MoE's config, the number and size of experts and the blocks
// that have them. Source: arXiv:2505.09388; transformers.Qwen3MoeConfig.
func (c *Config) experts(f *fields) {
	key := "num_experts"
	if !f.has(key) {
		key = "num_local_experts"
	}
	c.NumExperts = f.int(key, 128, 0, maxExperts)
	c.NumExpertsPerTok = f.int("num_experts_per_tok", 8, 1, maxExpertsUsed)
	c.MoEIntermediateSize = f.int("moe_intermediate_size", 768, 1, maxFFN)
	c.NormTopKProb = f.bool("norm_topk_prob", false)
	c.DecoderSparseStep = f.int("decoder_sparse_step", 1, 1, maxLayers)
	c.MLPOnlyLayers = f.ints("mlp_only_layers", c.NumLayers-1)
	slices.Sort(c.MLPOnlyLayers)
	c.MLPOnlyLayers = slices.Compact(c.MLPOnlyLayers)
	c.balance(f)
	if n := f.int("num_local_experts", c.NumExperts, 0, maxExperts); n != c.NumExperts {
		f.fail("num_local_experts", "%d, and num_experts is %d; remove one of them", n, c.NumExperts)
	}
	c.expertBounds(f, key)
}

// expertBounds checks the numbers of experts against each other and against the limits. Errors name key, the key of
// config.json that has the number of experts.
func (c *Config) expertBounds(f *fields, key string) {
	if c.NumExperts > 0 && c.NumExpertsPerTok > c.NumExperts {
		f.fail("num_experts_per_tok", "%d of %d experts cannot be chosen", c.NumExpertsPerTok, c.NumExperts)
	}
	if c.AllExperts() > maxExperts {
		f.fail(key, "%d experts and a shared one are more than %d", c.NumExperts, maxExperts)
	}
	if c.AllChosen() > maxExpertsUsed {
		f.fail("num_experts_per_tok", "%d experts and a shared one are more than %d", c.NumExpertsPerTok, maxExpertsUsed)
	}
	if c.AllExperts()*(c.NumLayers+1) > maxExpertsAll { // a module for multi-token prediction may have experts too
		f.fail(key, "%d experts in %d layers are more than %d in all", c.AllExperts(), c.NumLayers, maxExpertsAll)
	}
}

// routedKeys are the keys of config.json that Config.routedExperts and Config.expertGroups read.
var routedKeys = []string{"n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
	"first_k_dense_replace", "n_group", "topk_group", "routed_scaling_factor", "output_router_logits", "topk_method", "scoring_func",
	"moe_layer_freq"}

// routedExperts reads the experts of DeepSeek's models and their successors: shared experts, dense
// first blocks and a factor on the chosen experts' weights. Argument scoring is the only accepted
// value of scoring_func, and methods are the accepted values of topk_method. The family's defaults
// must include all keys that are read here.
func (c *Config) routedExperts(f *fields, scoring string, methods ...string) {
	c.NumExperts = f.need("n_routed_experts", 1, maxExperts)
	c.NumExpertsPerTok = f.need("num_experts_per_tok", 1, maxExpertsUsed)
	c.MoEIntermediateSize = f.need("moe_intermediate_size", 1, maxFFN/maxExpertsUsed)
	c.SharedSize = f.need("n_shared_experts", 0, maxExpertsUsed) * c.MoEIntermediateSize
	c.RoutedScale = f.float("routed_scaling_factor", 1, 1e-6, 1e6)
	c.DecoderSparseStep = 1
	for b := range f.need("first_k_dense_replace", 0, c.NumLayers) {
		c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
	}
	c.expertBounds(f, "n_routed_experts")
	if is := f.str("topk_method", methods[0]); !slices.Contains(methods, is) {
		f.fail("topk_method", "%q is not supported; known: %s", is, strings.Join(methods, ", "))
	}
	if is := f.str("scoring_func", scoring); is != scoring {
		f.fail("scoring_func", "%q is not supported; known: %s", is, scoring)
	}
	if n := f.int("moe_layer_freq", 1, 1, maxLayers); n != 1 {
		f.fail("moe_layer_freq", "%d is not supported: every block has experts, or is one of the first", n)
	}
	c.noBalance(f)
}

// sigmoidKeys are the keys of config.json that Config.sigmoidExperts reads. They include the keys
// of multi-token prediction layers, which have no effect here.
var sigmoidKeys = slices.Concat(routedKeys, []string{"num_nextn_predict_layers", "num_mtp_layers"})

// sigmoidExperts reads the experts of DeepSeek-V3 and its successors. An expert's score is the
// sigmoid of its logit. A bias, added to the scores only for the choice, balances the load without
// a loss. A group of experts is ranked by the sum of its two best scores. Source: arXiv:2412.19437;
// transformers.DeepseekV3Config.
func (c *Config) sigmoidExperts(f *fields) {
	c.routedExperts(f, "sigmoid", "noaux_tc")
	c.SigmoidScores, c.ChoiceBias = true, true
	c.NormTopKProb = f.bool("norm_topk_prob", true)
	c.expertGroups(f, 2)
}

// expertGroups reads the groups of experts. A group's score is the sum of its best experts' scores;
// best is how many experts are summed. The router chooses experts only from the topk_group best
// groups. If topk_group covers all groups, the choice is free and the model gets no groups.
func (c *Config) expertGroups(f *fields, best int) {
	groups, open := f.int("n_group", 1, 1, maxExpertGroups), f.int("topk_group", 1, 1, maxExpertGroups)
	switch size := c.NumExperts / groups; {
	case open > groups:
		f.fail("topk_group", "%d of %d groups cannot be chosen", open, groups)
	case open == groups:
	case c.NumExperts%groups != 0 || size < best:
		f.fail("n_group", "%d experts are not %d groups of %d and more", c.NumExperts, groups, best)
	case c.NumExpertsPerTok > open*size:
		f.fail("num_experts_per_tok", "%d of the %d experts in %d groups cannot be chosen", c.NumExpertsPerTok, open*size, open)
	default:
		c.ExpertGroups, c.OpenGroups, c.GroupBest = groups, open, best
	}
}

func (c *Config) routedJSON(m map[string]any) {
	m["n_routed_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
	m["n_shared_experts"], m["norm_topk_prob"] = c.SharedSize/c.MoEIntermediateSize, c.NormTopKProb
	m["first_k_dense_replace"], m["routed_scaling_factor"] = len(c.MLPOnlyLayers), float(c.RoutedScale)
	m["n_group"], m["topk_group"] = max(1, c.ExpertGroups), max(1, c.OpenGroups)
}

func (c *Config) sigmoidJSON(m map[string]any) {
	c.routedJSON(m)
	m["num_nextn_predict_layers"] = c.Ahead
}

func (c *Config) expertsJSON(m map[string]any) {
	m["num_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
	m["norm_topk_prob"], m["decoder_sparse_step"] = c.NormTopKProb, c.DecoderSparseStep
	m["mlp_only_layers"] = append([]int{}, c.MLPOnlyLayers...)
	c.balanceJSON(m)
}

// expertsEverywhere is for classes of Transformers that always put experts into every block and always make the weights
// of the chosen experts sum to 1. It refuses a config that asks for anything else.
func (c *Config) expertsEverywhere(f *fields) {
	if !c.NormTopKProb {
		f.fail("norm_topk_prob", "false is not supported: the weights of an expert's choice are made to sum to 1 in %s", c.Arch)
	}
	if c.ExpertBlocks() != c.NumLayers {
		f.fail("num_experts", "blocks without experts (num_experts 0, decoder_sparse_step, mlp_only_layers) are not supported in %s", c.Arch)
	}
}

// expertsAndShared reads experts and a gated shared expert, in the keys of Qwen's configs.
func (c *Config) expertsAndShared(f *fields) {
	c.experts(f)
	if c.NumExperts > 0 {
		c.SharedSize, c.SharedGate = f.need("shared_expert_intermediate_size", 1, maxFFN), true
		c.expertBounds(f, "num_experts")
	}
}

// mlpTypes reads mlp_layer_types, which says for each block whether its MLP is dense or has experts ("sparse"). If it
// is missing, only the first block is dense.
func (c *Config) mlpTypes(f *fields) {
	const key, dense, sparse = "mlp_layer_types", "dense", "sparse"
	types := f.strs(key)
	if types != nil && len(types) != c.NumLayers {
		f.fail(key, "%d of them for %d layers", len(types), c.NumLayers)
		return
	}
	c.MLPOnlyLayers = []int{0}
	if types != nil {
		c.MLPOnlyLayers = nil
	}
	for b, t := range types {
		switch t {
		case dense:
			c.MLPOnlyLayers = append(c.MLPOnlyLayers, b)
		case sparse:
		default:
			f.fail(key, "layer %d is %q; known: %s, %s", b, t, dense, sparse)
		}
	}
	if n := f.int("first_k_dense_replace", 1, 0, c.NumLayers); types == nil && n != 1 {
		f.fail("first_k_dense_replace", "%d is not supported: Transformers' class reads %s in its place", n, key)
	}
}

func (c *Config) mlpTypesJSON(m map[string]any) {
	types := make([]string, c.NumLayers)
	for b := range types {
		if types[b] = "dense"; c.HasExperts(b) {
			types[b] = "sparse"
		}
	}
	delete(m, "first_k_dense_replace")
	m["mlp_layer_types"] = types
}

// biasedKeys are the keys of config.json that Config.biasedExperts reads.
var biasedKeys = []string{"num_experts", "num_experts_per_tok", "moe_intermediate_size", "num_shared_experts", "output_router_logits"}

// biasedExperts reads experts with at least one shared expert, as in HY 3. Scores are sigmoids, and
// a bias is added to the scores for the choice only. The chosen experts' weights are made to sum to
// 1 and then multiplied by a factor, which config.json has under the key named scale. The family's
// defaults must include all keys that are read here.
func (c *Config) biasedExperts(f *fields, scale string) {
	c.NumExperts = f.need("num_experts", 1, maxExperts)
	c.NumExpertsPerTok = f.need("num_experts_per_tok", 1, maxExpertsUsed)
	c.MoEIntermediateSize = f.need("moe_intermediate_size", 1, maxFFN/maxExpertsUsed)
	c.SharedSize = f.need("num_shared_experts", 1, maxExpertsUsed) * c.MoEIntermediateSize
	c.RoutedScale = f.float(scale, 1, 1e-6, 1e6)
	c.DecoderSparseStep, c.SigmoidScores, c.ChoiceBias, c.NormTopKProb = 1, true, true, true
	c.expertBounds(f, "num_experts")
	c.noBalance(f)
}

func (c *Config) biasedJSON(m map[string]any, scale string) {
	m["num_experts"], m["num_experts_per_tok"], m["moe_intermediate_size"] = c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize
	m["num_shared_experts"], m[scale] = c.SharedSize/c.MoEIntermediateSize, float(c.RoutedScale)
}
