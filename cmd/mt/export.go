package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mt/checkpoint/export"
	"mt/internal/run/config"
	"mt/internal/run/open"
)

// exportFlags holds the flags of mt export.
type exportFlags struct {
	format, model, out, outtype, shard string
	overwrite, json                    bool
}

func (a *app) exportCommand() *cobra.Command {
	var f exportFlags
	c := &cobra.Command{
		Use:   "export --format gguf|safetensors --model DIR --out PATH",
		Short: "Write a model for llama.cpp, or cut its files anew",
		Long: `Export writes a model directory in another form. GGUF is one file for llama.cpp
and what is built on it, with the tokenizer and the chat template inside.
Safetensors is a directory as before, its weights in files of another size or
type.

The output appears under its name when it is complete. Weights are read and
written in pieces: memory does not grow with the model.`,
		Example: `  mt export --format gguf --model out/chat --out chat.gguf --outtype q8_0
  mt export --format safetensors --model out/chat --out chat-bf16 --outtype bf16 --max-shard-size 2GB`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.export(c, f) },
	}
	c.Flags().StringVar(&f.format, "format", "", "gguf or safetensors")
	c.Flags().StringVar(&f.model, "model", "", "the model directory, or a Hub id in the local cache")
	c.Flags().StringVar(&f.out, "out", "", "the file (gguf) or the directory (safetensors) to write")
	c.Flags().StringVar(&f.outtype, "outtype", "", "type of the matrices: f32, f16, bf16 or q8_0 with gguf (default: bf16 where the weights are, else f16); "+
		"f32 or bf16 with safetensors (default: as they are)")
	c.Flags().StringVar(&f.shard, "max-shard-size", "5GB", "with safetensors: the size where a file ends")
	c.Flags().BoolVar(&f.overwrite, "overwrite", false, "take the place of what is there")
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	for alias, name := range exportAliases {
		same := *c.Flags().Lookup(name)
		same.Name, same.Hidden = alias, true
		c.Flags().AddFlag(&same)
	}
	return c
}

// exportAliases are flag names of other tools: of llama.cpp's converter, and of tools that write model directories.
var exportAliases = map[string]string{
	"outfile": "out", "output": "out", "output-dir": "out", "model-name-or-path": "model",
	"type": "outtype", "dtype": "outtype", "save-dtype": "outtype", "shard-size": "max-shard-size",
}

// export runs mt export.
func (a *app) export(c *cobra.Command, f exportFlags) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	dir, note, err := open.NewestModel(o.Model)
	if err != nil {
		return err
	}
	if o.Model = dir; note != "" {
		fmt.Fprintf(a.stderr, "note: %s, which is taken\n", note)
	}
	line := &exportLine{w: a.stderr, live: a.interactive, now: time.Now, began: time.Now()}
	o.Progress = line.show
	if o.Format == export.GGUF && c.Flags().Changed("max-shard-size") {
		fmt.Fprintln(a.stderr, "note: --max-shard-size has no effect with gguf, which is one file")
	}
	s, err := export.Run(c.Context(), o)
	line.clear()
	if err != nil {
		return err
	}
	if !f.json {
		for _, n := range s.Notes {
			fmt.Fprintln(a.stderr, "note:", n)
		}
	}
	return a.report(exported{s}, f.json)
}

// options checks the flags and converts them to export.Options.
func (f exportFlags) options() (export.Options, error) {
	o := export.Options{Format: export.Format(f.format), Out: f.out, Overwrite: f.overwrite}
	for _, need := range []struct{ name, value, what string }{
		{"format", f.format, "give --format gguf or --format safetensors"},
		{"model", f.model, "give --model DIR"},
		{"out", f.out, "give --out PATH"},
	} {
		if need.value == "" {
			return o, config.Usagef("export: no %s: %s (see mt export --help)", need.name, need.what)
		}
	}
	if o.Format != export.GGUF && o.Format != export.Safetensors {
		return o, config.Usagef("--format: must be gguf or safetensors, not %s", f.format)
	}
	o.Type = export.Type(strings.ToLower(f.outtype))
	if o.Type == "fp32" || o.Type == "fp16" {
		o.Type = "f" + o.Type[2:]
	}
	if types := o.Format.Types(); o.Type != "" && !slices.Contains(types, o.Type) {
		return o, config.Usagef("--outtype: must be one of %v with %s, not %s", types, o.Format, f.outtype)
	}
	n, err := humanize.ParseBytes(f.shard)
	if err != nil || n == 0 || n > 1<<62 {
		return o, config.Usagef("--max-shard-size: must be a size such as 5GB, not %s", f.shard)
	}
	o.MaxShardBytes = int64(n)
	o.Model, err = config.ModelDir(f.model)
	if err != nil {
		return o, config.Usagef("--model: %w", err)
	}
	return o, nil
}

// exportLine prints the progress of an export as a single line, which it redraws. It prints nothing
// unless the output is a terminal (live).
type exportLine struct {
	w     io.Writer
	live  bool
	now   func() time.Time
	began time.Time
	last  time.Time
}

func (l *exportLine) show(done, total int64) {
	now := l.now()
	if !l.live || now.Sub(l.last) < 200*time.Millisecond {
		return
	}
	l.last = now
	rate := float64(done) / max(now.Sub(l.began).Seconds(), 1e-3)
	left := time.Duration(float64(total-done) / max(rate, 1) * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(l.w, "%swriting %s of %s, %s/s, %v left", eraseLine, humanize.IBytes(uint64(done)), humanize.IBytes(uint64(total)),
		humanize.IBytes(uint64(rate)), left)
}

func (l *exportLine) clear() {
	if l.live && !l.last.IsZero() {
		fmt.Fprint(l.w, eraseLine)
	}
}

// exported is an export.Summary that can be printed.
type exported struct{ export.Summary }

// WriteTable prints e as a table.
func (e exported) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "written\t%s\n", e.Out)
	if e.Architecture != "" {
		fmt.Fprintf(t, "architecture\t%s\n", e.Architecture)
	}
	fmt.Fprintf(t, "tensors\t%d\n", e.Tensors)
	for _, name := range []string{"F32", "F16", "BF16", "Q8_0"} {
		if n := e.Types[name]; n > 0 {
			fmt.Fprintf(t, "  %s\t%d\n", name, n)
		}
	}
	if e.Format == export.Safetensors {
		fmt.Fprintf(t, "files of weights\t%d\n", len(e.Files))
	}
	fmt.Fprintf(t, "size\t%s\n", humanize.IBytes(uint64(e.Bytes)))
	return t.Flush()
}
