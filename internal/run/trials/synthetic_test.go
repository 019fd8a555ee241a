package trials

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/layers/schedule"
	"mt/model"
)

// TestSyntheticDevices: a synthetic run has the same losses on any number of devices.
func TestSyntheticDevices(t *testing.T) {
	c := testkit.Must(model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(32), "intermediate_size": int64(64), "num_hidden_layers": int64(4), "num_attention_heads": int64(2),
		"num_key_value_heads": int64(1), "vocab_size": int64(64), "max_position_embeddings": int64(32), "tie_word_embeddings": false}, "test"))(t)
	var want []float64
	for n := 2; n <= 3; n++ {
		s := testkit.Must(StartSynthetic(SyntheticOptions{Model: c, Rows: 4, SeqLen: 16, MicroTokens: 16, Recompute: "auto", Devices: n}))(t)
		reports := testkit.Must(s.Run(3))(t)
		var losses []float64
		for _, r := range reports {
			losses = append(losses, r.Loss)
		}
		if want == nil {
			want = losses
		}
		if !slices.Equal(losses, want) {
			t.Errorf("%d devices: losses %v, two: %v", n, losses, want)
		}
		if lanes, name := s.Plan.Lanes(), s.DeviceName(); lanes != n || !strings.HasPrefix(name, fmt.Sprintf("%d × ", n)) {
			t.Errorf("%d devices: %d lanes on %q", n, lanes, name)
		}
		most := int64(0)
		for _, d := range s.devs {
			most = max(most, d.Usage().PeakTotal)
		}
		if u := s.DeviceUsage(); u.PeakTotal != most || most == 0 {
			t.Errorf("%d devices: the most held by one is %d, said to be %d", n, most, u.PeakTotal)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTrialsOnDevices: trials run on all devices that the configuration names.
func TestTrialsOnDevices(t *testing.T) {
	c, err := config.Parse("t.yaml", []byte("model: tiny\ndataset: none\nmax_seq_len: 16\nper_device_train_batch_size: 4\ndevice: cpu\ndevices: 2\npipeline: {micro_batch_tokens: 16}\n"), config.Args{})
	testkit.NoError(t, err)
	trials, err := OpenTrials(c, settings.Options{Stderr: io.Discard})
	testkit.NoError(t, err)
	defer trials.Close()
	p, err := trials.Plan(trials.Asked())
	testkit.NoError(t, err)
	reports, err := trials.Run(t.Context(), p, 1, 2)
	if err != nil || len(reports) != 2 || p.Lanes() != 2 || p.Order != schedule.Lanes {
		t.Errorf("%d steps on %d lanes, %s: %v", len(reports), p.Lanes(), p.Order, err)
	}
}

// attending is a device on which UseAttention records the kernels that it selects.
type attending struct {
	device.Device
	sm90a bool
	by    *[]string
}

func (d attending) RunsSM90a() bool { return d.sm90a }

func (d attending) UseAttention(kernels string) error {
	*d.by = append(*d.by, kernels)
	return nil
}

// TestSyntheticAttention: a synthetic run uses the same attention kernels as mt train. These are
// the kernels that the options name, or else those for sm_90a if all devices run them, or else the
// fused ones.
func TestSyntheticAttention(t *testing.T) {
	for _, c := range []struct {
		asked  string
		sm90a  []bool
		want   string
		onLoan bool
	}{{"auto", []bool{true}, "sm90a_fused", true}, {"", []bool{false}, "fused", false}, {"auto", []bool{true, false}, "fused", false},
		{"portable", []bool{true}, "portable", false}, {"auto", nil, "", false}} {
		var by []string
		s := &Synthetic{o: SyntheticOptions{AttentionKernels: c.asked}}
		for _, runs := range c.sm90a {
			var dev device.Device = attending{nil, runs, &by}
			if c.onLoan {
				dev = lent{dev}
			}
			s.noted = append(s.noted, dev)
		}
		if c.sm90a == nil {
			s.noted = []device.Device{lent{}} // the CPU
		}
		err := s.chooseAttention()
		if c.sm90a == nil {
			if err != nil || s.attention != "" || by != nil {
				t.Errorf("CPU: %v, %q, %q", err, s.attention, by)
			}
			continue
		}
		if err != nil || s.attention != c.want || len(by) != len(c.sm90a) || by[len(by)-1] != c.want {
			t.Errorf("%q with %v: %v, %q, devices %q, want %q", c.asked, c.sm90a, err, s.attention, by, c.want)
		}
	}
}

// TestSyntheticFault: if a kernel faults, a synthetic run ends with that error. It does not wait
// for the batch of the next step, which nobody has started.
func TestSyntheticFault(t *testing.T) {
	c := testkit.Must(model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(32), "intermediate_size": int64(64), "num_hidden_layers": int64(1), "num_attention_heads": int64(2),
		"num_key_value_heads": int64(1), "vocab_size": int64(64), "max_position_embeddings": int64(32), "tie_word_embeddings": false}, "test"))(t)
	drv := emu.New(emu.Options{CrashAt: emu.Launch{Kernel: "rmsnorm", N: 1}})
	testkit.Close(t, drv)
	gpu := machine.FindGPU(drv)
	dev := testkit.Must(gpu.Open(machine.First, 0))(t)
	s := testkit.Must(StartSynthetic(SyntheticOptions{Model: c, Rows: 1, SeqLen: 16, Act: device.BF16, Threads: 1, Recompute: "auto", On: dev}))(t)
	if _, err := s.Run(1); !errors.Is(err, cudart.ErrContextLost) {
		t.Errorf("%v, want a lost context", err)
	}
	if err := s.Close(); !errors.Is(err, cudart.ErrContextLost) {
		t.Errorf("closed: %v, want a lost context", err)
	}
	_ = dev.Close() // its calls fail too
}
