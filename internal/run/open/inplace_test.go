package open

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device"
	"mt/device/cuda"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// boundGPU is a GPU that records whether it uses host memory in place. If cannot is set, InPlace
// fails with it.
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

// TestBindInPlace: GPUs use host memory in place if they must, or if all are integrated and read
// host memory as fast as memory of their own. Otherwise none of them does.
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
		"not pinned":          {devs: []*boundGPU{{integrated: true}}, rates: fmt.Errorf("measure: %w", cuda.ErrNotPinned), note: "weights are copied: measure: the GPU uses host memory in place, which must be pinned for that: raise the limit"},
		"must":                {devs: []*boundGPU{{integrated: true}}, must: true, want: true},
		"must, and it cannot": {devs: []*boundGPU{{integrated: true}, {cannot: cannot}}, must: true, err: cannot},
	} {
		var devs []device.Device
		for _, d := range c.devs {
			devs = append(devs, d)
		}
		got, note, err := BindInPlace(devs, c.must, func(device.Device) (float64, float64, error) { return c.own, c.host, c.rates })
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

// TestBindOnPaper: a plan for a GPU that is not in this machine chooses between weights in place
// and copied weights by the rates in the GPU's profile.
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
		j := &choosing{opening: begin(&config.Config{Device: "cuda", Binding: c.binding}, settings.Options{}, Asks{})}
		if c.device != "" {
			m := testkit.Must(rates.Find(c.device))(t)
			m.Device.HostMemory = c.hostRead
			j.Profile = m
		}
		err := j.settleBinding()
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		notes := strings.Join(j.Notes, "\n")
		if err != nil || j.Config.Binding != c.want || j.Unified != (c.want == "unified") || !strings.Contains(notes, c.note) || (notes == "") != (c.note == "") {
			t.Errorf("%s: %v, binding %s, %q", name, err, j.Config.Binding, notes)
		}
	}
}

// TestReadRates: the rate at which an integrated GPU reads host memory is measured. If memory is
// too short for the measurement, the rates are 0.
func TestReadRates(t *testing.T) {
	drv := emu.New(emu.Options{Integrated: true})
	testkit.Close(t, drv)
	j := &choosing{opening: begin(&config.Config{Device: "cuda", Devices: "auto"}, settings.Options{Stderr: io.Discard, Hooks: settings.Hooks{Symbols: drv}}, Asks{})}
	testkit.NoError(t, j.takeGPU(settings.Options{Stderr: io.Discard}))
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	if _, _, err := BindInPlace(j.Devices, true, nil); err != nil {
		t.Fatal(err)
	}
	own, host, err := readRates(j.Devices[0], 1<<10)
	if err != nil || own <= 0 || host <= 0 {
		t.Errorf("%g and %g bytes a second, %v", own, host, err)
	}
	if own, host, err := readRates(j.Devices[0], 1<<40); err != nil || own != 0 || host != 0 {
		t.Errorf("without memory: %g and %g bytes a second, %v", own, host, err)
	}
}
