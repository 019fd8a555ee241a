package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mt/base/files"
	"mt/data"
	"mt/internal/run/config"
	"mt/internal/run/generate"
)

// generateFlags holds the flags of mt generate that are not config keys.
type generateFlags struct {
	generate.TextOptions
	prompt, messages, system string
	chat, json               bool
}

func (a *app) generateCommand() *cobra.Command {
	f := generateFlags{TextOptions: generate.TextOptions{TopP: 1}}
	var logits func(given func(flag string) bool) generate.LogitKeys
	c := a.keyed(&cobra.Command{
		Use:   "generate --model DIR (--prompt TEXT | --chat | --messages FILE)",
		Short: "Continue a prompt with a model, or chat with it",
		Long: `Generate continues a prompt and prints tokens as they come. With --chat or
--messages it answers, through the model's chat template, and stops where the
model ends its turn.

  --model DIR           a Hugging Face directory, such as a run's output_dir; of a
                        run that has not ended the newest checkpoint is taken
  --prompt TEXT         what to continue, or with --chat to answer; - reads it from
                        the standard input
  --chat                hold a conversation: each line of the standard input is a
                        turn; /reset begins anew, /exit, Ctrl-D or Ctrl-C ends it
  --messages FILE       JSON or JSONL of messages, or of chats as data sets have
                        them, to answer; with --chat what goes before; - reads it
                        from the standard input
  --system TEXT         the system's turn of a chat
  --json                with --messages, or --chat and --prompt: each chat with its
                        answer on a line
  --max-new-tokens N    tokens to make at most (default 200; of an answer 1024)
  --temperature X       0 takes the likeliest token each time (default 0)
  --top-k N             sample among the N likeliest; 0: all (default 0)
  --top-p X             sample among the likeliest of this joint probability (default 1)
  --min-p X             sample among those at least X times as likely as the likeliest;
                        0: all
  --repetition-penalty X
                        divide positive logits of tokens in the prompt or the answer,
                        and multiply negative ones; 1: none
  --min-new-tokens N    tokens to make before the text may end
                        (these three by default as generation_config.json says)
  --seed N              of the sampling (default 42)
  --device DEVICE       auto, cpu or cuda
  --compute-dtype TYPE  auto, bf16 or fp32
  --threads N           worker threads
  --template NAME       another chat template: a Jinja file, or a name as in mt train
  --enable-thinking BOOL, --chat-template-kwargs '{NAME: VALUE}'
                        variables of the chat template`,
		Example: `  mt generate --model out/quickstart --prompt "func " --max-new-tokens 100
  mt generate --model out/quickstart --prompt - --temperature 0.8 --top-p 0.95 < prompt.txt
  mt generate --model out/chat --chat --system "Answer in one sentence."
  mt generate --model out/chat --messages questions.jsonl --json > answers.jsonl`,
	}, func(c *cobra.Command, cfg *config.Config) error {
		if err := cfg.Require("model"); err != nil {
			return err
		}
		f.Options, f.Config, f.Seed = a.options(f.json), cfg, cfg.Seed
		given := c.Flags().Changed
		f.LogitKeys = logits(given)
		return a.generate(c.Context(), f, given)
	})
	set := c.Flags()
	set.StringVar(&f.prompt, "prompt", "", "")
	config.Switch(set, "chat", &f.chat)
	set.StringVar(&f.messages, "messages", "", "")
	set.StringVar(&f.system, "system", "", "")
	config.Switch(set, "json", &f.json)
	whole(set, "max-new-tokens", 1, &f.MaxNewTokens)
	decimal(set, "temperature", 0, 1e6, &f.Temperature)
	whole(set, "top-k", 0, &f.TopK)
	decimal(set, "top-p", 0, 1, &f.TopP)
	logits = logitFlags(set)
	return c
}

// logitFlags adds to set the flags that override keys of generation_config.json. After the command line was read, the
// returned function returns the values of those that were given. given reports whether a flag was given.
func logitFlags(set *pflag.FlagSet) func(given func(flag string) bool) generate.LogitKeys {
	var penalty, minP float64
	var minNew int
	decimal(set, "min-p", 0, 1, &minP)
	decimal(set, "repetition-penalty", generate.LeastPenalty, generate.MostPenalty, &penalty)
	whole(set, "min-new-tokens", 0, &minNew)
	return func(given func(flag string) bool) generate.LogitKeys {
		return generate.LogitKeys{RepetitionPenalty: ifGiven(given("repetition-penalty"), &penalty), MinP: ifGiven(given("min-p"), &minP),
			MinNewTokens: ifGiven(given("min-new-tokens"), &minNew)}
	}
}

// ifGiven returns value if given is true, and otherwise nil, which stands for a flag that the command line lacks.
func ifGiven[T any](given bool, value *T) *T {
	if given {
		return value
	}
	return nil
}

// generate runs mt generate. given reports whether a flag was given.
func (a *app) generate(ctx context.Context, f generateFlags, given func(flag string) bool) (err error) {
	if f.chat || given("messages") {
		f.MaxNewTokens = cmp.Or(f.MaxNewTokens, 1024)
		co, err := a.chatOptions(f, given)
		if err != nil {
			return err
		}
		return generate.Chat(ctx, co)
	}
	f.MaxNewTokens = cmp.Or(f.MaxNewTokens, 200)
	switch {
	case given("system"):
		return config.Usagef("--system goes with --chat or --messages")
	case f.json:
		return config.Usagef("--json goes with --chat or --messages")
	case !given("prompt"):
		return config.Usagef("no prompt: give --prompt TEXT, or --prompt - to read it from the standard input; --chat holds a conversation")
	}
	if f.Prompt, err = a.prompt(f.prompt); err != nil {
		return err
	}
	return generate.Text(ctx, f.TextOptions)
}

// chatOptions returns the options of a chat. Its conversations are those of --messages, or a single empty one. The
// text of --prompt is added to each as a turn of the user. With --chat and no --prompt, further turns come from the
// standard input.
func (a *app) chatOptions(f generateFlags, given func(flag string) bool) (generate.ChatOptions, error) {
	co := generate.ChatOptions{TextOptions: f.TextOptions, System: f.system}
	prompted := given("prompt")
	talks := f.chat && !prompted
	switch {
	case f.prompt == "-" && f.messages == "-":
		return co, config.Usagef("--prompt - and --messages - both read the standard input: give one of them")
	case talks && f.messages == "-":
		return co, config.Usagef("--messages - reads the standard input, and so does --chat: leave --chat out, or give a file")
	case talks && f.json:
		return co, config.Usagef("--json is for answers to --messages or --prompt: leave --chat out, or give --prompt")
	}
	var err error
	if given("messages") {
		if co.Conversations, err = a.messages(f.messages); err != nil {
			return co, err
		}
	} else {
		co.Conversations = []*data.Conversation{{}}
	}
	if prompted {
		text, err := a.prompt(f.prompt)
		if err != nil {
			return co, err
		}
		for _, v := range co.Conversations {
			v.Add("user", text)
		}
	}
	if !talks {
		return co, nil
	}
	if n := len(co.Conversations); n > 1 {
		return co, config.Usagef("--messages %s holds %d conversations, and --chat goes on with one; leave --chat out to answer each", f.messages, n)
	}
	if co.In = a.stdin; a.asks {
		co.Ask = "> "
	}
	return co, nil
}

// messages reads the conversations in a file; "-": the standard input.
func (a *app) messages(name string) ([]*data.Conversation, error) {
	if name == "-" {
		return data.ReadConversations(a.stdin, "the standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, config.Usagef("--messages: %w", err)
	}
	defer f.Close()
	return data.ReadConversations(f, name)
}

// whole adds to set a flag that takes a whole number of at least min and stores it in *into.
func whole(set *pflag.FlagSet, name string, min int, into *int) {
	set.Func(name, "", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < min {
			return config.Usagef("--%s: must be a whole number of at least %d, not %s", name, min, text)
		}
		*into = n
		return nil
	})
}

// decimal adds to set a flag that takes a number from min to max and stores it in *into.
func decimal(set *pflag.FlagSet, name string, min, max float64, into *float64) {
	set.Func(name, "", func(text string) error {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= min && x <= max) {
			return config.Usagef("--%s: must be a number from %g to %g, not %s", name, min, max, text)
		}
		*into = x
		return nil
	})
}

// maxPrompt is the largest prompt read from the standard input, in bytes.
const maxPrompt = 64 << 20

// prompt returns the prompt that --prompt gives: text itself or, if text is "-", what the standard input contains.
func (a *app) prompt(text string) (string, error) {
	if text == "" {
		return "", config.Usagef("--prompt is empty: give at least one letter")
	}
	if text != "-" {
		return text, nil
	}
	raw, err := files.ReadAll("the standard input", a.stdin, maxPrompt)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	return string(raw), nil
}
