package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"

	"mt/base/cluster"
	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/ranks"
	"mt/internal/run/settings"
)

// otherRank is the error of a rank other than 0 that leaves the message to rank 0. Such a rank exits with code 0,
// since a launcher that sees a failure may kill rank 0 before it has printed the message.
type otherRank struct{}

// Error implements error. The text is never printed.
func (otherRank) Error() string { return "rank 0 says what is wrong" }

// launched returns the rank of this process and the number of ranks, as the launcher has set them. If a launcher
// without MPI started several processes, rank 0 returns a UsageError that begins with command, and other ranks return
// otherRank.
func launched(command string) (cluster.Launch, error) {
	l, err := cluster.LaunchOf(os.Getenv)
	switch {
	case err != nil && l.Rank > 0:
		return l, otherRank{}
	case err != nil:
		return l, config.Usagef("%s: %w", command, err)
	}
	return l, nil
}

// alone returns an error if several ranks were started for command, which one process must execute. `why` gives the
// reason in the error.
func alone(command, why string) error {
	l, err := launched(command)
	switch {
	case err != nil || l.Size == 1:
		return err
	case l.Rank > 0:
		return otherRank{}
	}
	return config.Usagef("%s: %s has started %d ranks, and %s", command, l.By, l.Size, why)
}

// ofFirst returns w on rank 0, and on other ranks a writer that discards everything. All ranks receive the same
// signals, so one of them is enough to report them.
func ofFirst(w io.Writer) io.Writer {
	if l, _ := cluster.LaunchOf(os.Getenv); l.Rank > 0 {
		return io.Discard
	}
	return w
}

// asRank runs a command that several ranks execute together. It connects the ranks, if there are several, in a.world
// and calls f on each of them.
func (a *app) asRank(ctx context.Context, command string, f func() error) error {
	l, err := launched(command)
	if err != nil {
		return err
	}
	if l.Size == 1 {
		return f()
	}
	if a.world, err = meetOthers(ctx, l); err != nil {
		return fmt.Errorf("%s: rank %d: %w", command, l.Rank, err)
	}
	err = f()
	if !a.ranksEnded && err != nil { // f failed before run.Train
		err = ranks.Refuse(ctx, err, a.options(false))
		a.ranksEnded = true
	}
	return err
}

// meetOthers starts MPI and returns when all ranks have done so. If a rank has already exited, that never happens. A
// signal ends the wait.
func meetOthers(ctx context.Context, l cluster.Launch) (cluster.World, error) {
	type met struct {
		cluster.World
		error
	}
	done := make(chan met, 1)
	go func() {
		w, err := cluster.Start(cluster.Find(cluster.ThisMachine(), l), l, cluster.Options{})
		done <- met{w, err}
	}()
	select {
	case m := <-done:
		return m.World, m.error
	case <-ctx.Done():
	}
	select {
	case m := <-done: // both at once: the ranks end together
		return m.World, m.error
	default:
		return nil, fmt.Errorf("%w while it waited for the other ranks to start", settings.ErrInterrupted)
	}
}

// leave ends this process's part in the ranks, if all ranks have ended the command together. It waits for the other
// ranks, because some launchers kill rank 0 when another rank exits first.
func (a *app) leave() {
	if !a.ranksEnded || a.world == nil {
		return
	}
	_, err := a.world.NewComm("the end")
	if err == nil {
		err = a.world.Close()
	}
	if err != nil {
		fmt.Fprintf(a.stderr, "mt: %v\n", err)
	}
}

// exchange is the part of mt doctor's report that concerns all ranks.
type exchange struct {
	All   []doctor.Rank `json:"all"`
	Rates cluster.Rates `json:"rates"`
}

// passingExchange is the size in bytes of the exchange that mt doctor measures. It takes about a second between ranks
// on one machine.
const passingExchange = 32 << 20

// examineRanks adds the findings of all ranks to h, the findings of this rank. Rank 0 prints the report. problem is
// the error that kept this rank from a full inspection; nil: none. If one rank cannot continue, all ranks end.
func (a *app) examineRanks(h health, problem error, l cluster.Launch, asJSON bool) error {
	w, err := cluster.Start(h.MPI, l, cluster.Options{})
	if err != nil {
		return fmt.Errorf("doctor: rank %d: %w", l.Rank, err)
	}
	own := doctor.Rank{Rank: w.Rank(), Host: w.Hosts()[w.Rank()], Threads: h.Threads, Cores: runtime.NumCPU(),
		Online: doctor.OnlineCores(os.DirFS("/")), Broken: h.Checks.BrokenNames()}
	if problem != nil {
		own.Problem = problem.Error()
	}
	x, err := compare(w, own)
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if w.Rank() == 0 {
		h.Ranks, h.Checks = x, append(h.Checks, doctor.CheckRanks(x.All, x.Rates)...)
		if err := a.report(h, asJSON); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	broken := 0
	for _, r := range x.All {
		if len(r.Broken) > 0 || r.Problem != "" {
			broken++
		}
	}
	switch {
	case w.Rank() > 0:
		return nil // like otherRank
	case problem != nil:
		return problem
	case broken > 0:
		return fmt.Errorf("doctor: something is broken on the machines of %d of %d ranks; the report says what to do", broken, w.Size())
	}
	return nil
}

// compare sends own, the findings of this rank, to all ranks, receives theirs, and measures the rates of exchanges
// between the ranks.
func compare(w cluster.World, own doctor.Rank) (*exchange, error) {
	c, err := w.NewComm("doctor")
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	texts, err := cluster.GatherAll(w, c, text)
	if err != nil {
		return nil, err
	}
	x := &exchange{All: make([]doctor.Rank, len(texts))}
	for r, text := range texts {
		if err := json.Unmarshal(text, &x.All[r]); err != nil {
			return nil, fmt.Errorf("what rank %d tells: %w", r, err)
		}
	}
	x.Rates, err = cluster.Measure(w, c, passingExchange)
	return x, err
}
