package train

import (
	"path/filepath"
	"slices"

	"mt/checkpoint"
)

// startFound is what rank 0 tells of where the run begins.
type startFound struct {
	Dir    string                  `json:"dir"` // empty: from the start
	State  checkpoint.TrainerState `json:"state"`
	End    checkpoint.TrainerState `json:"end"`
	Other  bool                    `json:"other"`
	Ended  bool                    `json:"ended"`
	Config []byte                  `json:"config"`
}

// agreeOnStart is, on all ranks, where rank 0 has found that the run begins.
func (j *finding) agreeOnStart(r resume) (resume, error) {
	t := j.team
	if t.Size() == 1 {
		return r, nil
	}
	all, err := tell(t, "where the run begins", startFound{Dir: r.dir, State: r.state, End: r.end, Other: r.other, Ended: r.ended, Config: r.config})
	if err != nil {
		return resume{}, err
	}
	if !t.first() {
		f := all[0]
		r = resume{dir: f.Dir, state: f.State, end: f.End, other: f.Other, ended: f.Ended, config: f.Config}
	}
	if r.dir == "" || r.ended {
		return r, nil
	}
	err = j.sight(&r)
	if r.sent && t.first() {
		j.note("not all ranks see %s: rank 0 reads it and sends the others what they need of it", r.dir)
	}
	return r, err
}

// inside is dir as seen from output_dir; empty where it lies elsewhere.
func (j *Inputs) inside(dir string) string {
	if rel, err := filepath.Rel(j.c.OutputDir, dir); err == nil && dir != "" && filepath.IsLocal(rel) {
		return rel
	}
	return ""
}

// sight finds out whether all ranks see the checkpoint r.dir of rank 0, each in its output_dir where
// it lies in that of rank 0. It sets r.local and r.sent.
func (j *Inputs) sight(r *resume) error {
	type seen struct{ Inside, Digest string }
	first, err := tell(j.team, "the name of the checkpoint", seen{j.inside(r.dir), checkpoint.Digest(r.dir)})
	if err != nil {
		return err
	}
	r.local = r.dir
	if in := first[0].Inside; in != "" {
		r.local = filepath.Join(j.c.OutputDir, in)
	}
	all, err := tell(j.team, "the sight of the checkpoint", checkpoint.Digest(r.local) == first[0].Digest)
	r.sent = slices.Contains(all, false)
	return err
}
