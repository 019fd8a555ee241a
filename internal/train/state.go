package train

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"mt/actors"
	"mt/checkpoint"
	"mt/internal/config"
)

// resume is where a run goes on from.
type resume struct {
	dir   string // empty: from the start
	state checkpoint.TrainerState
}

// configFile is the resolved configuration in an output directory and in every
// checkpoint.
const configFile = "config.yaml"

// findResume looks for the checkpoint that c says to go on from. It must come
// before the plan: what an earlier run resolved is kept.
func (j *job) findResume() (r resume, err error) {
	c := j.c
	switch c.Resume {
	case "false":
		if old, _ := filepath.Glob(filepath.Join(c.OutputDir, "checkpoint-*[0-9]")); len(old) > 0 { // the only error is that of a bad pattern
			j.note("%s holds checkpoints of an earlier run, such as %s; resume_from_checkpoint: auto will go on from the highest step of all: "+
				"remove them, or choose another output_dir", c.OutputDir, filepath.Base(old[0]))
		}
		return r, nil
	case "auto", "true":
		var skipped []checkpoint.Skipped
		r.dir, r.state, skipped, err = checkpoint.Latest(c.OutputDir)
		if errors.Is(err, os.ErrNotExist) {
			return resume{}, nil
		}
		if err != nil {
			return resume{}, err
		}
		for _, s := range skipped {
			j.note("checkpoint %s is skipped: %s", s.Dir, s.Why)
			if r.dir == "" && !s.Unfinished {
				return resume{}, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: no checkpoint in %s is valid: %s: %s; "+
					"restore one, choose another output_dir, or set resume_from_checkpoint: false to start afresh", c.OutputDir, s.Dir, s.Why)
			}
		}
		if r.dir == "" {
			return resume{}, nil
		}
	default:
		r.dir = c.Resume
		if _, err = os.Stat(r.dir); err == nil {
			err = checkpoint.Verify(r.dir)
		}
		if err == nil {
			r.state, err = checkpoint.ReadState(r.dir)
		}
		if err != nil {
			return r, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %w; give a directory checkpoint-N, or auto", err)
		}
	}
	return r, j.matchResume(r)
}

// matchResume keeps what the run of the checkpoint resolved, and refuses to go
// on where the two runs differ.
func (j *job) matchResume(r resume) error {
	file := filepath.Join(r.dir, configFile)
	src, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("resume from %s: %w", r.dir, err)
	}
	saved, err := config.Parse(file, src, config.Args{})
	if err != nil {
		return fmt.Errorf("resume from %s: %w", r.dir, err)
	}
	j.c.KeepResolved(saved)
	if d := j.c.Incompatible(saved); len(d) > 0 {
		return j.c.Errorf(d[0].Key, "the checkpoint %s was made with another value: %s; restore it, or choose another output_dir "+
			"or resume_from_checkpoint: false to start afresh", r.dir, d[0])
	}
	if err := checkpoint.CheckCompatible(r.dir, r.state.ConfigDigests, j.digests()); err != nil {
		return j.c.Errorf("resume_from_checkpoint", "%w", err)
	}
	return nil
}

// digests identify what a resumed run must share beyond its configuration: the
// content of the data and the architecture.
func (j *job) digests() map[string]string {
	arch := sha256.Sum256(j.model.JSON(""))
	return map[string]string{"dataset": j.set.ID(), "model": hex.EncodeToString(arch[:8])}
}

// saver writes checkpoints for the pipeline.
type saver struct {
	j      *job
	log    *metricsLog
	layers []checkpoint.Layer
	extra  map[string][]byte
	w      *checkpoint.Writer
	last   checkpoint.TrainerState // of the checkpoint committed last
}

// Open implements actors.Saver.
func (s *saver) Open(step int) (err error) {
	s.w, err = checkpoint.NewWriter(s.j.c.OutputDir, s.j.writerOptions(step))
	return err
}

// Layer implements actors.Saver.
func (s *saver) Layer(i int) error { return s.w.WriteLayer(i, s.layers[i]) }

// Commit implements actors.Saver.
func (s *saver) Commit(st actors.State, dataPos int64) (string, error) {
	c := s.j.c
	if err := s.log.sync(); err != nil {
		return "", err // a checkpoint must not be ahead of the metrics
	}
	state := checkpoint.TrainerState{Step: st.Step, AdamStep: st.AdamStep, DataPos: dataPos, Seed: c.Seed, NonFinite: st.NonFinite, Tokens: st.Tokens,
		Epoch: float64(dataPos) / float64(s.j.set.Train().Rows()), ConfigDigests: s.j.digests()}
	if err := s.w.Commit(state, s.extra); err != nil {
		return "", err
	}
	s.last = state
	if err := checkpoint.Prune(c.OutputDir, c.SaveTotalLimit); err != nil {
		return "", err
	}
	return filepath.Join(c.OutputDir, checkpointName(st.Step)), nil
}

// checkpointName is the name of the checkpoint after a step.
func checkpointName(step int) string { return fmt.Sprintf("checkpoint-%d", step) }

// Abort implements actors.Saver.
func (s *saver) Abort() {
	if s.w != nil {
		s.w.Abort()
	}
}

func (j *job) writerOptions(step int) checkpoint.WriterOptions {
	return checkpoint.WriterOptions{Step: step, Config: j.model, Layouts: j.plan.Layouts, SaveDType: checkpoint.DType(j.c.SaveDType), Zstd: j.c.OptimizerZstd,
		FS: j.hooks.fs, Source: j.source}
}

// companions are the files that go beside saved weights: the tokenizer's and
// the generation's of the model trained from, or the byte tokenizer's, and the
// chat template that the data went through.
func (j *job) companions() (map[string][]byte, error) {
	out := map[string][]byte{}
	if j.modelDir != "" {
		var err error
		if out, err = checkpoint.Companions(j.modelDir); err != nil {
			return nil, err
		}
	}
	if _, ok := out["tokenizer.json"]; !ok && j.tok != nil && j.modelDir == "" {
		for name, content := range j.tok.Files() {
			out[name] = content
		}
	}
	if j.set != nil {
		if chat := j.set.ChatTemplate(); chat != "" {
			out["chat_template.jinja"] = []byte(chat)
		}
	}
	return out, nil
}
