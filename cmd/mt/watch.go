package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"mt/internal/run/config"
	"mt/internal/watch"
)

func (a *app) watchCommand() *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "watch OUTPUT_DIR [OUTPUT_DIR...]",
		Short: "Show runs in a browser: under way, ended, side by side",
		Long: `Watch serves a page with the curves, the stalls, the memory, the timeline of the
last step, the samples and the configuration of runs, read from their output
directories. It follows runs that are under way, in whatever process. Several
are shown in one chart each. Ctrl-C ends it.

The page is at port 8383 of this machine, or at another where that is in use.
Only who has the address that is printed, with its token, can read it. From
another machine: ssh -L 8383:127.0.0.1:8383 THIS_MACHINE.

mt train --dashboard serves the same page from within a run.`,
		Example: `  mt watch out/quickstart
  mt watch out/lr-1e-4 out/lr-3e-4
  mt watch out/quickstart --address 9000
  mt watch out/quickstart --address 0.0.0.0:8383`,
		RunE: func(c *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				return config.Usagef("watch: give the output_dir of a run, or of several (see mt watch --help)")
			}
			return a.watch(c, dirs, address)
		},
	}
	c.Flags().StringVar(&address, "address", "", "where to serve: PORT, HOST or HOST:PORT (default: port 8383 of this machine)")
	return c
}

// maxRuns is the largest number of runs on a page. More curves cannot be told apart.
const maxRuns = 24

// watch serves a page that shows the runs in dirs on address, until it is interrupted.
func (a *app) watch(c *cobra.Command, dirs []string, address string) error {
	if len(dirs) > maxRuns {
		return config.Usagef("watch: %d runs, and a page shows %d at most: choose some", len(dirs), maxRuns)
	}
	for _, dir := range dirs {
		if err := watch.CheckRun(dir); err != nil {
			return config.Usagef("watch: %w", err)
		}
	}
	var at watch.Address
	if c.Flags().Changed("address") {
		var err error
		if at, err = watch.ParseAddress(address); err != nil {
			return config.Usagef("--address: %w", err)
		}
	}
	l, note, err := watch.Listen(at)
	if err != nil {
		return config.Usagef("--address: %w", err)
	}
	if note != "" {
		fmt.Fprintln(a.stderr, "note:", note)
	}
	failed := make(chan error, 1)
	s := watch.Serve(l, watch.Options{Dirs: dirs, Address: at, Warn: func(err error) { failed <- err }})
	defer s.Close()
	fmt.Fprintf(a.stdout, "%s\n", s.URL())
	if a.out.err != nil {
		return a.out.err // without the printed address nobody can open the page
	}
	select {
	case <-c.Context().Done():
		return nil
	case err := <-failed:
		return fmt.Errorf("watch: %w", err)
	}
}
