package resume

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
	"mt/base/files"
	"mt/checkpoint"
	"mt/data"
	"mt/device/cuda"
	"mt/device/cuda/kernels"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/ranks"
	"mt/internal/run/settings"
	"mt/layers/schedule"
	"mt/model"
)

// Point is where a run starts: a checkpoint, or step 0.
type Point struct {
	Dir      string // the checkpoint's directory; empty: the run starts at step 0
	State    checkpoint.TrainerState
	Other    bool // Dir belongs to another output directory, and this one has no checkpoint that started from it
	Reset    bool // take only the weights of Dir; moments start at zero
	Products bool // the key matmul differs from the checkpoint's run, so that run's recorded algorithms are not used
	Over     bool // early stopping ended the run there
	Ended    bool // Dir holds the finished model and no state to resume

	config []byte // YAML of the checkpoint's run
	// end is the final state of a finished run whose model is in the output directory, but which
	// left no checkpoint of its last step.
	end   checkpoint.TrainerState
	Local string // Dir's path on this rank
	Sent  bool   // some ranks do not see Dir: rank 0 reads it and sends the others what they need
}

// Reached returns the state in which the pipeline starts.
func (r Point) Reached() actors.State {
	return actors.State{Step: r.State.Step, AdamStep: r.State.AdamStep, NonFinite: r.State.NonFinite, Tokens: r.State.Tokens}
}

// Start is where a run begins: at step 0, or at a checkpoint of this run or another. Its settings include the values
// that the checkpoint's run resolved.
type Start struct {
	*open.Inputs
	From      Point
	Train     *data.Sampler // the source of the steps' rows
	ParentRun string        // another run's checkpoint that this run started from; empty: none
	Began     []int         // by layer, the lane in the checkpoint's run; nil: its devices were alike
	Notes     []string      // for the user, once
}

// Fresh returns the start of a run at step 0.
func Fresh(in *open.Inputs) *Start { return &Start{Inputs: in, Train: in.AllRows} }

// startSearch is a Start while rank 0 looks for the place where the run begins.
type startSearch struct {
	Start
	unusable map[string]string // checkpoints that cannot be resumed → reason
}

func (f *startSearch) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// Find finds where a run begins. Rank 0 searches, and all ranks return its result. unusable maps the directories of
// checkpoints that the search must skip to the reasons.
func Find(in *open.Inputs, unusable map[string]string) (*Start, error) {
	f := &startSearch{Start: *Fresh(in.With(in.Config.Clone())), unusable: unusable}
	var r Point
	var err error
	if f.Ranks.First() {
		if r, err = f.lookForStart(); err == nil {
			err = r.readConfig()
		}
		if err != nil {
			return nil, err
		}
		r.Local = r.Dir
	}
	if r, err = f.agreeOnStart(r); err != nil {
		return nil, err
	}
	if err := f.settle(&r); err != nil {
		return nil, err
	}
	if err := f.chooseAttention(); err != nil {
		return nil, err
	}
	r.Over = !r.Ended && r.State.Step == r.end.Step && settings.EndedEarly(f.Config, r.end)
	f.From = r
	return &f.Start, nil
}

// lookForStart returns where the run begins. It does what findResume does, but also accepts a finished run whose model
// is in the output directory and whose last step has no checkpoint.
func (f *startSearch) lookForStart() (Point, error) {
	c := f.Config
	end, ok, damage, err := f.ended()
	switch {
	case err != nil:
		return Point{}, c.Errorf("output_dir", "look for a finished run: %w", err)
	case ok && (c.MaxSteps <= end.Step || settings.EndedEarly(c, end)):
		return Point{Dir: c.OutputDir, State: end, Ended: true}, nil
	}
	r, err := f.findResume()
	switch {
	case err != nil:
		return Point{}, err
	case !ok:
		r.end = end
		if r.Dir == "" && damage != nil {
			return r, c.Errorf("output_dir", "output_dir %s holds a finished run that is damaged and no checkpoint: %w; "+
				"restore what is damaged, choose another output_dir, or set resume_from_checkpoint: false to start afresh", c.OutputDir, damage)
		}
	case r.Dir == "":
		return r, c.Errorf("output_dir", "output_dir %s holds the model of a run of %d steps and not its optimizer's state, so it cannot be lengthened to %d: "+
			"train from its weights with model_name_or_path: %s and another output_dir, or set resume_from_checkpoint: false to start afresh",
			c.OutputDir, end.Step, c.MaxSteps, c.OutputDir)
	}
	return r, nil
}

// ended returns the state of the finished run whose model is in the output directory. ok is false in these cases:
//   - there is no such run
//   - the checkpoint of its last step is there too
//   - resume_from_checkpoint asks for something else
//
// err is a disk error: if a finished run cannot be read, a new run must not overwrite its model. damage reports that
// EndFile or the model is damaged; such a run must not be overwritten either. damage is nil if there are no weights
// to lose, or if overwrite_output_dir allows it.
func (f *startSearch) ended() (end checkpoint.TrainerState, ok bool, damage, err error) {
	c := f.Config
	if c.Resume != "auto" && c.Resume != "true" {
		return end, false, nil, nil
	}
	mark := filepath.Join(c.OutputDir, settings.EndFile)
	raw, err := os.ReadFile(mark)
	if err == nil {
		if damage = json.Unmarshal(raw, &end); damage != nil {
			damage = fmt.Errorf("%s: %w", mark, damage)
		} else {
			damage = checkpoint.CheckModel(c.OutputDir, f.Model.Layouts(false))
		}
		err = damage
	}
	if err == nil {
		_, err = checkpoint.ReadState(filepath.Join(c.OutputDir, settings.CheckpointName(end.Step)))
		ok = errors.Is(err, os.ErrNotExist)
	}
	if checkpoint.IsDiskError(err) {
		return end, false, nil, err
	}
	if damage != nil && (c.OverwriteOutputDir || !HoldsWeights(c.OutputDir)) {
		damage = nil
	}
	return end, ok, damage, nil
}

// EpochsAfter returns the number of complete epochs after a step.
func (s *Start) EpochsAfter(step int) int {
	return int(s.Train.Pos(step) / int64(s.Data.Train().Rows()))
}

// EndsEpoch reports whether a step takes the last row of an epoch.
func (s *Start) EndsEpoch(step int) bool { return s.Train.Pos(step)%int64(s.Data.Train().Rows()) == 0 }

// findResume returns the checkpoint that the configuration asks for. It runs before the plan, since the run keeps
// values that an earlier run resolved.
func (f *startSearch) findResume() (r Point, err error) {
	c := f.Config
	switch c.Resume {
	case "false":
		if old, _ := filepath.Glob(filepath.Join(c.OutputDir, "checkpoint-*[0-9]")); len(old) > 0 { // only a bad pattern causes an error
			f.note("%s holds checkpoints of an earlier run, such as %s; resume_from_checkpoint: auto will go on from the highest step of all: "+
				"remove them, or choose another output_dir", c.OutputDir, filepath.Base(old[0]))
		}
	case "auto", "true":
		r, err = f.newest()
	default:
		r, err = f.named()
	}
	if r.State.ModelOnly {
		err = c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %s was saved with save_only_model: without the optimizer's state a run cannot go on from it; "+
			"train from its weights with model_name_or_path: %s and another output_dir, or set resume_from_checkpoint: false to start afresh", r.Dir, r.Dir)
	}
	if err != nil {
		return Point{}, err
	}
	return r, nil
}

// settle applies r, the start that was found, to the settings: the run keeps values that the checkpoint's run
// resolved, or resolves them anew at step 0.
func (f *startSearch) settle(r *Point) (err error) {
	c := f.Config
	if r.Ended {
		return f.resume(r)
	}
	if r.Dir == "" {
		for _, reset := range []struct {
			key   string
			given bool
		}{{"reset_data", c.ResetData}, {"reset_optimizer", c.ResetOptimizer}} {
			if reset.given {
				f.note("%s has no effect: the run begins from the start", reset.key)
			}
		}
		return f.placeData(checkpoint.TrainerState{}, 0)
	}
	f.ParentRun, f.Began = r.State.ParentRun, r.State.Lanes
	if r.Other {
		if f.ParentRun, err = filepath.Abs(r.Dir); err != nil {
			return err
		}
	}
	return f.resume(r)
}

// newest returns the newest checkpoint in the output directory that can be resumed. The Point's Dir is empty if there
// is none.
func (f *startSearch) newest() (r Point, err error) {
	c := f.Config
	var skipped []checkpoint.Skipped
	r.Dir, r.State, skipped, err = checkpoint.Latest(c.OutputDir, f.unusable)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Point{}, err
	}
	for _, s := range skipped {
		if why := noCheckpoint(s.Dir); why != "" && !s.Unfinished {
			s.Why = why
		}
		f.note("checkpoint %s is skipped: %s", s.Dir, s.Why)
		switch {
		case r.Dir != "" || s.Unfinished:
		case s.NonFinite:
			return Point{}, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: no checkpoint in %s is known to be good: %s: %s; "+
				"set resume_from_checkpoint: %s to go on from it all the same, with a lower learning_rate, or false to start afresh", c.OutputDir, s.Dir, s.Why, s.Dir)
		default:
			return Point{}, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: no checkpoint in %s is valid: %s: %s; "+
				"restore one, choose another output_dir, or set resume_from_checkpoint: false to start afresh", c.OutputDir, s.Dir, s.Why)
		}
	}
	return r, nil
}

// named returns the checkpoint in resume_from_checkpoint, which may belong to another run. This output directory may
// already have checkpoints of a run that started from it. Then named returns the newest of these, so that repeating
// the command continues that run.
func (f *startSearch) named() (r Point, err error) {
	c := f.Config
	r.Dir = c.Resume
	if why := noCheckpoint(r.Dir); why != "" {
		return r, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %s %s", r.Dir, why)
	}
	if _, err = os.Stat(r.Dir); err == nil {
		if r.Other = !files.Same(filepath.Dir(filepath.Clean(r.Dir)), c.OutputDir); r.Other {
			begun, err := f.fromOtherRun(r.Dir)
			if err != nil || begun.Dir != "" {
				return begun, err
			}
		}
		err = checkpoint.Verify(r.Dir)
	}
	if err == nil {
		r.State, err = checkpoint.ReadState(r.Dir)
	}
	if checkpoint.IsDiskError(err) {
		return r, fmt.Errorf("resume_from_checkpoint: %w", err)
	}
	if err != nil {
		return r, c.Errorf("resume_from_checkpoint", "resume_from_checkpoint: %w; give a directory checkpoint-N, or auto", err)
	}
	if why := checkpoint.NonFinite(r.Dir); why != "" {
		f.note("%s: %s", r.Dir, why)
	}
	if later := checkpoint.After(c.OutputDir, r.State.Step); !r.Other && later != "" {
		f.note("%s is of a later step: resume_from_checkpoint: auto goes on from the highest step of all; remove it, or choose another output_dir", later)
	}
	return r, nil
}

// noCheckpoint explains why the existing dir is no checkpoint of mt, and what to do about it. It returns "" if dir may
// be one or does not exist.
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

// othersFiles lists patterns of files that other trainers leave in or beside checkpoints: Transformers, DeepSpeed,
// FSDP and Megatron.
var othersFiles = []string{"optimizer.pt", "scheduler.pt", "rng_state*.pth", "training_args.bin", "zero_to_fp32.py", "global_step*",
	"pytorch_model_fsdp*", "optimizer_[0-9]*", "*.distcp", "latest_checkpointed_iteration.txt"}

// othersState reports whether dir has a file in othersFiles, or a trainer_state.json that Transformers' Trainer wrote.
func othersState(dir string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		for _, pattern := range othersFiles {
			if ok, _ := filepath.Match(pattern, e.Name()); ok { // the patterns are valid
				return true
			}
		}
	}
	const most = 256 << 20 // the file has a line per logged step
	text, err := files.Read(filepath.Join(dir, "trainer_state.json"), most)
	var f struct {
		Log json.RawMessage `json:"log_history"`
	}
	return err == nil && json.Unmarshal(files.JSON(text), &f) == nil && f.Log != nil
}

// fromOtherRun looks for a run in the output directory that began with dir, a checkpoint of another run. It returns
// that run's newest checkpoint. The Point's Dir is empty if there is no such run.
func (f *startSearch) fromOtherRun(dir string) (Point, error) {
	from, err := filepath.Abs(dir)
	if err != nil {
		return Point{}, err
	}
	old, _ := filepath.Glob(filepath.Join(f.Config.OutputDir, "checkpoint-*[0-9]")) // only a bad pattern causes an error
	for _, o := range old {
		if st, err := checkpoint.ReadState(o); err == nil && st.ParentRun == from {
			return f.newest()
		}
	}
	if len(old) > 0 {
		f.note("%s holds checkpoints of a run that did not begin from %s, such as %s; resume_from_checkpoint: auto will go on from the highest step of all: "+
			"remove them, or choose another output_dir", f.Config.OutputDir, dir, filepath.Base(old[0]))
	}
	return Point{}, nil
}

// readConfig reads config.yaml of the run that wrote the checkpoint r.Dir into r.config.
func (r *Point) readConfig() (err error) {
	if r.Dir == "" {
		return nil
	}
	if r.config, err = files.Read(filepath.Join(r.Dir, settings.ConfigFile), config.MaxFile); err != nil {
		return fmt.Errorf("resume from %s: %w", r.Dir, err)
	}
	return nil
}

// resume compares the configuration with the one in the checkpoint r. It keeps the values that the checkpoint's run
// resolved and adds notes about differences. It returns an error for differences that are not allowed.
func (f *startSearch) resume(r *Point) error {
	file := filepath.Join(r.Dir, settings.ConfigFile)
	saved, err := config.Parse(file, r.config, config.Args{})
	if err != nil {
		return fmt.Errorf("resume from %s: %w", r.Dir, err)
	}
	fillOlder(saved)
	saved.SchedulePosition = config.SchedulePosition(r.State.Schedule)
	return (&resumeDiff{startSearch: f, from: r, saved: saved, was: r.State.ConfigDigests}).apply()
}

// fillOlder sets keys in saved, the configuration of a checkpoint, that an older version of mt did not have. The keys
// get the values with which the older version computed.
func fillOlder(saved *config.Config) {
	if saved.MicroBatchOrder == "auto" {
		saved.MicroBatchOrder = schedule.Zigzag.String()
	}
	if saved.AttentionKernels == "auto" {
		saved.AttentionKernels = cuda.Portable
	}
}

// Finished reports whether the run has nothing left to do. The output directory then holds the model that belongs to
// the checkpoint to resume, undamaged, and the averaged model if the run keeps an average.
func (s *Start) Finished() bool {
	raw, err := os.ReadFile(filepath.Join(s.Config.OutputDir, settings.EndFile))
	if err != nil {
		return false
	}
	var end checkpoint.TrainerState
	if json.Unmarshal(raw, &end) != nil {
		return false
	}
	end.Ended = checkpoint.Ended{} // checkpoints do not have it
	whole := func(dir string) bool { return checkpoint.CheckModel(dir, s.Model.Layouts(false)) == nil }
	return reflect.DeepEqual(end, s.From.State) && whole(s.Config.OutputDir) && (s.Config.EMADecay == 0 || whole(settings.AveragesIn(s.Config)))
}

// DoesNotLoad is the error of a checkpoint that cannot be loaded although its checksums match. Train then resumes from
// the checkpoint before it, as it does if checksums do not match.
type DoesNotLoad struct {
	Dir string
	Err error
}

// Error implements error.
func (e *DoesNotLoad) Error() string { return fmt.Sprintf("resume: %v", e.Err) }

// Unwrap returns the cause.
func (e *DoesNotLoad) Unwrap() error { return e.Err }

// HoldsWeights reports whether dir has a file of model weights.
func HoldsWeights(dir string) bool {
	entries, _ := os.ReadDir(dir) // writing reports a directory that cannot be listed
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool { return checkpoint.IsWeights(e.Name()) })
}

// chooseAttention resolves attention_kernels and makes the devices use these kernels. It runs before the first
// operation, but after a resumed run's kept values are known, since they may name the kernels.
func (f *startSearch) chooseAttention() error {
	c := f.Config
	if c.AttentionKernels == "auto" {
		c.AttentionKernels = f.BestAttention()
	}
	if c.Device == "cpu" {
		if cuda.IsSM90a(c.AttentionKernels) {
			return c.Errorf("attention_kernels", "attention_kernels: %s: the CPU computes, and these are kernels of H100, H200 and GH200; give portable, which has no effect there", c.AttentionKernels)
		}
		return nil
	}
	if dim := f.Model.PackedHeadDim(); dim > kernels.MaxHeadDim {
		return c.Errorf("device", "device: %s: attention's kernels take heads of at most %d elements, and the model's queries, keys or values have %d; "+
			"train it with device: cpu", c.Device, kernels.MaxHeadDim, dim)
	}
	if l := f.Model.MLA; l != nil && l.Indexer != nil && (l.KVRank > kernels.MaxSparseValues || l.KVRank+l.RopeDim > kernels.MaxSparseDim) {
		return c.Errorf("device", "device: %s: the kernels for chosen keys take a kv_lora_rank of at most %d and, with qk_rope_head_dim, %d, and the model has %d and %d; "+
			"train it with device: cpu", c.Device, kernels.MaxSparseValues, kernels.MaxSparseDim, l.KVRank, l.KVRank+l.RopeDim)
	}
	for _, dev := range f.Devices {
		if d, ok := dev.(open.Attender); ok {
			if err := d.UseAttention(c.AttentionKernels); err != nil {
				return c.Errorf("attention_kernels", "attention_kernels: %w; results of the portable ones differ in the last bits: "+
					"go on with attention_kernels: portable and another output_dir, from the checkpoint in resume_from_checkpoint if there is one", err)
			}
		}
	}
	return nil
}

// startFound is rank 0's message that tells the other ranks where the run begins.
type startFound struct {
	Dir    string                  `json:"dir"` // step 0 if empty
	State  checkpoint.TrainerState `json:"state"`
	End    checkpoint.TrainerState `json:"end"`
	Other  bool                    `json:"other"`
	Ended  bool                    `json:"ended"`
	Config []byte                  `json:"config"`
}

// agreeOnStart sends the start r that rank 0 found to all ranks and returns it on each of them.
func (fd *startSearch) agreeOnStart(r Point) (Point, error) {
	t := fd.Ranks
	if t.Size() == 1 {
		return r, nil
	}
	all, err := ranks.Tell(t, "where the run begins", startFound{Dir: r.Dir, State: r.State, End: r.end, Other: r.Other, Ended: r.Ended, Config: r.config})
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

// inside returns dir relative to the directory out; "" if dir is empty or lies outside of out.
func inside(out, dir string) string {
	if rel, err := filepath.Rel(out, dir); err == nil && dir != "" && filepath.IsLocal(rel) {
		return rel
	}
	return ""
}

// Sight finds out whether all ranks see the checkpoint r.Dir with the content that rank 0 sees. If the checkpoint is
// inside rank 0's output_dir, each rank looks in its own output_dir. Sight sets r.Local and r.Sent.
func (r *Point) Sight(in *open.Inputs) error {
	type seen struct{ Inside, Digest string }
	first, err := ranks.Tell(in.Ranks, "the name of the checkpoint", seen{inside(in.Config.OutputDir, r.Dir), checkpoint.Digest(r.Dir)})
	if err != nil {
		return err
	}
	r.Local = r.Dir
	if rel := first[0].Inside; rel != "" {
		r.Local = filepath.Join(in.Config.OutputDir, rel)
	}
	all, err := ranks.Tell(in.Ranks, "the sight of the checkpoint", checkpoint.Digest(r.Local) == first[0].Digest)
	r.Sent = slices.Contains(all, false)
	return err
}
