package train

// This file checks what several ranks can do.

// checkRanks refuses what several ranks cannot do.
func (j *opening) checkRanks() error {
	t := j.team
	if t.Size() == 1 {
		return nil
	}
	if nsSteps(j.c) > 0 && t.Size() > 1 {
		return j.c.Errorf("optim", "optim: %s moves whole matrices, of which %d ranks have parts: train on one host, or with optim: adamw", j.c.Optim, t.Size())
	}
	if len(j.c.ParamDir) > 0 && t.Size() > 1 {
		return j.c.Errorf("param_dir", "param_dir: each of %d ranks has all weights in memory: leave it out, or train on one host", t.Size())
	}
	if j.c.Clip == "layerwise" && j.model.TieEmbeddings && t.Size() > 1 {
		return j.c.Errorf("clip", "clip: layerwise needs the gradient of the embedding and that of the head together where they share a table, and %d ranks exchange them apart: take clip: global", t.Size())
	}
	if _, n := t.neighbours(); n > 1 {
		j.note("%d ranks are on this host: each takes 1/%d of its memory budget and of its CPU threads", n, n)
	}
	if rows := j.c.RowsPerStep(); rows < t.Size() {
		j.note("a step has %d rows and there are %d ranks: some have nothing to compute", rows, t.Size())
	}
	return nil
}
