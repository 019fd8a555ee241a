package generate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"mt/base/files"
	"mt/base/human"
	"mt/data"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/settings"
)

// ChatOptions configures Chat. With In, Conversations holds a single conversation, which may be empty; each line of
// In adds a user turn to it. Without In, Chat answers each of Conversations once.
type ChatOptions struct {
	TextOptions
	Conversations []*data.Conversation
	System        string // system turn put before each conversation; "": as the conversations have it
	In            io.Reader
	Ask           string // prompt shown on Stderr before each turn; "": no terminal
}

// Commands that a user may type instead of a message.
const (
	sayReset = "/reset"
	sayExit  = "/exit"
)

// chat is a session that answers conversations.
type chat struct {
	*Loaded
	o         ChatOptions
	d         *data.Dialogue
	ends      []int32
	positions int // length of the longest sequence that the model allows; 0: no limit
}

// Chat answers conversations through the chat template. Answers stream to Stdout. With JSON, Chat prints each whole
// conversation on one line after answering it.
func Chat(ctx context.Context, o ChatOptions) (err error) {
	c := &chat{o: o}
	if c.Loaded, err = Load(&o.TextOptions, c.check); err != nil {
		return err
	}
	defer open.CloseAfter(c, &err)
	if o.In != nil {
		return c.talk(ctx)
	}
	for i, v := range c.o.Conversations {
		if err := c.one(ctx, v, i); err != nil {
			return err
		}
	}
	return nil
}

// check opens the chat template and returns notes for the user. It returns an error for a conversation so long that
// the model has no position left for an answer.
func (c *chat) check(in *open.Inputs) (notes []string, err error) {
	spec := in.Config.DataSpec()
	spec.Tokenizer, spec.ModelDir, spec.VocabSize = in.Tokenizer, in.ModelDir, in.Model.VocabSize
	c.positions = in.Model.MaxPositions
	c.d, err = data.NewDialogue(spec)
	var wrong *data.SpecError
	if errors.As(err, &wrong) {
		return nil, in.Config.Errorf(wrong.Key, "a chat needs a chat template: %w%s (a text is continued with --prompt alone, without one)", err, trainedWith(in))
	}
	if err != nil {
		return nil, err
	}
	c.ends = c.d.Ends()
	for _, v := range c.o.Conversations {
		if c.o.System != "" {
			if err := v.Begin(c.o.System); err != nil {
				return nil, of(v, err)
			}
		}
		if c.o.In != nil && v.LastRole() != "user" && v.LastRole() != "tool" {
			continue
		}
		if _, err := c.promptOf(v); err != nil {
			return nil, of(v, err)
		}
	}
	return c.d.Notes, nil
}

// trainedWith returns advice for a model directory that a run of mt wrote: which template to give. "": the run had no
// template, or its config.yaml cannot be read.
func trainedWith(in *open.Inputs) string {
	file := filepath.Join(in.ModelDir, settings.ConfigFile)
	text, err := files.Read(file, config.MaxFile)
	if err != nil || in.Config.Template != "" {
		return ""
	}
	run, err := config.Parse(file, text, config.Args{})
	if err != nil || run.Template == "" {
		return ""
	}
	return fmt.Sprintf("; the run that trained this model had template: %s, so give --template %[1]s", run.Template)
}

// of returns err with the place where the conversation v was read, such as file and line, put before it. If the place
// is unknown, it returns err.
func of(v *data.Conversation, err error) error {
	if v.Where == "" {
		return err
	}
	return fmt.Errorf("%s: %w", v.Where, err)
}

// prompt is a conversation as tokens.
type prompt struct {
	ids  []int32
	room int // largest number of tokens of the answer
}

// promptOf tokenizes a conversation. It returns an error if the model has no position left for an answer.
func (c *chat) promptOf(v *data.Conversation) (prompt, error) {
	ids, err := c.d.Prompt(v)
	if err != nil {
		return prompt{}, err
	}
	p := prompt{ids, c.o.MaxNewTokens}
	if most := c.positions; most > 0 {
		p.room = min(p.room, most-len(ids))
	}
	if p.room < 1 {
		return p, fmt.Errorf("the conversation has %d tokens and the model has %d positions (max_position_embeddings): shorten it", len(ids), c.positions)
	}
	return p, nil
}

// answer streams the answer to the last turn of v to w and appends the answer to v. turn numbers the answers of the
// chat, so that each uses other random numbers.
func (c *chat) answer(ctx context.Context, v *data.Conversation, turn int, w io.Writer) error {
	p, err := c.promptOf(v)
	if err != nil {
		return err
	}
	g := c.o.sampling(c.asked)
	g.MaxNewTokens, g.Stop = p.room, c.ends
	g.Seed += int64(turn) // with one seed, all answers of the chat would use the same random numbers
	var text strings.Builder
	made, err := c.GoOn(ctx, g, p.ids, io.MultiWriter(w, &text))
	v.Add("assistant", strings.TrimSpace(text.String()))
	if err == nil && made == p.room {
		fmt.Fprintf(c.o.Stderr, "\nnote: the answer was cut after %d tokens (--max-new-tokens, or the model's positions)\n", made)
	}
	return err
}

// one answers v, the i-th conversation, once. It prints the answer or, with JSON, the whole conversation.
func (c *chat) one(ctx context.Context, v *data.Conversation, i int) error {
	w := c.o.Stdout
	if c.o.JSON {
		w = io.Discard
	}
	err := c.answer(ctx, v, i, w)
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintln(w)
		return settings.ErrInterrupted
	case err != nil:
		return of(v, err)
	case c.o.JSON:
		e := json.NewEncoder(c.o.Stdout)
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	fmt.Fprintln(w)
	return nil
}

// talk holds one conversation. Each line of In is a turn of the user and gets an answer. The conversation lasts until
// In ends or the user types the command for it.
func (c *chat) talk(ctx context.Context) error {
	begin := c.o.Conversations[0]
	v, lines := begin.Clone(), readLines(c.o.In)
	turn := 0
	if c.o.Ask != "" {
		fmt.Fprintf(c.o.Stderr, "a line is a turn; %s begins anew, %s or Ctrl-D ends\n", sayReset, sayExit)
	}
	if role := v.LastRole(); role == "user" || role == "tool" {
		if err := c.reply(ctx, v, 0); err != nil || ctx.Err() != nil {
			return err
		}
		begin, turn = v.Clone(), 1
	}
	for {
		fmt.Fprint(c.o.Stderr, c.o.Ask)
		var said turnRead
		select {
		case <-ctx.Done():
			return nil
		case said = <-lines:
		}
		switch strings.TrimSpace(said.text) {
		case "":
			if said.err == io.EOF {
				return nil
			} else if said.err != nil {
				return fmt.Errorf("read a turn: %w", said.err)
			}
		case sayExit:
			return nil
		case sayReset:
			v, turn = begin.Clone(), 0
			fmt.Fprintln(c.o.Stderr, "note: the conversation begins anew")
		default:
			v.Add("user", said.text)
			if err := c.reply(ctx, v, turn); err != nil || ctx.Err() != nil {
				return err
			}
			turn++
		}
	}
}

// reply answers the last turn of v. A turn may be so long that no position is left for an answer. If turns come from a
// pipe, reply then returns an error. At a terminal, it prints the error and removes the turn.
func (c *chat) reply(ctx context.Context, v *data.Conversation, turn int) error {
	if _, err := c.promptOf(v); err != nil {
		if c.o.Ask == "" {
			return err
		}
		fmt.Fprintf(c.o.Stderr, "mt: %v; the turn is taken back, and %s begins anew\n", err, sayReset)
		v.Cut(v.Turns() - 1)
		return nil
	}
	err := c.answer(ctx, v, turn, c.o.Stdout)
	fmt.Fprintln(c.o.Stdout)
	if ctx.Err() != nil {
		return nil // an interrupt is how a user ends the chat
	}
	return err
}

// turnRead is a line from the user, or the error that ended the lines; io.EOF: there are no more.
type turnRead struct {
	text string
	err  error
}

// maxTurn is the largest size of a turn, in bytes.
const maxTurn = 16 << 20

// readLines sends the lines of r and then the error that ended them. A separate goroutine reads, so the receiver can
// stop waiting at any time.
func readLines(r io.Reader) <-chan turnRead {
	out := make(chan turnRead)
	go func() {
		s := bufio.NewScanner(r)
		s.Buffer(nil, maxTurn)
		for s.Scan() {
			out <- turnRead{text: s.Text()}
		}
		err := s.Err()
		switch {
		case err == nil:
			err = io.EOF
		case errors.Is(err, bufio.ErrTooLong):
			err = fmt.Errorf("a line has more than %s", human.Bytes(maxTurn))
		}
		out <- turnRead{err: err}
	}()
	return out
}
