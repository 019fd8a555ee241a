package resume

import (
	"path/filepath"
	"slices"

	"mt/checkpoint"
	"mt/internal/run/open"
	"mt/internal/run/team"
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
func (fd *finding) agreeOnStart(r Point) (Point, error) {
	t := fd.Team
	if t.Size() == 1 {
		return r, nil
	}
	all, err := team.Tell(t, "where the run begins", startFound{Dir: r.Dir, State: r.State, End: r.end, Other: r.Other, Ended: r.Ended, Config: r.config})
	if err != nil {
		return Point{}, err
	}
	if !t.First() {
		f := all[0]
		r = Point{Dir: f.Dir, State: f.State, end: f.End, Other: f.Other, Ended: f.Ended, config: f.Config}
	}
	if r.Dir == "" || r.Ended {
		return r, nil
	}
	err = r.Sight(fd.Inputs)
	if r.Sent && t.First() {
		fd.note("not all ranks see %s: rank 0 reads it and sends the others what they need of it", r.Dir)
	}
	return r, err
}

// inside is dir as seen from output_dir; empty where it lies elsewhere.
func inside(out, dir string) string {
	if rel, err := filepath.Rel(out, dir); err == nil && dir != "" && filepath.IsLocal(rel) {
		return rel
	}
	return ""
}

// Sight finds out whether all ranks see the checkpoint r.Dir of rank 0, each in its output_dir where
// it lies in that of rank 0. It sets r.Local and r.Sent.
func (r *Point) Sight(in *open.Inputs) error {
	type seen struct{ Inside, Digest string }
	first, err := team.Tell(in.Team, "the name of the checkpoint", seen{inside(in.Config.OutputDir, r.Dir), checkpoint.Digest(r.Dir)})
	if err != nil {
		return err
	}
	r.Local = r.Dir
	if rel := first[0].Inside; rel != "" {
		r.Local = filepath.Join(in.Config.OutputDir, rel)
	}
	all, err := team.Tell(in.Team, "the sight of the checkpoint", checkpoint.Digest(r.Local) == first[0].Digest)
	r.Sent = slices.Contains(all, false)
	return err
}
