package actors

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"mt/data"
	"mt/device"
	"mt/host"
	"mt/host/optim"
	"mt/internal/parallel"
	"mt/internal/ranks"
	"mt/internal/ranks/local"
	"mt/model"
	"mt/plan"
)

// rankTrial is a trial on several ranks in one process.
type rankTrial struct {
	trial
	ranks int
	seed  uint64 // of the order in which what the ranks exchange is told
	// change, which may be nil, changes what one rank is asked to do.
	change func(rank int, o *Options)
	wraps  func(rank int, d device.Device) device.Device
}

// together has two buffers of what ranks need beside what base has.
func together(n int) rankTrial {
	tr := rankTrial{trial: base(), ranks: n, seed: 1}
	tr.depths.ExchangeBuffers, tr.depths.GathersAhead = 2, 2
	return tr
}

// rankPlan is the plan of one rank.
func (tr rankTrial) rankPlan(rank int) *plan.Run {
	rows := tr.rows
	tr.rows = (rows + tr.ranks - 1) / tr.ranks
	p := tr.plan(tr.config())
	if p.Ranks, p.Rank = tr.ranks, rank; tr.ranks <= 1 {
		p.Ranks, p.Depths.ExchangeBuffers, p.Depths.GathersAhead = 0, 0, 0
		return p
	}
	p.AllIDs = min(p.Spec.Config.VocabSize, rows*tr.maxLen)
	for _, l := range p.Layouts {
		p.Shares = append(p.Shares, optim.Shares(l, smallUnits{}.Units(l), tr.ranks))
	}
	return p
}

// smallUnits is the recipe with units so small that they cut the layers of trials anywhere.
type smallUnits struct{ optim.AdamW }

func (smallUnits) Units(l model.Layout) (out []optim.Unit) {
	const each = 40
	for i, t := range l.Tensors {
		for at := int64(0); at < t.Elems() && !t.Ref; at += each {
			out = append(out, optim.Unit{Tensor: i, At: at, N: min(each, t.Elems()-at)})
		}
	}
	return out
}

// runRanks trains on all ranks at once and returns what each leaves behind. A rank that fails ends
// the run of all.
func (tr rankTrial) runRanks(t *testing.T) ([]outcome, []error) {
	t.Helper()
	worlds := local.Worlds(tr.ranks, local.Options{Seed: tr.seed, Delay: 200 * time.Microsecond})
	out, errs := make([]outcome, tr.ranks), make([]error, tr.ranks)
	var wg sync.WaitGroup
	for rank, w := range worlds {
		wg.Go(func() {
			out[rank], errs[rank] = tr.runRank(t, rank, w)
			if err := errs[rank]; err != nil {
				w.Abort(err.Error())
			} else if err := w.Close(); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	wg.Wait()
	return out, errs
}

func (tr rankTrial) runRank(t *testing.T, rank int, w ranks.World) (out outcome, err error) {
	pool := parallel.New(tr.threads)
	defer pool.Close()
	p := tr.rankPlan(rank)
	var devs []device.Device
	for range p.Lanes() {
		dev, err := tr.device()
		if err != nil {
			return out, err
		}
		defer func() { err = errors.Join(err, dev.Close()) }()
		if tr.wraps != nil {
			dev = tr.wraps(rank, dev)
		}
		devs = append(devs, dev)
	}
	var store *host.Store
	if tr.ranks > 1 {
		store, err = host.NewShareStore(p.Layouts, recipe.Planes, p.OwnShares(), pool)
	} else {
		store, err = host.NewStore(p.Layouts, recipe.Planes, pool)
	}
	if err != nil {
		return out, err
	}
	defer store.Close()
	tr.fill(store, tr.config())
	o := tr.options(devs, store, pool, p, &out)
	o.World, o.Optimizer = w, smallUnits{recipe}
	o.Batch = func(step int, eval bool) (*data.Batch, error) {
		if eval {
			step += 1000
		}
		b := data.NewRankBatch(step, tr.makeRows(step), tr.micro, rank, tr.ranks)
		return b, nil
	}
	if tr.change != nil {
		tr.change(rank, &o)
	}
	err = Run(o)
	out.state = stateOf(store)
	return out, err
}

// mustTrain trains on all ranks, which have to end well, report the same and have the same tiles,
// and puts their states together.
func (tr rankTrial) mustTrain(t *testing.T) outcome {
	t.Helper()
	all, errs := tr.runRanks(t)
	for rank, err := range errs {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", rank, tr.ranks, err)
		}
		if !slices.Equal(all[rank].steps, all[0].steps) || !slices.Equal(all[rank].evals, all[0].evals) {
			t.Fatalf("rank %d of %d reports %v and %v, rank 0 %v and %v", rank, tr.ranks, all[rank].steps, all[rank].evals, all[0].steps, all[0].evals)
		}
	}
	return tr.putTogether(t, all)
}

// putTogether makes the state of one host of those of all ranks.
func (tr rankTrial) putTogether(t *testing.T, all []outcome) outcome {
	t.Helper()
	whole := all[0]
	whole.state = slices.Clone(whole.state)
	for l := range whole.state {
		made := layerBytes{tile: whole.state[l].tile, planes: make([][]byte, len(whole.state[l].planes))}
		for rank, o := range all {
			s := o.state[l]
			if string(s.tile) != string(made.tile) {
				t.Fatalf("the tile of layer %d differs between rank %d of %d and rank 0", l, rank, tr.ranks)
			}
			made.lo = append(made.lo, s.lo...)
			for k, p := range s.planes {
				made.planes[k] = append(made.planes[k], p...)
			}
		}
		whole.state[l] = made
	}
	return whole
}

// alone is the trial on one host, with the same recipe.
func (tr rankTrial) alone(t *testing.T) outcome {
	tr.ranks = 1
	return tr.mustTrain(t)
}

// near says how far the losses and weights of two outcomes are from each other: losses relative,
// of weights the largest difference.
func (tr rankTrial) near(t *testing.T, a, b outcome) (losses, weights float64) {
	t.Helper()
	if len(a.steps) != len(b.steps) || len(a.evals) != len(b.evals) {
		t.Fatalf("%d steps and %d evaluations, and %d and %d", len(a.steps), len(a.evals), len(b.steps), len(b.evals))
	}
	for i := range a.steps {
		x, y := lossOf(t, a.steps[i]), lossOf(t, b.steps[i])
		losses = max(losses, math.Abs(x-y)/math.Abs(y))
	}
	for i := range a.evals {
		x, y := lossOf(t, a.evals[i]), lossOf(t, b.evals[i])
		losses = max(losses, math.Abs(x-y)/math.Abs(y))
	}
	x, y := tr.weights(t, a), tr.weights(t, b)
	for i := range x {
		weights = max(weights, math.Abs(float64(x[i]-y[i])))
	}
	return losses, weights
}

// weights are all weights of an outcome, exact.
func (tr rankTrial) weights(t *testing.T, o outcome) (out []float32) {
	t.Helper()
	c := tr.config()
	store, err := host.NewStore(c.Layouts(tr.bf16), recipe.Planes, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	from := tr.trial
	from.start = &o
	from.fill(store, c)
	for _, l := range store.Layers {
		for k, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			all := make([]float32, tl.Elems())
			l.ReadRows(k, 0, tl.Rows, all)
			out = append(out, all...)
		}
	}
	return out
}

// TestRanks: what several ranks train is what one host trains, up to the order of sums, the same
// on all ranks, and bit for bit the same from run to run.
func TestRanks(t *testing.T) {
	for name, change := range map[string]func(*rankTrial){
		"clip":    func(*rankTrial) {},
		"no-clip": func(tr *rankTrial) { tr.noClip = true },
	} {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s on %d", name, n), func(t *testing.T) {
				tr := together(n)
				change(&tr)
				got := tr.mustTrain(t)
				losses, weights := tr.near(t, got, tr.alone(t))
				t.Logf("losses %g weights %g", losses, weights)
				tr.seed = 2
				if again := tr.mustTrain(t); again.digest() != got.digest() || !slices.Equal(again.steps, got.steps) {
					t.Errorf("%v once, %v again", got.steps, again.steps)
				}
			})
		}
	}
}
