package ranks

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mt/internal/run/settings"
)

// This file has the meetings around a rank's steps. Ranks agree on the configuration before slow work, on the loaded
// weights before the first step, and on how the run has ended.

// SharedError is the error of a rank other than 0 when all ranks end with Err. The rank writes Err to its own log, and
// only rank 0 shows it to the user.
type SharedError struct{ Err error }

// Error implements error.
func (e *SharedError) Error() string { return e.Err.Error() }

// Unwrap returns the error that rank 0 prints.
func (e *SharedError) Unwrap() error { return e.Err }

// Run calls f for this rank's part of a run on the ranks of o.World. Ranks other than 0 print to rank-N.log in
// dir; dir "": they print nothing. All ranks return with the same error, or one of them has aborted the run for
// all.
func Run(ctx context.Context, dir string, o settings.Options, f func(settings.Options, *Group) error) error {
	t, err := newGroup(ctx, o.World, *cmp.Or(o.Hooks.Heartbeat, &DefaultHeartbeat))
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
		err = &SharedError{err}
	}
	return err
}

// openLog opens the file for this rank's output.
func (t *Group) openLog(dir string) (*os.File, error) {
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

// Unwrap returns the cause.
func (e *noLog) Unwrap() error { return e.err }

// Refuse ends a run of several ranks because this rank cannot even start. err is the reason, which the other ranks are
// told.
func Refuse(ctx context.Context, err error, o settings.Options) error {
	return Run(ctx, "", o, func(settings.Options, *Group) error { return err })
}

// abort aborts the run for all ranks, from any goroutine.
func (t *Group) abort(reason string) {
	if t.log != nil {
		fmt.Fprintf(t.log, "mt: %s\n", reason)
	}
	t.Abort(reason)
}

// Advice to users when ranks differ.
const (
	SameProgram = "all hosts need the same mt"
	SameConfig  = "give all ranks the same command line and file"
	GiveIt      = "what is left to mt comes out differently on the two hosts, so give it in the configuration"
	AlikeFiles  = "all ranks must read the same files: give directories that all hosts see, or bring the copies up to date"
)
