package main

import (
	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/run/config"
)

func (a *app) benchTokenizer() *cobra.Command {
	var o bench.TokenizerOptions
	var asJSON bool
	var peer string
	c := &cobra.Command{
		Use:   "tokenizer",
		Short: "Encoding of a text on one thread, beside PyPI tokenizers where it is installed",
		Long: `Bench tokenizer encodes a text with the tokenizer.json of a model directory, on one
thread. With --peer tokenizers the Python package of that name encodes the same
documents in turn, on one thread too, and must make the same ids of them;
MT_PYTHON names the interpreter that has it.`,
		Example: `  mt bench tokenizer --tokenizer ./Llama-3.2-1B --text corpus.txt --peer tokenizers`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case o.Dir == "" || o.Text == "":
				return config.Usagef("bench tokenizer: --tokenizer (a model directory) and --text (a file) are needed")
			case peer != "" && peer != "tokenizers":
				return config.Usagef("bench tokenizer: --peer %q: want tokenizers", peer)
			case o.Bytes < 1 || o.Document < 1 || o.Rounds < 1:
				return config.Usagef("bench tokenizer: --bytes, --document and --rounds are at least 1")
			}
			o.Peer = peer != ""
			r, err := bench.Tokenizer(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Dir, "tokenizer", "", "directory of tokenizer.json")
	f.StringVar(&o.Text, "text", "", "file of UTF-8 text")
	f.IntVar(&o.Bytes, "bytes", 16<<20, "how much of the text")
	f.IntVar(&o.Document, "document", 16<<10, "bytes of a document, about")
	f.IntVar(&o.Rounds, "rounds", 9, "how often each side runs")
	f.StringVar(&peer, "peer", "", "tokenizers, or nothing")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
