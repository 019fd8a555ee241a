package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "a regular `expression`: mutations whose file, texts or test match it")
	timeout := flag.Duration("timeout", time.Minute, "how long a test may take before it counts as hanging, which is noticed too")
	list := flag.Bool("list", false, "list them and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := mutate(ctx, *only, *timeout, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		stop()
		os.Exit(1)
	}
}

// mutate runs the mutations that only matches, or lists them.
func mutate(ctx context.Context, only string, timeout time.Duration, list bool) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("no arguments are taken, and %q is one: -only %q chooses mutations", flag.Arg(0), flag.Arg(0))
	}
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	var chosen []mutation
	for _, m := range all() {
		if wanted.MatchString(m.file + "\n" + m.from + "\n" + m.to + "\n" + m.in + " " + m.test) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutation matches -only %q", only)
	}
	if list {
		for _, m := range chosen {
			fmt.Printf("%s\n%s\n", m.file, m.show())
		}
		return nil
	}
	return runAll(ctx, root, chosen, timeout)
}

// moduleRoot is the folder of the module in which the command is run.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	file := strings.TrimSpace(string(out))
	if filepath.Base(file) != "go.mod" {
		return "", errors.New("this is no folder of a module: run it in a clone of the repository")
	}
	return filepath.Dir(file), nil
}

// show is the mutation as lines of text.
func (m mutation) show() string {
	text := indent("- ", m.from) + indent("+ ", m.to)
	if m.same != "" {
		return text + "  changes nothing: " + m.same
	}
	return text + "  noticed by " + m.test + " in " + m.in
}

func indent(mark, text string) string {
	return "  " + mark + strings.ReplaceAll(text, "\n", "\n  "+mark) + "\n"
}
