package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"mt/device"
	"mt/device/cpu"
	"mt/internal/testkit"
)

// Environment variables that make this test binary run as a child of SuperviseSelfTest. The first
// is the number of the first unit to run; a unit is for example one operation in one dtype.
// The second is the fault of the device in the form HOW:OPERATION.
const (
	childFrom  = "MT_TEST_CHILD_FROM"
	childFault = "MT_TEST_CHILD_FAULT"
)

func TestMain(m *testing.M) {
	if from := os.Getenv(childFrom); from != "" {
		if err := standIn(from, os.Getenv(childFault)); err != nil {
			fmt.Fprintln(os.Stderr, "mt:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// few returns options that select few cases, so that child processes are fast: the last case of
// each type for three operations.
func few() SelfTestOptions {
	last := map[string]string{}
	for _, name := range caseNames() {
		parts := strings.SplitN(name, "/", 3)
		last[parts[0]+"/"+parts[1]] = name
	}
	return SelfTestOptions{Choice: Choice{[]string{partTable, partCopies}}, Cases: func(name string) bool {
		parts := strings.SplitN(name, "/", 3)
		return slices.Contains([]string{"AddBiasGrad", "Convert", "Scale"}, parts[0]) && last[parts[0]+"/"+parts[1]] == name
	}}
}

// standIn runs in a child process in place of mt doctor. Its device fails as fault says, in the
// form HOW:OPERATION.
func standIn(from, fault string) error {
	n, err := strconv.Atoi(from)
	if err != nil {
		return err
	}
	copySizes = []int{1 << 10}
	how, op, _ := strings.Cut(fault, ":")
	return ServeSelfTest(context.Background(), os.Stdout, n, func() (SelfTestOptions, func() error, error) {
		o := few()
		switch how {
		case "unopened":
			return o, nil, errors.New("there is no such device")
		case "stuck":
			select {}
		case "again":
			if n > 0 {
				return o, nil, errors.New("the device is busy")
			}
		}
		dev, err := cpu.New(cpu.Options{Threads: 1})
		o.CPU, o.Device = dev, &faulty{Device: dev, how: how, op: op}
		return o, func() error {
			if how == "unclosed" {
				return errors.New("an event is left")
			}
			if how == "endless" {
				select {}
			}
			return dev.Close()
		}, err
	})
}

// faulty is a device on which the operation op fails in the way how, such as a hang.
type faulty struct {
	device.Device
	how, op string
	lost    bool
}

// faultyStream is a stream of a faulty device. It returns an error once the device is lost.
type faultyStream struct {
	device.Stream
	d *faulty
}

func (d *faulty) NewStream(name string) (device.Stream, error) {
	if d.how == "copies" && name == "measure" {
		d.lost = true
	}
	s, err := d.Device.NewStream(name)
	return faultyStream{s, d}, err
}

// Sync implements device.Stream. It fails after the device is lost, as a GPU's stream does.
func (s faultyStream) Sync() error {
	err := s.Stream.Sync()
	if s.d.lost {
		return errors.New("the context is lost")
	}
	return err
}

func (d *faulty) Do(s device.Stream, o device.Op) {
	if s = s.(faultyStream).Stream; d.op != "" && !strings.HasPrefix(o.Name(), d.op) {
		d.Device.Do(s, o)
		return
	}
	switch d.how {
	case "fault", "again":
		d.lost = true
	case "hang":
		select {}
	case "die":
		fmt.Println("a library says something")
		fmt.Fprintln(os.Stderr, "panic: a broken pointer\n\tin a file")
		os.Exit(3)
	default:
		d.Device.Do(s, o)
	}
}

// processes returns Processes whose children run standIn with the given fault. No test waits for a
// clock: a child counts as silent as soon as its fault silences it.
func processes(fault string, stderr io.Writer) Processes {
	how, op, _ := strings.Cut(fault, ":")
	return Processes{Limit: time.Hour, Grace: time.Minute, Stderr: stderr,
		Command: func(_ string, from int) *exec.Cmd {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), childFrom+"="+strconv.Itoa(from), childFault+"="+fault)
			return c
		},
		silence: func(what string, _ time.Duration) <-chan time.Time {
			c := make(chan time.Time, 1)
			if how == "hang" && strings.HasPrefix(what, op+"/") || how == "stuck" && what == "opening the device" || how == "endless" && what == "closing the device" {
				c <- time.Now()
			}
			return c
		}}
}

// TestSupervise: each kind of child failure costs one unit and is in the report, and the other units still run.
func TestSupervise(t *testing.T) {
	for fault, want := range map[string]struct {
		losses []string // prefixes of the losses
		why    string   // part of each error
		err    string
		good   int // passed checks
		bad    int // failed checks
	}{
		"":                  {good: 7},
		"fault:Scale":       {losses: []string{"Scale/fp32/", "Scale/bf16/"}, why: "the context is lost", good: 5, bad: 2},
		"hang:Convert":      {losses: []string{"Convert/fp32/", "Convert/bf16/"}, why: "no sign of life for 1h0m0s", good: 5, bad: 2},
		"die:AddBiasGrad":   {losses: []string{"AddBiasGrad/fp32/", "AddBiasGrad/bf16/"}, why: "(exit status 3): panic: a broken pointer", good: 5, bad: 2},
		"copies":            {losses: []string{"copies of 0 MiB"}, why: "the context is lost", good: 6, bad: 1},
		"endless":           {losses: []string{"closing the device"}, why: "no sign of life for 1h0m0s", good: 7, bad: 1},
		"unclosed":          {good: 7, bad: 1},
		"unopened":          {err: "there is no such device"},
		"stuck":             {losses: []string{"opening the device"}, why: "no sign of life for 2h0m0s", err: "opening the device hung after "},
		"again:AddBiasGrad": {losses: []string{"AddBiasGrad/fp32/"}, why: "the context is lost", err: "the device is busy", bad: 1},
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			o, saved, errs := few(), []byte(nil), new(bytes.Buffer)
			o.Save = func(r *SelfTestReport) (err error) { saved, err = json.Marshal(r); return err }
			r, err := SuperviseSelfTest(t.Context(), o, processes(fault, errs))
			if (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), want.err) || err != nil && !strings.Contains(r.Error, want.err) {
				t.Errorf("error %v, want %q; in the report %q", err, want.err, r.Error)
			}
			good := 0
			for _, c := range r.Checks {
				if c.OK {
					good++
				}
			}
			if good != want.good || r.Failed() != want.bad || r.OK != (fault == "") || len(r.Losses) != len(want.losses) {
				t.Fatalf("%d checks hold, want %d: %+v", good, want.good, r)
			}
			for i, l := range r.Losses {
				if !strings.HasPrefix(l.Case, want.losses[i]) || !strings.Contains(l.Error, want.why) || l.Seconds < 0 {
					t.Errorf("%+v, want %s: %s", l, want.losses[i], want.why)
				}
			}
			if len(r.Losses) > 0 && r.Lost != r.Losses[0].Case {
				t.Errorf("first lost: %q", r.Lost)
			}
			if raw, err := json.Marshal(r); err != nil || !bytes.Equal(raw, saved) {
				t.Errorf("%v, saved last is\n%s, want\n%s", err, saved, raw)
			}
			if died := strings.HasPrefix(fault, "die"); died != strings.Contains(errs.String(), "a library says something\npanic: a broken pointer\n") {
				t.Errorf("standard error is %q", errs)
			}
			if fault == "unclosed" && r.Checks[len(r.Checks)-1].Errors[0] != "an event is left" {
				t.Errorf("%+v", r.Checks)
			}
		})
	}
}

// TestHangIsNamed: the error of a hanging child repeats the device's line about hanging work, and no other line.
func TestHangIsNamed(t *testing.T) {
	c := &child{stderr: io.Discard}
	if said := c.unended(); said != "" {
		t.Errorf("without a note: %q", said)
	}
	for _, line := range []string{"note: a note\n", "note: Scale by scale_bf16 has not ended after 10s\n", "note: another\n"} {
		if _, err := c.Write([]byte(line)); err != nil {
			t.Error(err)
		}
	}
	if said := c.unended(); said != "; note: Scale by scale_bf16 has not ended after 10s" {
		t.Error(said)
	}
}

// TestServe: a child process announces each case before it runs the case, and sends nothing after
// its device is lost.
func TestServe(t *testing.T) {
	var said bytes.Buffer
	dev := newCPU(t, cpu.Options{Threads: 2})
	testkit.NoError(t, ServeSelfTest(t.Context(), &said, 0, func() (SelfTestOptions, func() error, error) {
		o := few()
		o.CPU, o.Device = dev, &faulty{Device: dev, how: "fault", op: "Convert"}
		return o, nil, nil
	}))
	var got []string
	for lines := json.NewDecoder(&said); ; {
		var m message
		if err := lines.Decode(&m); err != nil {
			break
		}
		word, _, _ := strings.Cut(m.Running, "/")
		if m.Done != nil {
			word = fmt.Sprintf("%d losses", len(m.Done.Losses))
		}
		got = append(got, fmt.Sprintf("%d %s", m.Unit, word))
	}
	if want := "0 , 0 AddBiasGrad fp32, 0 AddBiasGrad, 0 0 losses, 1 AddBiasGrad bf16, 1 AddBiasGrad, 1 0 losses, 2 Convert fp32, 2 Convert, 2 1 losses"; strings.Join(got, ", ") != want {
		t.Errorf("the child says %q, want %q", got, want)
	}
}

// TestManyLosses: a self test ends after mostLosses lost processes. Its report names the units that
// did not run.
func TestManyLosses(t *testing.T) {
	defer func(was int) { mostLosses = was }(mostLosses)
	mostLosses = 2
	r, err := SuperviseSelfTest(t.Context(), few(), processes("fault:", io.Discard))
	if err == nil || len(r.Losses) != 2 || r.OK || !strings.Contains(r.Error, "2 processes are lost; Convert fp32 and what comes after it are left out") {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestSuperviseEnds: cancelling a test kills its child, whatever the child does, and the report names the running
// case.
func TestSuperviseEnds(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	p := processes("", io.Discard)
	p.silence = func(what string, _ time.Duration) <-chan time.Time {
		if strings.HasPrefix(what, "Convert/fp32/") {
			cancel(stopped)
		}
		return nil
	}
	var child *exec.Cmd
	command := p.Command
	p.Command = func(kind string, from int) *exec.Cmd {
		child = command(kind, from)
		child.Env = append(child.Env, childFault+"=hang:Convert")
		return child
	}
	r, err := SuperviseSelfTest(ctx, few(), p)
	if !errors.Is(err, stopped) || r.OK || !strings.Contains(r.Error, "stopped while Convert/fp32/") || len(r.Checks) != 2 {
		t.Errorf("%v, %+v", err, r)
	}
	if child.ProcessState == nil || child.ProcessState.Success() {
		t.Errorf("the child ended with %v", child.ProcessState)
	}
}

// TestStrangeChild: a child that reports unknown units ends the test, as if its program had been replaced.
func TestStrangeChild(t *testing.T) {
	p := processes("", io.Discard)
	p.Command = func(string, int) *exec.Cmd { return exec.Command("echo", `{"unit": 99, "running": "Scale"}`) }
	if r, err := SuperviseSelfTest(t.Context(), few(), p); err == nil || !strings.Contains(err.Error(), "the program was replaced while the test ran") {
		t.Errorf("%v, %+v", err, r)
	}
	p.Command = func(string, int) *exec.Cmd { return exec.Command("/nowhere/mt") }
	if r, err := SuperviseSelfTest(t.Context(), few(), p); err == nil || !strings.Contains(err.Error(), "/nowhere/mt") {
		t.Errorf("%v, %+v", err, r)
	}
}

// TestChoose: names of operations, types and parts select units. Other names are rejected with a list.
func TestChoose(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "operations 96, own-products 1, portable-attention 2, attention-at-size 4, products-at-size 1, long-tensor 1, streams 1, copies 1, training 1, rates 2",
		"operations":                "operations 96, own-products 1, portable-attention 2",
		"Scale":                     "operations 2",
		"MatMul/bf16":               "operations 1, own-products 1",
		"own-products,Scale/fp32":   "operations 1, own-products 1",
		"Attention,copies,training": "operations 2, portable-attention 1, copies 1, training 1",
		caseNames()[0]:              "operations 1",
	} {
		c, err := Choose(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var got []string
		n := map[string]int{}
		o := SelfTestOptions{Choice: c}
		for _, u := range o.units() {
			if n[u.part]++; n[u.part] == 1 {
				got = append(got, u.part)
			}
		}
		for i, part := range got {
			got[i] = fmt.Sprintf("%s %d", part, n[part])
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q chooses %q, want %q", text, got, want)
		}
	}
	for _, bad := range []string{"Scael", "Scale/fp64", "Scale,", "copies/fp32", "repeat"} {
		if _, err := Choose(bad); err == nil || !strings.Contains(err.Error(), "ScaleRows, ") || !strings.Contains(err.Error(), "long-tensor, streams") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if c, err := Choose("Scale,own-products"); err != nil || c.takes(partTable, "ScaleRows/fp32/3") || c.takes(partTable, "MatMul/fp32/x") || !c.takes(partOwn, "MatMul/fp32/x") {
		t.Errorf("%v: ScaleRows is another operation than Scale, and own-products repeats products alone", err)
	}
}
