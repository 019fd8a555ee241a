package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mt/internal/run/config"
	"mt/internal/run/settings"
)

// root returns the command tree.
func (a *app) root() *cobra.Command {
	a.keys = map[*cobra.Command]*config.Args{}
	root := &cobra.Command{
		Use:   "mt",
		Short: "Train large language models in full precision, on GPUs whose memory they do not fit",
		Long: `mt trains large language models, all parameters, in full precision, on GPUs whose
memory they do not fit, or on the CPU. From a first config to a model that others load:

  mt init                             five questions; writes run.yaml and says whether it fits
  mt train run.yaml --dashboard       train, with the address of a page that shows the run
  mt watch out/run out/other          the same page later, for several runs
  mt train run.yaml                   after Ctrl-C or a power cut: resume
  mt generate --model out/run --chat  chat with the model, or --prompt TEXT
  mt export --model out/run --format gguf --out run.gguf

mt doctor says what this machine has and what slows it down. Exit codes: 0 done,
1 failed, 2 bad usage or configuration, 130 interrupted (the same command resumes).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
	}
	// Cobra's own --version uses text/template, which makes the linker keep every exported method.
	version := root.Flags().BoolP("version", "v", false, "version for mt")
	root.RunE = func(c *cobra.Command, args []string) error {
		if !*version {
			return group(c, args)
		}
		_, err := fmt.Fprintln(a.stdout, thisVersion())
		return err
	}
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		switch c.Name() {
		case "train", "doctor": // these check for themselves
			return nil
		}
		return alone(strings.TrimPrefix(c.CommandPath(), "mt "), "it is for one process: start it by itself, once")
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetGlobalNormalizationFunc(config.Dashes)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		if ours := (*config.UsageError)(nil); errors.As(err, &ours) {
			err = ours // drop pflag's wording
		}
		return config.Usagef("%w (see %s --help)", err, c.CommandPath())
	})
	root.AddCommand(a.initCommand(), a.trainCommand(), a.planCommand(), a.tuneCommand(), a.evalCommand(), a.generateCommand(), a.exportCommand(), a.benchCommand(),
		a.watchCommand(), a.doctorCommand(), a.dataCommand(), a.importCommand(), a.versionCommand(), a.manCommand())
	return root
}

// group runs a command that only has subcommands when the user names none of them. It prints the command's help, or
// rejects an unknown subcommand.
func group(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	hint := ""
	c.SuggestionsMinimumDistance = 2
	if near := c.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", near[0])
	}
	return config.Usagef("unknown command %q%s (see %s --help)", args[0], hint, c.CommandPath())
}

// noArgs is the Args function of a command without arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return config.Usagef("%s: takes no arguments, got %q", c.Name(), args)
	}
	return nil
}

// options returns the settings that every run takes from the command line.
func (a *app) options(asJSON bool) settings.Options {
	o := settings.Options{Stdout: a.stdout, Stderr: a.stderr, JSON: asJSON, Interactive: a.interactive, World: a.world}
	if a.world != nil {
		program, _ := os.Executable() // on failure only versions are compared
		o.Version = thisVersion().build(program)
	}
	return o
}

// keyed adds a flag for every config key to the command c. When c is executed, it calls run with the configuration
// from these flags and at most one config file.
func (a *app) keyed(c *cobra.Command, run func(c *cobra.Command, cfg *config.Config) error) *cobra.Command {
	keys := &config.Args{}
	keys.AddTo(c.Flags())
	c.InitDefaultHelpFlag()
	a.keys[c] = keys
	c.DisableFlagsInUseLine = true
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		hideFlags(c)
		c.Root().HelpFunc()(c, args)
	})
	complete(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 1:
			return config.Usagef("%s: takes one config file, got %q; commas separate the values of a list", c.Name(), args)
		case len(args) == 0 && c.Flags().NFlag() == 0:
			return config.Usagef("%s: give %s (see %s --help)", c.Name(), strings.TrimPrefix(c.Use, c.Name()+" "), c.CommandPath())
		}
		cfg, err := config.Load(strings.Join(args, ""), *keys)
		if err != nil {
			return err
		}
		return run(c, cfg)
	}
	return c
}

// hideFlags hides the flags of a keyed command from its help, because Long lists them in groups.
func hideFlags(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = f.Name != "help" })
}

// complete adds shell completion to a keyed command: config files, and the values of keys with few choices.
func complete(c *cobra.Command) {
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	for flag, values := range config.Choices() {
		if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // every key is a flag
		}
	}
}

// execute parses a command line and runs the command.
func (a *app) execute(ctx context.Context, args []string) error {
	root := a.root()
	c, _, err := root.Find(args)
	if keys := a.keys[c]; err == nil && keys != nil {
		if args, err = keys.Spell(c.Flags(), args); err != nil {
			return c.FlagErrorFunc()(c, err)
		}
	}
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// keyHelp returns text followed by the table of config keys: of all keys, or of the common ones.
func keyHelp(text string, all bool) string {
	var b bytes.Buffer
	b.WriteString(text)
	if err := config.Help(&b, all); err != nil {
		panic(err) // a buffer never fails
	}
	return strings.TrimRight(b.String(), "\n")
}

// tabled is a report of a command that can print itself as a table.
type tabled interface{ WriteTable(w io.Writer) error }

// report prints r as a table, or as JSON.
func (a *app) report(r tabled, asJSON bool) error {
	if asJSON {
		return a.json(r)
	}
	return r.WriteTable(a.stdout)
}

// json prints v as indented JSON.
func (a *app) json(v any) error {
	e := json.NewEncoder(a.stdout)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
