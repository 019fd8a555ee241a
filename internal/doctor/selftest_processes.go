package doctor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// mostLosses is how many child processes may hang or die before the test ends. Each may take Processes.Limit until it
// is given up, and further ones add little information.
var mostLosses = 8

// saveEvery is how often the report is saved while a case runs, so that the file names the running case.
const saveEvery = time.Second

// Processes defines how SuperviseSelfTest starts and ends child processes.
type Processes struct {
	// Command returns the command of a child process. The child calls ServeSelfTest with its standard output and with
	// from, the number of the first unit to run. kind is the kind of device; "" for the first child. The child must
	// exit when its standard input closes.
	Command func(kind string, from int) *exec.Cmd
	// Limit is the time limit per case: a child may be silent for this long. Opening the device may take twice as
	// long.
	Limit time.Duration
	// Grace is the time that a child gets to exit, also after a kill.
	Grace time.Duration
	// Stderr receives the standard error of the children.
	Stderr io.Writer

	// silence replaces the clock in tests. It gets the name of the running case and the time limit.
	// When the returned channel delivers, the child counts as silent for too long. nil: use the
	// clock.
	silence func(what string, limit time.Duration) <-chan time.Time
}

// supervisor starts the children of one self test and collects their results.
type supervisor struct {
	o        SelfTestOptions // without devices
	p        Processes
	units    []unit
	begin    time.Time
	r        *SelfTestReport
	part     string // the part of the running unit
	unsaved  bool   // Running has changed since the last save
	products *products
}

// SuperviseSelfTest tests a device in child processes. If a child hangs, faults or dies, the results so far remain.
// The running unit is lost, and a new child continues with the next unit. The parent opens no device. It reads Choice,
// Cases, Repeat, Save and Progress of o; the children must use the same values. Failed checks are in the report; an
// error means that something could not be tested. When ctx is cancelled, the child is killed.
func SuperviseSelfTest(ctx context.Context, o SelfTestOptions, p Processes) (*SelfTestReport, error) {
	s := &supervisor{o: o, p: p, units: o.units(), begin: time.Now(), r: &SelfTestReport{OK: true}}
	for next := 0; next < len(s.units); {
		var err error
		if next, err = s.child(ctx, next); err != nil {
			return s.r, s.r.stop(o, s.begin, err)
		}
		if len(s.r.Losses) >= mostLosses && next < len(s.units) {
			return s.r, s.r.stop(o, s.begin, fmt.Errorf("%d processes are lost; %s and what comes after it are left out", len(s.r.Losses), s.units[next].name))
		}
	}
	s.r.Running = ""
	if s.products != nil {
		s.r.products(*s.products)
	}
	if err := s.r.save(o, s.begin); err != nil {
		return s.r, fmt.Errorf("self test: %w", err)
	}
	return s.r, nil
}

// child starts one child process, which runs the units with number `from` and above, and takes its messages until the
// child or the test ends. It returns the number of the next unit to run. An error ends the test.
func (s *supervisor) child(ctx context.Context, from int) (next int, err error) {
	c := &child{cmd: s.p.Command(s.r.Kind, from), at: from, messages: make(chan message), ended: make(chan struct{}), stderr: s.p.Stderr}
	s.r.starts("opening the device")
	if err := c.start(); err != nil {
		return from, err
	}
	defer func() { err = errors.Join(err, c.end(s.p.Grace)) }()
	after := s.p.silence
	if after == nil {
		after = func(_ string, limit time.Duration) <-chan time.Time { return time.After(limit) }
	}
	limit := 2 * s.p.Limit
	silence := after(s.r.Running, limit)
	saves := time.NewTicker(saveEvery)
	defer saves.Stop()
	for {
		select {
		case m, ok := <-c.messages:
			if !ok {
				return s.lost(c, died, c.lastWords(s.p.Grace))
			}
			if over, err := s.take(c, m); over || err != nil {
				return c.at, err
			}
			limit = s.p.Limit
			silence = after(s.r.Running, limit)
		case <-silence:
			return s.lost(c, hung, fmt.Sprintf("no sign of life for %v, so its process was killed; dmesg may have an Xid%s", limit, c.unended()))
		case <-saves.C:
			if s.unsaved {
				if err := s.save(); err != nil {
					return c.at, err
				}
			}
		case <-ctx.Done():
			return c.at, fmt.Errorf("stopped while %s ran: %w", s.r.Running, context.Cause(ctx))
		}
	}
}

// take processes m, a message of the child c. over says that it was the child's last message. An error ends the test.
func (s *supervisor) take(c *child, m message) (over bool, err error) {
	switch {
	case m.Unit < 0 || m.Unit >= len(s.units):
		return true, fmt.Errorf("the self test's own process runs unit %d, of %d: the program was replaced while the test ran; start it again", m.Unit, len(s.units))
	case m.End && !c.opened:
		return true, errors.New(m.Error)
	case m.End:
		if m.Error != "" {
			s.r.fail(s.r.Running, m.Error)
		}
		c.finished = true
		return true, nil
	case m.Device != "":
		c.opened = true
		s.r.Device, s.r.Kind = m.Device, m.Kind
	case m.Done != nil:
		s.r.merge(m.Done)
		for _, l := range m.Done.Losses {
			s.o.tell(l.String())
		}
		for _, n := range m.Notes {
			if !slices.Contains(s.r.Notes, n) {
				s.r.Notes = append(s.r.Notes, n)
			}
		}
		s.count(c, m.Products)
		if c.at = m.Unit + 1; c.at < len(s.units) {
			s.r.starts(s.units[c.at].name)
		} else {
			s.r.starts("closing the device")
		}
		return len(m.Done.Losses) > 0, s.save()
	default:
		if part := s.units[m.Unit].part; part != s.part {
			s.part = part
			s.o.tell(part)
		}
		c.at = m.Unit
		s.r.starts(m.Running)
		s.unsaved = true
	}
	return false, nil
}

// count adds the products of the child c to the sum over all children. The argument p counts all
// products of the child's process so far, so it replaces the child's earlier counts.
func (s *supervisor) count(c *child, p *products) {
	if p == nil {
		return
	}
	if s.products == nil {
		s.products = &products{}
	}
	if c.counted != nil {
		s.products.Own -= c.counted.Own
	}
	s.products.Library = p.Library
	s.products.Own += p.Own
	for _, shape := range p.Refused {
		if !slices.Contains(s.products.Refused, shape) {
			s.products.Refused = append(s.products.Refused, shape)
		}
	}
	c.counted = p
}

// lost records that the child was lost during its unit: `how` is "faulted", "hung" or "died", and `why` is the error
// for the report. It returns the number of the next unit. If the child could not even open the device, lost returns an
// error, which ends the test.
func (s *supervisor) lost(c *child, how, why string) (next int, err error) {
	s.r.lose(how, why)
	l := s.r.Losses[len(s.r.Losses)-1]
	s.o.tell(l.String())
	if !c.opened {
		return c.at, errors.New(l.String())
	}
	name := s.r.Running
	if c.at < len(s.units) {
		name = s.units[c.at].name
	}
	s.r.fail(name, l.String())
	return min(c.at+1, len(s.units)), s.save()
}

// save saves the report of all units so far, and marks it as saved.
func (s *supervisor) save() error {
	s.unsaved = false
	return s.r.save(s.o, s.begin)
}

// child is a child process that calls ServeSelfTest, seen from the parent.
type child struct {
	cmd      *exec.Cmd
	at       int  // the running unit, or the next one
	opened   bool // the device is open
	finished bool // the last message has arrived
	counted  *products
	messages chan message // closed when the process has closed its standard output
	ended    chan struct{}
	stderr   io.Writer

	mu    sync.Mutex
	fatal []string // standard error lines in which the Go runtime reports a crash
	hangs string   // the last line in which the device names hanging work
	last  string   // the last line
}

// start starts the process and reads what it writes.
func (c *child) start() error {
	c.cmd.Stderr, c.cmd.WaitDelay = c, time.Second
	if _, err := c.cmd.StdinPipe(); err != nil { // closed with this process, or when the child has exited
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("the self test's own process: %w", err)
	}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			var m message
			if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &m) == nil {
				c.messages <- m
			} else if len(line) > 0 {
				_, _ = c.Write(line) // output of libraries
			}
			if err != nil {
				break
			}
		}
		close(c.messages)
		_ = c.cmd.Wait() // the process state tells how it ended
	}()
	return nil
}

// Write implements io.Writer for the standard error of the child process. It passes the text on and
// remembers the lines that explain how the process ended.
func (c *child) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range strings.Lines(string(b)) {
		c.last = cmp.Or(strings.TrimSpace(line), c.last)
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.HasPrefix(line, "SIG") {
			c.fatal = append(c.fatal, c.last)
		}
		if strings.Contains(line, "has not ended after") {
			c.hangs = c.last
		}
	}
	return c.stderr.Write(b)
}

// unended returns the device's message about work that does not end, as the end of a sentence; "":
// there is no message.
func (c *child) unended() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hangs == "" {
		return ""
	}
	return "; " + c.hangs
}

// lastWords says how the process has ended, for the report. It waits at most grace for the end.
func (c *child) lastWords(grace time.Duration) string {
	select {
	case <-c.ended:
	case <-time.After(grace):
		return "its process says nothing more, and has not ended"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	words := c.fatal
	if len(words) == 0 && c.last != "" {
		words = []string{c.last}
	}
	return strings.Join(append([]string{"its process ended by itself (" + c.cmd.ProcessState.String() + ")"}, words...), ": ")
}

// end waits at most grace for a process that has sent its last message. It kills a process that has not exited by
// then, and any other process at once. It returns an error if the process does not exit even then.
func (c *child) end(grace time.Duration) error {
	go func() {
		for range c.messages { // drain unread messages
		}
	}()
	if c.finished {
		select {
		case <-c.ended:
			return nil
		case <-time.After(grace):
		}
	}
	_ = c.cmd.Process.Kill() // harmless if it has exited
	select {
	case <-c.ended:
		return nil
	case <-time.After(grace):
		return fmt.Errorf("process %d has not ended %v after it was killed, so the driver holds it; restart the machine", c.cmd.Process.Pid, grace)
	}
}

// message is one line that a child process writes to its parent.
type message struct {
	// Device and Kind describe the opened device, in the first message.
	Device string `json:"device,omitempty"`
	Kind   string `json:"kind,omitempty"`
	// Unit is the number of the unit to which Running or Done belongs.
	Unit int `json:"unit"`
	// Running names the case that starts now; "": none starts.
	Running string `json:"running,omitempty"`
	// Done is the report of a unit that has ended. Notes and Products cover all units of the
	// process so far.
	Done     *SelfTestReport `json:"done,omitempty"`
	Notes    []string        `json:"notes,omitempty"`
	Products *products       `json:"products,omitempty"`
	// End marks the last message. Error is the error of opening or closing the device.
	End   bool   `json:"end,omitempty"`
	Error string `json:"error,omitempty"`
}

// ServeSelfTest is the child's side of SuperviseSelfTest. It opens the devices, runs the units with number `from` and
// above, and writes messages to w, one before each case. After a loss it returns without closing the device, which
// might hang. The error is a write error.
func ServeSelfTest(ctx context.Context, w io.Writer, from int, open func() (SelfTestOptions, func() error, error)) error {
	out := json.NewEncoder(w)
	o, closing, err := open()
	if err != nil {
		return out.Encode(message{End: true, Error: err.Error()})
	}
	if err := out.Encode(message{Device: o.Device.Name(), Kind: o.Device.Kind()}); err != nil {
		return err
	}
	units := o.units()
	for i := from; i < len(units); i++ {
		var failed error
		done := o.run(ctx, units[i], func(what string) {
			if err := out.Encode(message{Unit: i, Running: what}); failed == nil {
				failed = err
			}
		})
		if failed != nil {
			return failed
		}
		if err := out.Encode(message{Unit: i, Done: done, Notes: notes(o.Device), Products: countProducts(o.Device)}); err != nil || len(done.Losses) > 0 {
			return err
		}
	}
	end := message{End: true}
	if err := closing(); err != nil {
		end.Error = err.Error()
	}
	return out.Encode(end)
}
