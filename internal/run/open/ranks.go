package open

import "mt/internal/run/settings"

// This file checks what several ranks can do.

// checkRanks refuses what several ranks cannot do.
func (p *opening) checkRanks() error {
	t := p.Team
	if t.Size() == 1 {
		return nil
	}
	if settings.NSSteps(p.Config) > 0 {
		return p.Config.Errorf("optim", "optim: %s moves whole matrices, of which %d ranks have parts: train on one host, or with optim: adamw", p.Config.Optim, t.Size())
	}
	if len(p.Config.ParamDir) > 0 {
		return p.Config.Errorf("param_dir", "param_dir: each of %d ranks has all weights in memory: leave it out, or train on one host", t.Size())
	}
	if p.Config.Clip == "layerwise" && p.Model.TieEmbeddings {
		return p.Config.Errorf("clip", "clip: layerwise needs the gradient of the embedding and that of the head together where they share a table, and %d ranks exchange them apart: take clip: global", t.Size())
	}
	if _, n := t.Neighbours(); n > 1 {
		p.note("%d ranks are on this host: each takes 1/%d of its memory budget and of its CPU threads", n, n)
	}
	if rows := p.Config.RowsPerStep(); rows < t.Size() {
		p.note("a step has %d rows and there are %d ranks: some have nothing to compute", rows, t.Size())
	}
	return nil
}
