package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mt/base/cluster"
	"mt/base/human"
	"mt/internal/run/config"
	"mt/internal/run/ranks"
	"mt/internal/run/settings"
)

// Exit codes.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitPipe        = 128 + int(syscall.SIGPIPE) // what a shell says of a program that the signal ended
)

func main() {
	survivePipes()
	ctx, stop := interruptible(ofFirst(os.Stderr))
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, interactive: term.IsTerminal(int(os.Stderr.Fd())),
		asks:   term.IsTerminal(int(os.Stdin.Fd())),
		colour: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == ""}
	code := a.run(ctx, os.Args[1:])
	stop()
	cluster.Exit(code)
}

// checkedWriter keeps the first error of w, so that output which did not arrive
// is a failure even where nobody looked.
type checkedWriter struct {
	w     io.Writer
	err   error
	spare bool // the run can do without what is written: errors are ignored
}

// Write implements io.Writer.
func (c *checkedWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	if c.spare {
		return len(b), nil
	}
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// eraseLine empties the line that a terminal's cursor is on.
const eraseLine = "\r\x1b[K"

// app is a run of the command: its streams, and what tests replace.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	out            *checkedWriter                  // stdout, while a command runs
	interactive    bool                            // stderr is a terminal
	asks           bool                            // stdin is a terminal
	colour         bool                            // stdout is a terminal, and colours are not switched off
	keys           map[*cobra.Command]*config.Args // the config keys given to each command that takes them
	args           []string                        // the command line, without the program's name
	world          cluster.World                   // the ranks that train together; nil: there is one
	ranksEnded     bool                            // they have ended together
}

// run executes a command line and returns the exit code. An error is printed
// once, on one line unless it lists several mistakes. A panic is a broken
// invariant: one line too, with its trace when MT_DEBUG is 1.
func (a *app) run(ctx context.Context, args []string) (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(a.stderr, "mt: internal error, please report it: %v (MT_DEBUG=1 shows where)\n", r)
			if os.Getenv("MT_DEBUG") == "1" {
				fmt.Fprintf(a.stderr, "%s", debug.Stack())
			}
			code = exitFailed
		}
	}()
	out := &checkedWriter{w: a.stdout}
	a.stdout, a.out, a.args = out, out, args
	err := a.execute(ctx, args)
	if err == nil {
		err = out.err
	}
	defer a.leave() // when this rank has said what there is to say
	var other otherRank
	var shared *ranks.SharedError
	switch {
	case err == nil, errors.As(err, &other):
		return exitDone
	case errors.As(err, &shared):
		return exitCode(ctx, err)
	case out.err != nil && errors.Is(err, syscall.EPIPE):
		return exitPipe // as `mt ... | head` wants it
	}
	if a.interactive {
		fmt.Fprint(a.stderr, eraseLine) // a progress line may stand there
	}
	fmt.Fprintf(a.stderr, "mt: %s\n", human.Screen(err.Error()))
	return exitCode(ctx, err)
}

// exitCode is the code for err; ctx tells whether the user interrupted.
func exitCode(ctx context.Context, err error) int {
	interrupted := errors.Is(context.Cause(ctx), settings.ErrInterrupted)
	switch {
	case errors.Is(err, settings.ErrInterrupted), interrupted && errors.Is(err, context.Canceled):
		return exitInterrupted
	case config.IsUsage(err):
		return exitUsage
	}
	return exitFailed
}
