package team

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mt/internal/run/settings"
)

// This file is what ranks do round their steps: they agree on what the run is before anything
// takes long, on what they have loaded before the first step, and on how the run has ended.

// Elsewhere is the error of a rank that rank 0 tells too: with the same Err all ranks have ended.
type Elsewhere struct{ Err error }

// Error implements error.
func (e *Elsewhere) Error() string { return e.Err.Error() }

// Unwrap is the error that rank 0 tells.
func (e *Elsewhere) Unwrap() error { return e.Err }

// Together has f do this rank's part of a run whose ranks are those of o.World. What the others
// print goes to rank-N.log in dir, if that is known. All ranks return together and with the same
// error, or one of them has ended the run for all.
func Together(ctx context.Context, dir string, o settings.Options, f func(settings.Options, *Team) error) error {
	t, err := newTeam(ctx, o.World, *cmp.Or(o.Hooks.Beat, &UsualBeat))
	if err != nil {
		o.World.Abort(err.Error())
		return err
	}
	if !t.First() {
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
		err = f(o, t)
	}
	err = t.End(err)
	if _, left := t.ended(); left && err != nil && !t.First() {
		fmt.Fprintf(o.Stderr, "mt: %v\n", err)
		err = &Elsewhere{err}
	}
	return err
}

// openLog opens the file for what this rank would print.
func (t *Team) openLog(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, &noLog{err}
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(settings.LogFile, t.Rank())), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, &noLog{err}
	}
	fmt.Fprintf(f, "%s, of %d\n", t.Named(t.Rank()), t.Size())
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

// Refuse ends a run of several ranks of which this one cannot even begin, because of err. The
// others are told.
func Refuse(ctx context.Context, err error, o settings.Options) error {
	return Together(ctx, "", o, func(settings.Options, *Team) error { return err })
}

// abort ends the run for all ranks, from any goroutine.
func (t *Team) abort(reason string) {
	if t.log != nil {
		fmt.Fprintf(t.log, "mt: %s\n", reason)
	}
	t.Abort(reason)
}

// The ways out of ranks that differ.
const (
	SameProgram = "all hosts need the same mt"
	SameConfig  = "give all ranks the same command line and file"
	GiveIt      = "what is left to mt comes out differently on the two hosts, so give it in the configuration"
	AlikeFiles  = "all ranks must read the same files: give directories that all hosts see, or bring the copies up to date"
)
