package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"mt/data"
	"mt/internal/config"
	"mt/internal/files"
	"mt/internal/train"
)

func (a *app) generateCommand() *cobra.Command {
	return &cobra.Command{
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
  --seed N              of the sampling (default 42)
  --device DEVICE       auto, cpu or cuda
  --compute-dtype TYPE  auto, bf16 or fp32
  --threads N           worker threads
  --template NAME       another chat template: a Jinja file, chatml or default
  --enable-thinking BOOL, --chat-template-kwargs '{NAME: VALUE}'
                        variables of the chat template`,
		Example: `  mt generate --model out/quickstart --prompt "func " --max-new-tokens 100
  mt generate --model out/quickstart --prompt - --temperature 0.8 --top-p 0.95 < prompt.txt
  mt generate --model out/chat --chat --system "Answer in one sentence."
  mt generate --model out/chat --messages questions.jsonl --json > answers.jsonl`,
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			own, cfg, err := keyed(c, args, "prompt=", "max-new-tokens=", "temperature=", "top-k=", "top-p=", "chat", "messages=", "system=", "json")
			if err != nil || cfg == nil {
				return err
			}
			if err := cfg.Require("model"); err != nil {
				return err
			}
			return a.generate(c, own, cfg)
		},
	}
}

// generate runs mt generate.
func (a *app) generate(c *cobra.Command, own config.Args, cfg *config.Config) error {
	o := train.GenerateOptions{Options: a.options(own.Switch("json")), Config: cfg, MaxNewTokens: 200, TopP: 1, Seed: cfg.Seed}
	if isChat(own) {
		o.MaxNewTokens = 1024
	}
	err := sampling(&o, own)
	switch {
	case err != nil:
		return err
	case isChat(own):
		co, err := a.chatOptions(o, own)
		if err != nil {
			return err
		}
		return train.Chat(c.Context(), co)
	}
	for _, name := range []string{"system", "json"} {
		if _, given := own.Own[name]; given {
			return config.Usagef("--%s goes with --chat or --messages", name)
		}
	}
	if o.Prompt, err = a.prompt(own); err != nil {
		return err
	}
	return train.Generate(c.Context(), o)
}

// isChat tells whether turns are to be answered.
func isChat(own config.Args) bool {
	_, messages := own.Own["messages"]
	return own.Switch("chat") || messages
}

// chatOptions reads what is to be answered.
func (a *app) chatOptions(o train.GenerateOptions, own config.Args) (train.ChatOptions, error) {
	co := train.ChatOptions{GenerateOptions: o, System: own.Own["system"]}
	_, prompted := own.Own["prompt"]
	name, given := own.Own["messages"]
	talks := own.Switch("chat") && !prompted
	switch {
	case own.Own["prompt"] == "-" && name == "-":
		return co, config.Usagef("--prompt - and --messages - both read the standard input: give one of them")
	case talks && name == "-":
		return co, config.Usagef("--messages - reads the standard input, and so does --chat: leave --chat out, or give a file")
	case talks && o.JSON:
		return co, config.Usagef("--json is for answers to --messages or --prompt: leave --chat out, or give --prompt")
	}
	var err error
	if given {
		if co.Conversations, err = a.messages(name); err != nil {
			return co, err
		}
	} else {
		co.Conversations = []*data.Conversation{{}}
	}
	if prompted {
		text, err := a.prompt(own)
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
		return co, config.Usagef("--messages %s holds %d conversations, and --chat goes on with one; leave --chat out to answer each", name, n)
	}
	if co.In = a.stdin; a.asks {
		co.Ask = "> "
	}
	return co, nil
}

// messages reads the conversations of a file.
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

// sampling reads the flags that say how tokens are chosen.
func sampling(o *train.GenerateOptions, own config.Args) error {
	return firstError(
		whole(own, "max-new-tokens", 1, &o.MaxNewTokens),
		whole(own, "top-k", 0, &o.TopK),
		decimal(own, "temperature", 0, 1e6, &o.Temperature),
		decimal(own, "top-p", 0, 1, &o.TopP),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// whole reads a flag that is a whole number of at least min.
func whole(own config.Args, name string, min int, into *int) error {
	text, given := own.Own[name]
	if !given {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < min {
		return config.Usagef("--%s: wants a whole number of at least %d, is %s", name, min, text)
	}
	*into = n
	return nil
}

// decimal reads a flag that is a number from min to max.
func decimal(own config.Args, name string, min, max float64, into *float64) error {
	text, given := own.Own[name]
	if !given {
		return nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= min && x <= max) {
		return config.Usagef("--%s: wants a number from %g to %g, is %s", name, min, max, text)
	}
	*into = x
	return nil
}

// maxPrompt is how long a prompt from the standard input may be.
const maxPrompt = 64 << 20

// prompt is the text to continue.
func (a *app) prompt(own config.Args) (string, error) {
	text, given := own.Own["prompt"]
	switch {
	case !given:
		return "", config.Usagef("no prompt: give --prompt TEXT, or --prompt - to read it from the standard input; --chat holds a conversation")
	case text == "":
		return "", config.Usagef("--prompt is empty: give at least one letter")
	case text != "-":
		return text, nil
	}
	raw, err := files.ReadAll("the standard input", a.stdin, maxPrompt)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	return string(raw), nil
}
