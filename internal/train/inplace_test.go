package train

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device"
	"mt/internal/config"
	"mt/internal/long"
	"mt/plan/rates"
)

// TestInPlaceSameBits: an integrated GPU that uses weights, gradients and batches in place computes the same bits as one to which
// they are copied, whatever runs late.
func TestInPlaceSameBits(t *testing.T) {
	long.NotShort(t)
	if long.Race {
		t.Skip("the arenas of a tiny model are Go's, and a kernel that reads through a range of several stops checkptr")
	}
	for i, recipe := range []string{"experts\npipeline: {head_shards: 3}\n", "compute_dtype: bf16\n", "compute_dtype: fp32\nmax_grad_norm: 0\n",
		"optim: muon\nval_size: 2\neval_steps: 2\n", "pipeline: {micro_batch_tokens: 10, weight_slots: 1, grad_buffers: 1, activation_slots: 3}\nrecompute: full\ngrad_dtype: bf16\n"}[:long.Count(t, 5, 1)] {
		want := recipeScene(t, recipe).with("device: cuda\nmax_steps: 4\nsave_steps: 2\n")
		if out, err := want.with("binding: copy\n").train(t, t.Context(), hooks{symbols: emulate(t, emu.Options{Integrated: true})}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, o := range []emu.Options{{Mode: emu.Random, Seed: uint64(7 + i), Integrated: true}, {Mode: emu.Lazy, Threads: 1, Integrated: true}}[:long.Count(t, 2, 1)] {
			got := want.in(t).with("binding: unified\n")
			out, err := got.train(t, t.Context(), hooks{symbols: emulate(t, o)})
			if err != nil {
				t.Fatalf("%s: %v\n%s", recipe, err, out)
			}
			sameRun(t, got, want)
			raw, err := os.ReadFile(filepath.Join(got.out, configFile))
			if err != nil || !strings.Contains(string(raw), "binding: unified") {
				t.Errorf("config.yaml does not say that weights are used in place: %v\n%s", err, raw)
			}
		}
	}
}

// TestInPlaceFromDisks: weights that are read from disks are used in place in the buffers that they are read to.
func TestInPlaceFromDisks(t *testing.T) {
	long.Only(t)
	if long.Race {
		t.Skip("as TestInPlaceSameBits")
	}
	for _, recipe := range []string{"max_grad_norm: 0\n", "master_dtype: bf16\noptim: adamw_8bit\n"} {
		want := newScene(t, "device: cuda\nmax_steps: 4\nrecompute: full\ngrad_dtype: fp32\nbinding: unified\npipeline: {state_slots: 1, weight_slots: 1}\n"+recipe)
		symbols := func() hooks { return hooks{symbols: emulate(t, emu.Options{Integrated: true, Mode: emu.Random})} }
		if out, err := want.with("binding: copy\n").train(t, t.Context(), symbols()); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := want.in(t)
		got = got.with(fmt.Sprintf("state_dir: [%s/a]\nparam_dir: [%s/b]\nhost_memory: 2GiB\n", got.root, got.root))
		j, err := openRun(got.config(t), Options{Stdout: io.Discard, Stderr: io.Discard, hooks: symbols()}, Asks{Run: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		least, err := smallestFor(j.asked)
		if closeAfter(j, &err); err != nil {
			t.Fatal(err)
		}
		out, err := got.with(fmt.Sprintf("host_memory: %d\n", least.Host)).train(t, t.Context(), symbols())
		if err != nil || !regexp.MustCompile(`disk +weights`).MatchString(out) {
			t.Fatalf("no weights are said to be on disks: %v\n%s", err, out)
		}
		sameModel(t, got, want)
	}
}

// boundGPU is a GPU that tells whether it uses host memory in place, or cannot.
type boundGPU struct {
	device.Device
	integrated, inPlace bool
	cannot              error
}

func (b *boundGPU) Name() string        { return "GPU" }
func (b *boundGPU) Usage() device.Usage { return device.Usage{Integrated: b.integrated} }
func (b *boundGPU) InPlace(on bool) error {
	if on && b.cannot != nil {
		return b.cannot
	}
	b.inPlace = on
	return nil
}

// TestBindInPlace: GPUs use host memory in place if they must, or if all are integrated and read it as fast as their own;
// otherwise none does.
func TestBindInPlace(t *testing.T) {
	cannot, broken := errors.New("no way"), errors.New("broken")
	for name, c := range map[string]struct {
		devs      []*boundGPU
		must      bool
		own, host float64
		rates     error
		want      bool
		note      string
		err       error
	}{
		"as fast":             {devs: []*boundGPU{{integrated: true}, {integrated: true}}, own: 200e9, host: 180e9, want: true, note: "weights are used in place: the GPU reads host memory at 168 GiB/s and its own at 186 GiB/s (binding)"},
		"slower":              {devs: []*boundGPU{{integrated: true}, {integrated: true}}, own: 200e9, host: 179e9, note: "weights are copied: the GPU reads host memory at 167 GiB/s"},
		"not measured":        {devs: []*boundGPU{{integrated: true}}},
		"one has memory":      {devs: []*boundGPU{{integrated: true}, {}}, own: 1, host: 1},
		"one cannot":          {devs: []*boundGPU{{integrated: true}, {integrated: true, cannot: cannot}}, own: 1, host: 1, note: "weights are copied: no way"},
		"rates fail":          {devs: []*boundGPU{{integrated: true}}, rates: broken, err: broken},
		"must":                {devs: []*boundGPU{{integrated: true}}, must: true, want: true},
		"must, and it cannot": {devs: []*boundGPU{{integrated: true}, {cannot: cannot}}, must: true, err: cannot},
	} {
		var devs []device.Device
		for _, d := range c.devs {
			devs = append(devs, d)
		}
		got, note, err := bindInPlace(devs, c.must, func(device.Device) (float64, float64, error) { return c.own, c.host, c.rates })
		if got != c.want || !strings.Contains(note, c.note) || (note == "") != (c.note == "") || !errors.Is(err, c.err) {
			t.Errorf("%s: %t, %q, %v", name, got, note, err)
		}
		for i, d := range c.devs {
			if d.inPlace != c.want {
				t.Errorf("%s: GPU %d uses host memory in place: %t", name, i, d.inPlace)
			}
		}
	}
}

// TestBindOnPaper: a plan for a GPU that is not here takes the rates' word.
func TestBindOnPaper(t *testing.T) {
	for name, c := range map[string]struct {
		device    string
		hostRead  float64
		binding   string
		want      string
		note, err string
	}{
		"not measured": {device: "gb10", binding: "auto", want: "copy", note: "do not say how fast it reads host memory (mt doctor --save measures; binding)"},
		"as fast":      {device: "gb10", hostRead: 230, binding: "auto", want: "unified", note: "weights are used in place: the NVIDIA GB10"},
		"slower":       {device: "gb10", hostRead: 100, binding: "auto", want: "copy", note: "weights are copied: the NVIDIA GB10"},
		"must":         {device: "gb10", binding: "unified", want: "unified"},
		"must copy":    {device: "gb10", hostRead: 230, binding: "copy", want: "copy"},
		"own memory":   {device: "gh200", binding: "auto", want: "copy"},
		"cannot":       {device: "gh200", binding: "unified", err: "binding: unified: the NVIDIA GH200 96 GB has memory of its own, so weights are copied to it; leave binding out or set copy"},
		"no GPU":       {binding: "unified", err: "there is none to ask"},
		"none, auto":   {binding: "auto", want: "copy"},
	} {
		j := begin(&config.Config{Device: "cuda", Binding: c.binding}, Options{}, Asks{})
		if c.device != "" {
			m, err := rates.Find(c.device)
			if err != nil {
				t.Fatal(err)
			}
			m.Device.HostMemory = c.hostRead
			j.profile = m
		}
		err := j.settleBinding()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		notes := strings.Join(j.notes, "\n")
		if err != nil || j.c.Binding != c.want || j.unified != (c.want == "unified") || !strings.Contains(notes, c.note) || (notes == "") != (c.note == "") {
			t.Errorf("%s: %v, binding %s, %q", name, err, j.c.Binding, notes)
		}
	}
}

// TestReadRates: an integrated GPU's reads are measured; without memory to measure with there are none.
func TestReadRates(t *testing.T) {
	j := begin(&config.Config{Device: "cuda", Devices: "auto"}, Options{Stderr: io.Discard, hooks: hooks{symbols: emulate(t, emu.Options{Integrated: true})}}, Asks{})
	if err := j.takeGPU(Options{Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := bindInPlace(j.devs, true, nil); err != nil {
		t.Fatal(err)
	}
	own, host, err := readRates(j.devs[0], 1<<10)
	if err != nil || own <= 0 || host <= 0 {
		t.Errorf("%g and %g bytes a second, %v", own, host, err)
	}
	if own, host, err := readRates(j.devs[0], 1<<40); err != nil || own != 0 || host != 0 {
		t.Errorf("without memory: %g and %g bytes a second, %v", own, host, err)
	}
}
