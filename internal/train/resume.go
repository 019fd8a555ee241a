package train

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"mt/actors"
	"mt/checkpoint"
	"mt/data"
	"mt/device/cuda"
	"mt/internal/config"
	"mt/internal/files"
	"mt/model"
	"mt/schedule"
)

// resume is where a run goes on from.
type resume struct {
	dir      string // empty: from the start
	state    checkpoint.TrainerState
	other    bool // dir is of another output directory, and this one has no checkpoint that began from it
	reset    bool // only the weights of dir are taken; moments begin at zero
	products bool // matrix products are chosen by another rule than there (matmul), so its record does not count
	over     bool // early stopping has ended the run there
	ended    bool // dir holds the finished model and nothing to go on from

	config []byte // of the run that has left dir, in YAML
	// end is the state of a finished run whose model is in the output directory.
	end   checkpoint.TrainerState
	local string // dir as this rank sees it
	sent  bool   // not all ranks see it: rank 0 reads it and sends the others what they need
}

// reached is the state that the pipeline starts from.
func (r resume) reached() actors.State {
	return actors.State{Step: r.state.Step, AdamStep: r.state.AdamStep, NonFinite: r.state.NonFinite, Tokens: r.state.Tokens}
}

// Start is where a run begins: from nothing, or from a checkpoint of its own or of another run.
// Its settings are those of the inputs with what the checkpoint's run settled.
type Start struct {
	*Inputs
	from   resume
	train  *data.Sampler // steps take their rows from it
	origin string        // the checkpoint of another run that this one began from; empty: none
	began  []int         // by layer, the lane that it was on in the run that this one goes on; nil: its devices were alike
	notes  []string      // for the user, once
}

// Fresh is the start of a run from nothing.
func Fresh(in *Inputs) *Start { return &Start{Inputs: in, train: in.all} }

// finding is a start while it is looked for.
type finding struct {
	Start
	unusable map[string]string // checkpoints that cannot be gone on from, with the reason
}

func (j *finding) note(format string, args ...any) {
	j.notes = append(j.notes, fmt.Sprintf(format, args...))
}

// Find finds where a run begins, on rank 0 for all. Checkpoints in unusable are skipped, for the
// reasons given there.
func Find(in *Inputs, unusable map[string]string) (*Start, error) {
	j := &finding{Start: *Fresh(in.with(in.c.Clone())), unusable: unusable}
	var r resume
	var err error
	if j.team.first() {
		if r, err = j.lookForStart(); err == nil {
			err = r.readConfig()
		}
		if err != nil {
			return nil, err
		}
		r.local = r.dir
	}
	if r, err = j.agreeOnStart(r); err != nil {
		return nil, err
	}
	if err := j.settle(&r); err != nil {
		return nil, err
	}
	if err := j.chooseAttention(); err != nil {
		return nil, err
	}
	r.over = !r.ended && r.state.Step == r.end.Step && endedEarly(j.c, r.end)
	j.from = r
	return &j.Start, nil
}

// lookForStart is findResume, except that the output directory may also hold the model of a
// finished run without the checkpoint of its last step.
func (j *finding) lookForStart() (resume, error) {
	c := j.c
	end, ok, damage, err := j.ended()
	switch {
	case err != nil:
		return resume{}, c.Errorf("output_dir", "look for a finished run: %w", err)
	case ok && (c.MaxSteps <= end.Step || endedEarly(c, end)):
		return resume{dir: c.OutputDir, state: end, ended: true}, nil
	}
	r, err := j.findResume()
	switch {
	case err != nil:
		return resume{}, err
	case !ok:
		r.end = end
		if r.dir == "" && damage != nil {
			return r, c.Errorf("output_dir", "output_dir %s holds a finished run that is damaged and no checkpoint: %w; "+
				"restore what is damaged, choose another output_dir, or set resume_from_checkpoint: false to start afresh", c.OutputDir, damage)
		}
	case r.dir == "":
		return r, c.Errorf("output_dir", "output_dir %s holds the model of a run of %d steps and not its optimizer's state, so it cannot be lengthened to %d: "+
			"train from its weights with model_name_or_path: %s and another output_dir, or set resume_from_checkpoint: false to start afresh",
			c.OutputDir, end.Step, c.MaxSteps, c.OutputDir)
	}
	return r, nil
}

// ended is the state of the finished run whose model is in the output directory. ok is
// false where there is no such run, where the checkpoint of its last step is there too,
// or where resume_from_checkpoint does not ask for it.
//
// err is an error of the disk: a finished run that cannot be read must not be begun
// again over its model. damage says that endFile, or the model, is not what a run has
// written; such a run must not be begun again either. damage is nil where there are no
// weights to lose, or where overwrite_output_dir allows it.
func (j *finding) ended() (end checkpoint.TrainerState, ok bool, damage, err error) {
	c := j.c
	if c.Resume != "auto" && c.Resume != "true" {
		return end, false, nil, nil
	}
	mark := filepath.Join(c.OutputDir, endFile)
	raw, err := os.ReadFile(mark)
	if err == nil {
		if damage = json.Unmarshal(raw, &end); damage != nil {
			damage = fmt.Errorf("%s: %w", mark, damage)
		} else {
			damage = checkpoint.CheckModel(c.OutputDir, j.model.Layouts(false))
		}
		err = damage
	}
	if err == nil {
		_, err = checkpoint.ReadState(filepath.Join(c.OutputDir, checkpointName(end.Step)))
		ok = errors.Is(err, os.ErrNotExist)
	}
	if checkpoint.IsDiskError(err) {
		return end, false, nil, err
	}
	if damage != nil && (c.OverwriteOutputDir || !holdsWeights(c.OutputDir)) {
		damage = nil
	}
	return end, ok, damage, nil
}

// epochsAfter is how many epochs of the data are over after a step.
func (j *Start) epochsAfter(step int) int {
	return int(j.train.Pos(step) / int64(j.set.Train().Rows()))
}

// endsEpoch says whether a step takes the last row of an epoch.
func (j *Start) endsEpoch(step int) bool { return j.train.Pos(step)%int64(j.set.Train().Rows()) == 0 }

// findResume looks for the checkpoint that the configuration says to go on from. It
// must come before the plan, since what an earlier run resolved is kept.
func (j *finding) findResume() (r resume, err error) {
	c := j.c
	switch c.Resume {
	case "false":
		if old, _ := filepath.Glob(filepath.Join(c.OutputDir, "checkpoint-*[0-9]")); len(old) > 0 { // the only error is that of a bad pattern
			j.note("%s holds checkpoints of an earlier run, such as %s; resume_from_checkpoint: auto will go on from the highest step of all: "+
				"remove them, or choose another output_dir", c.OutputDir, filepath.Base(old[0]))
		}
	case "auto", "true":
		r, err = j.newest()
	default:
		r, err = j.named()
	}
	if r.state.ModelOnly {
		err = c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %s was saved with save_only_model: without the optimizer's state a run cannot go on from it; "+
			"train from its weights with model_name_or_path: %s and another output_dir, or set resume_from_checkpoint: false to start afresh", r.dir, r.dir)
	}
	if err != nil {
		return resume{}, err
	}
	return r, nil
}

// settle takes up what the run begins with, from a checkpoint or from the start.
func (j *finding) settle(r *resume) (err error) {
	c := j.c
	if r.ended {
		return j.goOn(r)
	}
	if r.dir == "" {
		for _, reset := range []struct {
			key   string
			given bool
		}{{"reset_data", c.ResetData}, {"reset_optimizer", c.ResetOptimizer}} {
			if reset.given {
				j.note("%s has no effect: the run begins from the start", reset.key)
			}
		}
		return j.placeData(checkpoint.TrainerState{})
	}
	j.origin, j.began = r.state.Origin, r.state.Lanes
	if r.other {
		if j.origin, err = filepath.Abs(r.dir); err != nil {
			return err
		}
	}
	return j.goOn(r)
}

// newest is the newest checkpoint of the output directory that can be gone on
// from; its dir is empty where there is none.
func (j *finding) newest() (r resume, err error) {
	c := j.c
	var skipped []checkpoint.Skipped
	r.dir, r.state, skipped, err = checkpoint.Latest(c.OutputDir, j.unusable)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return resume{}, err
	}
	for _, s := range skipped {
		if why := noCheckpoint(s.Dir); why != "" && !s.Unfinished {
			s.Why = why
		}
		j.note("checkpoint %s is skipped: %s", s.Dir, s.Why)
		switch {
		case r.dir != "" || s.Unfinished:
		case s.NonFinite:
			return resume{}, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: no checkpoint in %s is known to be good: %s: %s; "+
				"set resume_from_checkpoint: %s to go on from it all the same, with a lower learning_rate, or false to start afresh", c.OutputDir, s.Dir, s.Why, s.Dir)
		default:
			return resume{}, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: no checkpoint in %s is valid: %s: %s; "+
				"restore one, choose another output_dir, or set resume_from_checkpoint: false to start afresh", c.OutputDir, s.Dir, s.Why)
		}
	}
	return r, nil
}

// named is the checkpoint that resume_from_checkpoint names. Where that is another
// run's, and a run that began from it has left checkpoints in this output directory, it
// is the newest of those: the same command goes on.
func (j *finding) named() (r resume, err error) {
	c := j.c
	r.dir = c.Resume
	if why := noCheckpoint(r.dir); why != "" {
		return r, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %s %s", r.dir, why)
	}
	if _, err = os.Stat(r.dir); err == nil {
		if r.other = !files.Same(filepath.Dir(filepath.Clean(r.dir)), c.OutputDir); r.other {
			begun, err := j.begunFrom(r.dir)
			if err != nil || begun.dir != "" {
				return begun, err
			}
		}
		err = checkpoint.Verify(r.dir)
	}
	if err == nil {
		r.state, err = checkpoint.ReadState(r.dir)
	}
	if checkpoint.IsDiskError(err) {
		return r, fmt.Errorf("resume_from_checkpoint: %w", err)
	}
	if err != nil {
		return r, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %w; give a directory checkpoint-N, or auto", err)
	}
	if why := checkpoint.NonFinite(r.dir); why != "" {
		j.note("%s: %s", r.dir, why)
	}
	if later := checkpoint.After(c.OutputDir, r.state.Step); !r.other && later != "" {
		j.note("%s is of a later step: resume_from_checkpoint: auto goes on from the highest step of all; remove it, or choose another output_dir", later)
	}
	return r, nil
}

// noCheckpoint says what dir is where it is there and is no checkpoint of a run of mt, and the way out; empty where it may be one.
func noCheckpoint(dir string) string {
	st, err := os.Stat(dir)
	if err != nil {
		return ""
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	weights := fmt.Sprintf("to train from its weights set model_name_or_path: %s and resume_from_checkpoint: auto", dir)
	if !has("config.json") {
		weights = "to train from its weights save them with save_pretrained, and set model_name_or_path to that directory"
	}
	foreign := model.Foreign(dir)
	newest, _, err := checkpoint.Newest(dir)
	switch {
	case !st.IsDir():
		return "is a file; give a directory checkpoint-N, or auto"
	case has("manifest.json"):
		return ""
	case err == nil && newest != "":
		if why := noCheckpoint(newest); why != "" {
			return fmt.Sprintf("is an output_dir, whose newest checkpoint %s %s", newest, why)
		}
		return fmt.Sprintf("is a run's output_dir; its newest checkpoint is %s: give that directory", newest)
	case has("metrics.jsonl"):
		return "is a run's output_dir, in which no checkpoint is left: " + weights
	case othersState(dir):
		return "is a checkpoint of another trainer, such as Transformers', whose optimizer's state is not read: " + cmp.Or(foreign, weights)
	case has("config.json") && !has("trainer_state.json"):
		return "is a model and no checkpoint of a run: " + cmp.Or(foreign, weights)
	case foreign != "":
		return "is no checkpoint: " + foreign
	case !slices.ContainsFunc([]string{"config.yaml", "optimizer", "trainer_state.json", "model.safetensors"}, has):
		return "holds no checkpoint of a run: give a directory checkpoint-N, or auto"
	}
	return ""
}

// othersFiles match what other trainers leave in a checkpoint or beside checkpoints: Transformers, DeepSpeed, FSDP and Megatron.
var othersFiles = []string{"optimizer.pt", "scheduler.pt", "rng_state*.pth", "training_args.bin", "zero_to_fp32.py", "global_step*",
	"pytorch_model_fsdp*", "optimizer_[0-9]*", "*.distcp", "latest_checkpointed_iteration.txt"}

// othersState tells whether dir has files of another trainer's checkpoint, or a trainer_state.json as Transformers' Trainer
// writes it.
func othersState(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		for _, pattern := range othersFiles {
			if ok, _ := filepath.Match(pattern, e.Name()); ok { // the patterns are well formed
				return true
			}
		}
	}
	const most = 256 << 20 // it has a line for every step that was logged
	text, err := files.Read(filepath.Join(dir, "trainer_state.json"), most)
	var f struct {
		Log json.RawMessage `json:"log_history"`
	}
	return err == nil && json.Unmarshal(files.JSON(text), &f) == nil && f.Log != nil
}

// begunFrom is the newest checkpoint of the output directory if the run there began
// from dir, a checkpoint of another run; its dir is empty if not.
func (j *finding) begunFrom(dir string) (resume, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return resume{}, err
	}
	old, _ := filepath.Glob(filepath.Join(j.c.OutputDir, "checkpoint-*[0-9]")) // the only error is that of a bad pattern
	for _, o := range old {
		if st, err := checkpoint.ReadState(o); err == nil && st.Origin == from {
			return j.newest()
		}
	}
	if len(old) > 0 {
		j.note("%s holds checkpoints of a run that did not begin from %s, such as %s; resume_from_checkpoint: auto will go on from the highest step of all: "+
			"remove them, or choose another output_dir", j.c.OutputDir, dir, filepath.Base(old[0]))
	}
	return resume{}, nil
}

// readConfig reads the configuration of the run that has left r.dir.
func (r *resume) readConfig() (err error) {
	if r.dir == "" {
		return nil
	}
	if r.config, err = files.Read(filepath.Join(r.dir, configFile), config.MaxFile); err != nil {
		return fmt.Errorf("resume from %s: %w", r.dir, err)
	}
	return nil
}

// goOn compares the configuration with that of the checkpoint's run. It keeps what that
// run resolved, notes what differs and what that means, and refuses what must not
// differ.
func (j *finding) goOn(r *resume) error {
	file := filepath.Join(r.dir, configFile)
	saved, err := config.Parse(file, r.config, config.Args{})
	if err != nil {
		return fmt.Errorf("resume from %s: %w", r.dir, err)
	}
	fillOlder(saved)
	saved.Laid = config.Laid(r.state.Schedule)
	return (&alteration{finding: j, from: r, saved: saved, was: r.state.ConfigDigests}).apply()
}

// fillOlder gives the keys that an older mt did not have the values that it computed by.
func fillOlder(saved *config.Config) {
	if saved.MicroBatchOrder == "auto" {
		saved.MicroBatchOrder = schedule.Zigzag.String()
	}
	if saved.AttentionKernels == "auto" {
		saved.AttentionKernels = cuda.Portable
	}
}

// finished tells whether the output directory already holds the model of the checkpoint
// that the run goes on from, and that of the averages.
func (j *Start) finished() bool {
	raw, err := os.ReadFile(filepath.Join(j.c.OutputDir, endFile))
	if err != nil {
		return false
	}
	var end checkpoint.TrainerState
	if json.Unmarshal(raw, &end) != nil {
		return false
	}
	end.Ended = checkpoint.Ended{} // no checkpoint has it
	whole := func(dir string) bool { return checkpoint.CheckModel(dir, j.model.Layouts(false)) == nil }
	return reflect.DeepEqual(end, j.from.state) && whole(j.c.OutputDir) && (j.c.EMADecay == 0 || whole(averagesIn(j.c)))
}
