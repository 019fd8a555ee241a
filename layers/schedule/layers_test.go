package schedule

// This file makes layers with the visits of real layers. Package layers tests that its kinds give the same visits.

// passed returns a layer that every pass visits once, such as a dense block.
func passed(stage Stage, class Class, forward, backward Uses) Layer {
	up := []Visit{{Stage: stage, Parts: 1, Uses: forward}}
	return Layer{Tiles: 1, Sweeps: 1, Class: class, Forward: up, Evaluate: up, Backward: []Visit{{Stage: stage, Parts: 1, Uses: backward}}}
}

func embedding() Layer { return passed(Embed, NoSlot, Output, AccumulatesGrad|UpdatesGradInPlace) }

func block() Layer {
	return passed(Block, Streamed, Weights|Input|Output, Weights|AccumulatesGrad|Input|UpdatesGradInPlace)
}

// routed returns a layer with experts.
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

// head returns a head in parts.
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

// dense returns n layers without experts, the last one in parts.
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
