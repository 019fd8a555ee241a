package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"mt/internal/run/config"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/model"
)

func (a *app) importCommand() *cobra.Command {
	var from, out string
	c := &cobra.Command{
		Use:   "import CONFIG [--out FILE]",
		Short: "Write a config of LLaMA-Factory, axolotl, torchtune or TRL as one of mt",
		Long: `Import reads a config of another trainer and writes one of mt, with a comment for
every key of theirs: kept, renamed, of no meaning here and why, or not possible
and why. Defaults of theirs that are not those of mt are written out. What is
not possible is also printed, and the config is written without it.

mt train takes such a config as it is, where nothing of it is lost.

  --out FILE   where to write it; it must not be there (default: print it)
  --from TOOL  whose config it is: ` + strings.Join(config.ToolWords(), ", ") + `
               (default: its keys tell)`,
		Example: `  mt import examples/train_full/qwen3_full_sft.yaml --out qwen3.yaml
  mt plan qwen3.yaml`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return config.Usagef("import: takes one config file, got %q (see %s --help)", args, c.CommandPath())
			}
			return a.importConfig(c.Context(), args[0], from, out)
		},
	}
	c.Flags().StringVar(&from, "from", "", "")
	c.Flags().StringVar(&out, "out", "", "")
	return c
}

// importConfig converts the config in file, from another tool, to one of mt. `from` names the tool; "" means that the
// keys decide. It writes the result to the file out; if out is "", it prints the result.
func (a *app) importConfig(ctx context.Context, file, from, out string) error {
	im, err := config.ReadImport(file, from)
	if err != nil {
		return err
	}
	text := im.YAML()
	cfg, err := im.Config()
	if err != nil {
		return fmt.Errorf("%w\n(these are lines of what `mt import` would write; mend %s where they come from)", err, file)
	}
	for _, lost := range im.Lost() {
		fmt.Fprintf(a.stderr, "mt: %v\n", lost)
	}
	for _, note := range im.Notes {
		fmt.Fprintf(a.stderr, "mt: %s\n", note)
	}
	a.judgeModel(ctx, cfg)
	if out == "" {
		_, err := a.stdout.Write(text)
		return err
	}
	f, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return config.Usagef("--out %s: there is such a file already; name another, or remove it", out)
	case err != nil:
		return config.Usagef("--out %w", err)
	}
	_, err = bytes.NewReader(text).WriteTo(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	fmt.Fprintf(a.stderr, "mt: a config of %s, written to %s; see what it takes with `mt plan %[2]s`\n", im.Tool, out)
	return nil
}

// plentiful is more memory in bytes than any plan needs.
const plentiful = 1 << 50

// judgeModel prints a warning if mt does not support the model, or if c cannot be planned even with more memory than
// any plan needs. It does nothing if the model is not on this machine.
func (a *app) judgeModel(ctx context.Context, c *config.Config) {
	if c.Model.Path == "" {
		return
	}
	dir, err := config.ModelDir(c.Model.Path)
	if err != nil {
		return // the model is not here yet
	}
	if _, err := model.LoadDir(dir); err != nil {
		fmt.Fprintf(a.stderr, "mt: the config is read, but mt cannot train this model: %v\n", err)
		return
	}
	c = c.Clone()
	c.HostMemory, c.DeviceMemory, c.Device = plentiful, plentiful, "cpu"
	if err := predict.Plan(ctx, c, settings.Options{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		fmt.Fprintf(a.stderr, "mt: the config is read, but cannot be planned with this model: %v\n", err)
	}
}
