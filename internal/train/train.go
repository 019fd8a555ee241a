package train

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"mt/internal/config"
)

// Train runs c to its end, from the newest checkpoint if there is one. Where that does
// not load, it tries again from the one before. A cancelled ctx ends the run after the
// step in progress: it is saved, and the error is ErrResumable, or ErrInterrupted where
// the keys say that nothing to resume from is saved. With a World all of its ranks train
// together.
func Train(ctx context.Context, c *config.Config, o Options) error {
	if o.World != nil && o.World.Size() > 1 {
		return together(ctx, c.OutputDir, o, func(o Options, t *team) error { return trainUntilLoaded(ctx, c, o, t) })
	}
	return trainUntilLoaded(ctx, c, o, alone(ctx))
}

// trainUntilLoaded is train, and again where a checkpoint does not load.
func trainUntilLoaded(ctx context.Context, c *config.Config, o Options, t *team) error {
	unusable := map[string]string{}
	for {
		err := train(ctx, c, o, t, maps.Clone(unusable))
		var bad *doesNotLoad
		if !errors.As(err, &bad) {
			return err
		}
		unusable[bad.dir] = bad.err.Error()
	}
}

func train(ctx context.Context, c *config.Config, o Options, t *team, unusable map[string]string) (err error) {
	r, err := openRun(c, o, Asks{Team: t, Run: true}, unusable)
	if err != nil {
		return err
	}
	defer closeAfter(r, &err)
	done, err := agreeOnRun(r.Resolved, o.Version)
	if err != nil {
		return err
	}
	if f := o.hooks.planned; f != nil {
		f(r)
	}
	news, from := newsOf(r.devs), r.from
	showAll(o.Stderr, r.allNotes(), news.take())
	if over := from.over || from.ended && from.state.Step < r.c.MaxSteps; over || from.state.Step >= r.c.MaxSteps {
		why := ""
		if over {
			why = fmt.Sprintf(", ended by early stopping; a larger early_stopping_patience than %d goes on", r.c.EarlyStoppingPatience)
		}
		fmt.Fprintf(o.Stdout, "%s is at step %d of %d: training is done%s\n", from.dir, from.state.Step, r.c.MaxSteps, why)
		if from.ended || done {
			if t.first() {
				r.dropCheckpoints()
				drawCurve(r.dir(), r.late.add) // the run itself may have failed to
			}
			showAll(o.Stderr, r.late.take())
			return r.sweepStates()
		}
	}
	if t.stopped(ctx) {
		return ErrResumable
	}
	if err := show(r, o.Stderr, false, outlook{}); err != nil {
		return err
	}
	return run(ctx, r, news, o)
}

// openRun opens what a training run of c needs, finds where it goes on from and
// plans it. Nothing is allocated or written yet.
func openRun(c *config.Config, o Options, a Asks, unusable map[string]string) (_ *Output, err error) {
	in, err := Open(c, o, a)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAfter(in, &err)
		}
	}()
	start, err := Find(in, unusable)
	if err != nil {
		return nil, err
	}
	r, err := Resolve(start)
	if err != nil {
		return nil, err
	}
	out := newOutput(r)
	if !r.from.ended && r.team.first() {
		note, err := out.checkDisk()
		if err != nil {
			return nil, err
		}
		if note != "" && r.plan.Away == nil { // else it is asked again when the states have their room
			out.notes = append(out.notes, note)
		}
	}
	return out, nil
}

// DryRun does what Train does before it takes memory, and prints what the run
// would take, on disk as well.
func DryRun(c *config.Config, o Options) error {
	return printPlan(c, o, func(o Options) (*Output, error) { return openRun(c, o, Asks{Run: true, Paper: true}, nil) })
}
