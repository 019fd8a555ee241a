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
	exitPipe        = 128 + int(syscall.SIGPIPE) // the shell's code for a program that SIGPIPE ended
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

// checkedWriter passes output to w and remembers the first error. The command then fails because of lost output even
// if the code that prints ignores the error.
type checkedWriter struct {
	w     io.Writer
	err   error
	spare bool // ignore errors: the command works without this output
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

// eraseLine is the terminal code that clears the line of the cursor, where progress may stand.
const eraseLine = "\r\x1b[K"

// app is one run of the program: its streams, and values that tests replace.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	out            *checkedWriter                  // stdout, while a command runs
	interactive    bool                            // stderr is a terminal
	asks           bool                            // stdin is a terminal
	colour         bool                            // stdout is a terminal, and NO_COLOR is not set
	keys           map[*cobra.Command]*config.Args // config keys given to each command that takes them
	args           []string                        // the command line without the program name
	world          cluster.World                   // the ranks of the run; nil: one process
	ranksEnded     bool                            // all ranks have ended the command together, so leave must meet them
}

// run executes a command line and returns the exit code. It prints an error once, on one line unless the error lists
// several mistakes. A panic is also printed on one line, with a stack trace if MT_DEBUG is 1.
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
	defer a.leave() // after this rank's last output
	var other otherRank
	var shared *ranks.SharedError
	switch {
	case err == nil, errors.As(err, &other):
		return exitDone
	case errors.As(err, &shared):
		return exitCode(ctx, err)
	case out.err != nil && errors.Is(err, syscall.EPIPE):
		return exitPipe // as expected in `mt ... | head`
	}
	if a.interactive {
		fmt.Fprint(a.stderr, eraseLine) // a progress line may be there
	}
	fmt.Fprintf(a.stderr, "mt: %s\n", human.Screen(err.Error()))
	return exitCode(ctx, err)
}

// exitCode returns the exit code for a command that ended with err. ctx is the command's context, which a signal
// cancels.
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
