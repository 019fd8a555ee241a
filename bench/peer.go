package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// PythonVariable names the environment variable with the path of the Python interpreter that runs peers. Without the
// variable, peers run in the python3 that PATH finds.
const PythonVariable = "MT_PYTHON"

// python returns the path of the interpreter that runs peers.
func python() string {
	if name := os.Getenv(PythonVariable); name != "" {
		return name
	}
	return "python3"
}

// quitWithin bounds the time from telling a peer to quit until it is killed. orphansWithin bounds how long programs
// that the peer started may keep its output open after the peer has ended.
const quitWithin, orphansWithin = 60 * time.Second, 3 * time.Second

// peer is a script of the folder peers/ that runs in a process of its own. It writes one line of JSON when it is ready.
// Then it writes one line of JSON for each line of its input.
type peer struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr tail
	about  map[string]any
	end    func() error // ends the process; further calls only return the same error
}

// startPeer runs the interpreter python with args, a script and its arguments. It returns when the script is ready.
// `needs` describes the required Python packages, for errors. The process is killed when ctx ends.
func startPeer(ctx context.Context, python, needs string, args ...string) (*peer, error) {
	p := &peer{cmd: exec.CommandContext(ctx, python, args...)}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = orphansWithin
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Cancel = func() error {
		defer out.Close() // ends the read even if programs started by the peer hold the other end
		return p.cmd.Process.Kill()
	}
	p.stdout = bufio.NewReader(out)
	p.end = sync.OnceValue(p.quit)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("%w; set %s to an interpreter with %s", err, PythonVariable, needs)
	}
	raw, err := p.read(&p.about)
	if err == nil && p.about["ready"] != true {
		err = fmt.Errorf("it begins with %q", raw)
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which needs %s (%s names another interpreter): %w", python, needs, PythonVariable, p.fail(err))
	}
	return p, nil
}

// About returns the peer's first line: its versions, and how the script describes itself.
func (p *peer) About() map[string]any { return p.about }

// answer is a script's report on the steps that it has just run.
type answer struct {
	Seconds  []float64 `json:"seconds"`
	Tokens   int64     `json:"tokens"`
	Loss     []float64 `json:"loss"`
	GradNorm []float64 `json:"grad_norm"`
	Error    string    `json:"error"`
}

// ask makes the peer run k steps and returns its report.
func (p *peer) ask(k int) (*answer, error) {
	if _, err := fmt.Fprintf(p.stdin, "run %d\n", k); err != nil {
		return nil, p.fail(err)
	}
	a := &answer{}
	if _, err := p.read(a); err != nil {
		return nil, p.fail(err)
	}
	if a.Error != "" {
		return nil, errors.New(a.Error)
	}
	return a, nil
}

// Close tells the process to quit and waits for it.
func (p *peer) Close() error {
	if err := p.end(); err != nil {
		return p.explain(err)
	}
	return nil
}

// quit closes the process's input, which tells the process to end. After quitWithin it kills the process.
func (p *peer) quit() error {
	closing := p.stdin.Close()
	kill := time.AfterFunc(quitWithin, func() { _ = p.cmd.Process.Kill() }) // fails if the process has just ended
	defer kill.Stop()
	return errors.Join(p.cmd.Wait(), closing)
}

// read reads one line of the process's output, decodes the JSON into the variable to which into points, and returns the
// line.
func (p *peer) read(into any) ([]byte, error) {
	line, err := p.stdout.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("its output ended: %w", err)
	}
	line = bytes.TrimSpace(line)
	if err := json.Unmarshal(line, into); err != nil {
		return nil, fmt.Errorf("it wrote %q: %w", line, err)
	}
	return line, nil
}

// fail ends the process, which cannot be used after err. If the process ended with an error, fail returns that error,
// otherwise err.
func (p *peer) fail(err error) error {
	if ended := p.end(); ended != nil {
		err = ended
	}
	return p.explain(err)
}

// explain adds the last line of the process's standard error to err.
func (p *peer) explain(err error) error {
	if last := p.stderr.last(); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}
