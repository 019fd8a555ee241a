package run

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/ranks"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/resume"
	"mt/internal/run/save"
	"mt/internal/run/session"
	"mt/internal/run/settings"
)

// Train runs c to its end, from the newest checkpoint if there is one. If that checkpoint does not
// load, Train tries the one before. If ctx is cancelled, the run ends after the current step, which
// is saved. The error is then ErrResumable, or ErrInterrupted if the keys say that no resumable
// state is saved. If o.World has several ranks, all of them must call Train and train together.
func Train(ctx context.Context, c *config.Config, o settings.Options) error {
	if o.World != nil && o.World.Size() > 1 {
		return ranks.Run(ctx, c.OutputDir, o, func(o settings.Options, t *ranks.Group) error { return trainUntilLoaded(ctx, c, o, t) })
	}
	return open.OrCopied(c, o, func(c *config.Config) error { return trainUntilLoaded(ctx, c, o, ranks.Alone(ctx)) })
}

// trainUntilLoaded calls train. If a checkpoint does not load, it calls train again, which then resumes from the
// checkpoint before it.
func trainUntilLoaded(ctx context.Context, c *config.Config, o settings.Options, t *ranks.Group) error {
	unusable := map[string]string{}
	for {
		err := train(ctx, c, o, t, maps.Clone(unusable))
		var bad *resume.DoesNotLoad
		if !errors.As(err, &bad) {
			return err
		}
		unusable[bad.Dir] = bad.Err.Error()
	}
}

func train(ctx context.Context, c *config.Config, o settings.Options, t *ranks.Group, unusable map[string]string) (err error) {
	r, err := openRun(c, o, open.Asks{Ranks: t, Run: true}, unusable)
	if err != nil {
		return err
	}
	defer open.CloseAfter(r, &err)
	done, err := agreeOnRun(r.Resolved, o.Version)
	if err != nil {
		return err
	}
	if f := o.Hooks.Planned; f != nil {
		f(r)
	}
	news, from := report.NotesOf(r.Devices), r.From
	report.ShowAll(o.Stderr, r.AllNotes(), news.Take())
	if over := from.Over || from.Ended && from.State.Step < r.Config.MaxSteps; over || from.State.Step >= r.Config.MaxSteps {
		why := ""
		if over {
			why = fmt.Sprintf(", ended by early stopping; a larger early_stopping_patience than %d goes on", r.Config.EarlyStoppingPatience)
		}
		fmt.Fprintf(o.Stdout, "%s is at step %d of %d: training is done%s\n", from.Dir, from.State.Step, r.Config.MaxSteps, why)
		if from.Ended || done {
			if t.First() {
				r.DropCheckpoints()
				report.DrawCurve(r.Dir(), r.DeferredNotes.Add) // drawn again, because the run may have failed before it drew the picture
			}
			report.ShowAll(o.Stderr, r.DeferredNotes.Take())
			return r.SweepStates()
		}
	}
	if t.Stopped(ctx) {
		return settings.ErrResumable
	}
	if err := predict.Show(r, o.Stderr, false, predict.Outlook{}); err != nil {
		return err
	}
	return session.Run(ctx, r, news, o)
}

// openRun opens what a training run of c needs, finds where it resumes, and plans it. It allocates no large memory and
// writes nothing. unusable maps checkpoints that it must not resume to the reasons.
func openRun(c *config.Config, o settings.Options, a open.Asks, unusable map[string]string) (_ *save.Output, err error) {
	in, err := open.Open(c, o, a)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			open.CloseAfter(in, &err)
		}
	}()
	start, err := resume.Find(in, unusable)
	if err != nil {
		return nil, err
	}
	r, err := resolve.Resolve(start)
	if err != nil {
		return nil, err
	}
	out := save.NewOutput(r)
	if !r.From.Ended && r.Ranks.First() {
		note, err := out.CheckDisk()
		if err != nil {
			return nil, err
		}
		if note != "" && r.Plan.StateOnDisk == nil { // otherwise it is checked again after the files of states have taken their space
			out.Notes = append(out.Notes, note)
		}
	}
	return out, nil
}

// DryRun does what Train does before it allocates memory, and prints the run's needs, including disk space.
func DryRun(ctx context.Context, c *config.Config, o settings.Options) error {
	return predict.Print(ctx, c, o, func(o settings.Options) (*save.Output, error) {
		return openRun(c, o, open.Asks{Run: true, Paper: true}, nil)
	})
}
