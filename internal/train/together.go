package train

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"mt/actors"
	"mt/checkpoint"
	"mt/host"
	"mt/host/optim"
	"mt/internal/ranks"
)

// This file is what ranks do round their steps: they agree on what the run is before anything
// takes long, on what they have loaded before the first step, and on how the run has ended.

// Elsewhere is the error of a rank that rank 0 tells too: with the same Err all ranks have ended.
type Elsewhere struct{ Err error }

// Error implements error.
func (e *Elsewhere) Error() string { return e.Err.Error() }

// Unwrap is the error that rank 0 tells.
func (e *Elsewhere) Unwrap() error { return e.Err }

// together has f do this rank's part of a run whose ranks are those of o.World. What the others
// print goes to rank-N.log in dir, if that is known. All ranks return together and with the same
// error, or one of them has ended the run for all.
func together(ctx context.Context, dir string, o Options, f func(Options) error) error {
	t, err := newTeam(ctx, o.World, *cmp.Or(o.hooks.beat, &usualBeat))
	if err != nil {
		o.World.Abort(err.Error())
		return err
	}
	o.team = t
	if !t.first() {
		o.Stdout, o.Stderr, o.Interactive, o.Timeline = io.Discard, io.Discard, false, false
		if dir != "" {
			var log *os.File
			if log, err = t.openLog(dir); err == nil {
				defer log.Close()
				o.Stdout, o.Stderr, t.log = log, log, log
			}
		}
	}
	if err == nil {
		err = f(o)
	}
	err = t.end(err)
	if _, left := t.ended(); left && err != nil && !t.first() {
		fmt.Fprintf(o.Stderr, "mt: %v\n", err)
		err = &Elsewhere{err}
	}
	return err
}

// openLog opens the file for what this rank would print.
func (t *team) openLog(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &noLog{err}
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(logFile, t.Rank())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, &noLog{err}
	}
	fmt.Fprintf(f, "%s, of %d\n", t.named(t.Rank()), t.Size())
	return f, nil
}

// noLog is the error of a rank that cannot write its log in output_dir.
type noLog struct{ err error }

// Error implements error.
func (e *noLog) Error() string {
	return fmt.Sprintf("output_dir: %v: give a directory that every rank can write its log to", e.err)
}

// Unwrap is what is wrong.
func (e *noLog) Unwrap() error { return e.err }

// logFile is the name of the file in output_dir, on its host, that a rank but the first writes
// its notes and errors to.
const logFile = "rank-%d.log"

// Refuse ends a run of several ranks of which this one cannot even begin, because of err. The
// others are told.
func Refuse(ctx context.Context, err error, o Options) error {
	return together(ctx, "", o, func(Options) error { return err })
}

// abort ends the run for all ranks, from any goroutine.
func (t *team) abort(reason string) {
	if t.log != nil {
		fmt.Fprintf(t.log, "mt: %s\n", reason)
	}
	t.Abort(reason)
}

// The ways out of ranks that differ.
const (
	sameProgram = "all hosts need the same mt"
	sameConfig  = "give all ranks the same command line and file"
	giveIt      = "what is left to mt comes out differently on the two hosts, so give it in the configuration"
	alikeFiles  = "all ranks must read the same files: give directories that all hosts see, or bring the copies up to date"
)

// agreeOnRun has all ranks compare what their runs are made of and where they go on from, before
// anything takes long.
func (j *job) agreeOnRun(version string, from resume) error {
	if j.team == nil {
		return nil
	}
	state, err := json.Marshal(from.state)
	if err != nil {
		return err
	}
	facts := []fact{{"mt", version, sameProgram}}
	values := j.c.Deciding()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		way := sameConfig
		if !j.c.Given(key) {
			way = giveIt
		}
		facts = append(facts, fact{key, values[key], way})
	}
	facts = append(facts, fact{"reset_data", fmt.Sprint(j.c.ResetData), sameConfig}, fact{"reset_optimizer", fmt.Sprint(j.c.ResetOptimizer), sameConfig})
	digests := j.digests()
	digests["eval_dataset"] = "that of none"
	if j.evalSet != nil {
		digests["eval_dataset"] = j.evalSet.ID()
	}
	for _, name := range slices.Sorted(maps.Keys(digests)) {
		facts = append(facts, fact{"the digest of " + name, digests[name], alikeFiles})
	}
	where := "the start"
	if from.dir != "" {
		where = fmt.Sprintf("step %d of %s", from.state.Step, from.dir)
	}
	sum := sha256.Sum256(state)
	facts = append(facts, fact{"the point to go on from", where, sameConfig},
		fact{"the digest of the state there", hex.EncodeToString(sum[:8]), sameConfig},
		fact{"max_steps", fmt.Sprint(j.c.MaxSteps), sameConfig})
	all, err := tell(j.team, "the start", j.team.first() && j.finished(from), facts...)
	if err == nil {
		j.done = all[0]
	}
	return err
}

// filled is what a rank has after its store was filled.
type filled struct {
	Unloadable string   `json:"unloadable,omitempty"` // the checkpoint that did not load, and Why
	Why        string   `json:"why,omitempty"`
	Tiles      []uint32 `json:"tiles,omitempty"` // by layer, the CRC32C of its tile
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// agreeOnTiles has all ranks compare the weights that they have loaded; err is that of loading.
// Where a checkpoint does not load on one rank, all take the one before.
func (s *session) agreeOnTiles(err error) error {
	t := s.team
	if t == nil {
		return err
	}
	var mine filled
	var bad *doesNotLoad
	switch {
	case errors.As(err, &bad):
		mine.Unloadable, mine.Why = bad.dir, bad.err.Error()
	case err != nil:
		return err
	default:
		mine.Tiles = make([]uint32, len(s.store.Layers))
		s.pool.Run(len(mine.Tiles), func(i int) { mine.Tiles[i] = crc32.Checksum(s.store.Layers[i].Tile, castagnoli) })
	}
	all, err := tell(t, "the loaded weights", mine)
	if err != nil {
		return err
	}
	for r, f := range all {
		if f.Unloadable != "" {
			return &doesNotLoad{f.Unloadable, fmt.Errorf("%s: %s", t.named(r), f.Why)}
		}
	}
	for r, f := range all {
		for i := range f.Tiles {
			if f.Tiles[i] != all[0].Tiles[i] {
				// All ranks find this, and say it in one way.
				return fmt.Errorf("the weights of layer %d are not the same on %s and %s after they were loaded: %s", i, t.named(0), t.named(r), alikeFiles)
			}
		}
	}
	return nil
}

// begun is what rank 0 has found in output_dir, which the others need to know.
type begun struct {
	EvalStep   int             `json:"eval_step"`   // of the last evaluation
	EvalLoss   uint64          `json:"eval_loss"`   // the bits of its loss, which may not be finite
	EvalTokens int64           `json:"eval_tokens"` // that it is of
	Sampled    int             `json:"sampled"`     // the step of the last samples
	Bests      checkpoint.Best `json:"bests"`
}

// agreeOnOutput tells all ranks what rank 0 has found in output_dir.
func (s *session) agreeOnOutput() error {
	t := s.team
	if t == nil {
		return nil
	}
	all, err := tell(t, "the output directory", begun{EvalStep: s.lastEval.Step, EvalLoss: math.Float64bits(s.lastEval.Loss), EvalTokens: s.lastEval.Tokens,
		Sampled: s.samples.last, Bests: s.bests.reported})
	if err != nil {
		return err
	}
	if first := all[0]; !t.first() {
		s.lastEval = actors.EvalReport{Step: first.EvalStep, Loss: math.Float64frombits(first.EvalLoss), Tokens: first.EvalTokens}
		if len(s.prompts) > 0 {
			s.samples = samples{every: s.c.SampleSteps.Of(s.c.MaxSteps), prompts: s.prompts, last: first.Sampled}
		}
		s.bests.begin(first.Bests)
	}
	return nil
}

// openStore takes the memory for the weights and what is kept beside them.
func (s *session) openStore(from resume) (err error) {
	tier, err := s.openTier(s.plan, true, func(end func() error) {
		s.closers = append(s.closers, func() { s.closing = errors.Join(s.closing, end()) })
	})
	if err != nil {
		return err
	}
	if tier.Away != nil && s.team.first() {
		note, err := s.checkDisk(from) // once more: states may be on the disk of output_dir
		if err != nil {
			return err
		}
		if note != "" {
			s.late.add(note)
		}
	}
	var shares []optim.Share
	if s.team != nil {
		shares = s.plan.OwnShares()
	}
	if s.store, err = host.NewTieredStore(s.plan.Layouts, s.plan.Planes, shares, tier, s.pool); err != nil {
		return err
	}
	s.closers = append(s.closers, func() { _ = s.store.Close() })
	for _, note := range nodeNotes(host.Nodes()) {
		s.late.add(note)
	}
	s.store.Draw(uint64(s.c.Seed))
	s.store.Average(s.average())
	return s.openStaging()
}

// world is what the pipeline exchanges through; nil: it trains alone.
func (s *session) world() ranks.World {
	if s.team == nil {
		return nil // and not an interface that holds a nil
	}
	return s.team
}

// agreedToStop notes that the ranks have agreed to stop.
func (s *session) agreedToStop() {
	if s.team != nil {
		s.team.halt(ErrInterrupted)
	}
}

// checkRanks refuses what several ranks cannot do.
func (j *job) checkRanks() error {
	t := j.team
	if t == nil {
		return nil
	}
	if j.nsSteps() > 0 && t.Size() > 1 {
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

// threads is how many threads of the host this rank may use; 0: all.
func (j *job) threads() int {
	_, n := j.team.neighbours()
	switch {
	case n == 1:
		return j.c.Threads
	case j.c.Threads > 0:
		return max(1, j.c.Threads/n)
	}
	return max(1, runtime.GOMAXPROCS(0)/n)
}

// share is this rank's part of bytes that the ranks of its host have together.
func (j *job) share(bytes int64) int64 {
	_, n := j.team.neighbours()
	return bytes / int64(n)
}
