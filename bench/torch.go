package bench

import (
	"bufio"
	"bytes"
	"context"
	_ "embed" // for torchScript
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// PythonVariable names the environment variable with the Python interpreter
// that has torch and transformers, where it is not the python3 in PATH.
const PythonVariable = "MT_PYTHON"

// torchScript is run by handing it to the interpreter, so that the command
// works from any directory and the script's input stays free.
//
//go:embed peers/torch_cpu.py
var torchScript string

// quitWithin is how long a peer that was told to quit may take.
const quitWithin = 10 * time.Second

// Torch is PyTorch in a process of its own, which trains the shape it was
// started with. It speaks the protocol described in peers/torch_cpu.py.
type Torch struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr tail
	about  map[string]any
	end    func() error // ends the process, once
}

// StartTorch is a NewRunner: it returns when PyTorch is loaded and warm. ctx
// ends the process.
func StartTorch(ctx context.Context, s TrainSetup) (TrainRunner, error) {
	python := os.Getenv(PythonVariable)
	if python == "" {
		python = "python3"
	}
	t, err := startTorch(ctx, python, s)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// startTorch is StartTorch with the interpreter named.
func startTorch(ctx context.Context, python string, s TrainSetup) (*Torch, error) {
	t := &Torch{cmd: exec.CommandContext(ctx, python, append([]string{"-c", torchScript}, torchArguments(s)...)...)}
	t.cmd.Stderr = &t.stderr
	t.cmd.WaitDelay = quitWithin
	var err error
	if t.stdin, err = t.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	t.stdout = bufio.NewReader(out)
	t.end = sync.OnceValue(t.quit)
	if err := t.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; set %s to an interpreter with torch and transformers", err, PythonVariable)
	}
	var hello struct {
		Ready bool `json:"ready"`
	}
	raw, err := t.read(&hello)
	if err == nil && !hello.Ready {
		err = fmt.Errorf("it begins with %q", raw)
	}
	if err == nil {
		err = json.Unmarshal(raw, &t.about)
	}
	if err != nil {
		return nil, fmt.Errorf("%s with torch and transformers: %w", python, t.fail(err))
	}
	return t, nil
}

// torchArguments are the flags that say what s says.
func torchArguments(s TrainSetup) []string {
	args := []string{"--serve", "--dtype", s.DType, "--threads", strconv.Itoa(s.Threads), "--warmup", strconv.Itoa(s.Warmup)}
	for _, f := range []struct {
		name  string
		value int
	}{
		{"hidden-size", s.Shape.HiddenSize},
		{"intermediate-size", s.Shape.IntermediateSize},
		{"num-hidden-layers", s.Shape.Layers},
		{"num-attention-heads", s.Shape.Heads},
		{"num-key-value-heads", s.Shape.KVHeads},
		{"vocab-size", s.Shape.VocabSize},
		{"rows", s.Shape.Rows},
		{"seq-len", s.Shape.SeqLen},
	} {
		args = append(args, "--"+f.name, strconv.Itoa(f.value))
	}
	return args
}

// About is what the process said when it was ready: versions, threads, shape
// and the rate of its matrix products.
func (t *Torch) About() map[string]any { return t.about }

// RunSteps runs k steps.
func (t *Torch) RunSteps(k int) (seconds []float64, tokens int64, err error) {
	if _, err := fmt.Fprintf(t.stdin, "run %d\n", k); err != nil {
		return nil, 0, t.fail(err)
	}
	var answer struct {
		Seconds []float64 `json:"seconds"`
		Tokens  int64     `json:"tokens"`
		Error   string    `json:"error"`
	}
	if _, err := t.read(&answer); err != nil {
		return nil, 0, t.fail(err)
	}
	if answer.Error != "" {
		return nil, 0, errors.New(answer.Error)
	}
	return answer.Seconds, answer.Tokens, nil
}

// Close tells the process to quit and waits for it.
func (t *Torch) Close() error {
	if err := t.end(); err != nil {
		return t.explain(err)
	}
	return nil
}

// quit closes the input of the process, which ends it, and kills it where that
// takes too long.
func (t *Torch) quit() error {
	closing := t.stdin.Close()
	kill := time.AfterFunc(quitWithin, func() { _ = t.cmd.Process.Kill() }) // fails where it has just ended
	defer kill.Stop()
	return errors.Join(t.cmd.Wait(), closing)
}

// read takes a line of the process's output apart.
func (t *Torch) read(into any) ([]byte, error) {
	line, err := t.stdout.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("its output ended: %w", err)
	}
	line = bytes.TrimSpace(line)
	if err := json.Unmarshal(line, into); err != nil {
		return nil, fmt.Errorf("it wrote %q: %w", line, err)
	}
	return line, nil
}

// fail ends the process, which is of no more use after err, and says why.
func (t *Torch) fail(err error) error {
	if ended := t.end(); ended != nil {
		err = ended
	}
	return t.explain(err)
}

// explain adds the last line that the process complained with.
func (t *Torch) explain(err error) error {
	if last := t.stderr.last(); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}
