package schedule

// This file makes layers for tests, with the visits that real layers have. Package layers tests
// that its kinds give the same visits.

// passed returns a layer that every pass visits once, such as a dense block. forward and backward
// say what the visits use.
func passed(stage Stage, class Class, forward, backward Uses) Layer {
	up := []Visit{{Stage: stage, Parts: 1, Uses: forward}}
	return Layer{Tiles: 1, Sweeps: 1, Class: class, Forward: up, Evaluate: up, Backward: []Visit{{Stage: stage, Parts: 1, Uses: backward}}}
}

func embedding() Layer { return passed(Embed, NoSlot, Output, AccumulatesGrad|UpdatesGradInPlace) }

func block() Layer {
	return passed(Block, Streamed, Weights|Input|Output, Weights|AccumulatesGrad|Input|UpdatesGradInPlace)
}

// routed returns a layer with a router and this number of experts.
func routed(experts int) Layer {
	up, down := []Visit{{Stage: Route, Uses: Weights | Input}}, []Visit{{Stage: Route, Turn: 1, Uses: Weights | Input | ReadsGrad}}
	for k := range experts {
		up = append(up, Visit{Stage: Expert, Part: 1 + k, Uses: Weights})
		down = append(down, Visit{Stage: Expert, Part: experts - k, Uses: Weights | AccumulatesGrad})
	}
	up = append(up, Visit{Stage: Combine, Turn: 1, Uses: Output})
	down = append(down, Visit{Stage: Combine, Uses: Weights | AccumulatesGrad | Input | UpdatesGradInPlace})
	return Layer{Tiles: 1 + experts, Sweeps: 2, Forward: up, Backward: down, Evaluate: up}
}

// head returns a head with this number of parts; 1: a whole head.
func head(parts int) Layer {
	if parts == 1 {
		l := passed(Head, Whole, Weights|Input, Weights|AccumulatesGrad|UpdatesGradInPlace)
		l.Forward, l.Evaluate[0].Loss, l.Backward[0].Loss = nil, true, true
		return l
	}
	l := Layer{Tiles: parts, Sweeps: parts}
	for k := range parts {
		l.Forward = append(l.Forward, Visit{Stage: HeadPart, Part: k, Parts: parts, Turn: k, Uses: Weights | Input, Loss: k == parts-1})
		back := parts - 1 - k
		l.Backward = append(l.Backward, Visit{Stage: HeadPart, Part: back, Parts: parts, Turn: back, Uses: Weights | AccumulatesGrad | Input | UpdatesGradInPlace})
	}
	l.Backward[0].Uses = Weights | AccumulatesGrad | Input | AllocatesGrad
	l.Evaluate = l.Forward
	return l
}

// dense returns n layers without experts: embedding, blocks, and a head with this number of parts.
func dense(n, parts int) []Layer {
	out := []Layer{embedding()}
	for range n - 2 {
		out = append(out, block())
	}
	return append(out, head(parts))
}

// withExperts returns the layers of a model whose blocks have experts.
func withExperts(blocks, experts int) []Layer {
	out := []Layer{embedding()}
	for range blocks {
		out = append(out, block(), routed(experts))
	}
	return append(out, head(1))
}
