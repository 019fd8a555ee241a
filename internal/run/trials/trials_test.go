package trials

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"mt/device"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/model"
	"mt/plan/rates"
)

// TestTrialsNameEachDevice: a machine's rates must cover every device of the run, or be those of a
// single device, which then stand for all.
func TestTrialsNameEachDevice(t *testing.T) {
	for lanes, says := range map[int]string{2: "", 3: "the rates are those of 2 devices, and the run has 3"} {
		j := &open.Inputs{Config: config.Default(), Lanes: lanes}
		j.Config.Device = "cpu"
		m := &rates.Machine{Device: rates.Device{Kind: "cpu"}, More: make([]rates.Card, 1)}
		if _, err := (&Trials{in: j}).Machine(m); says == "" && err != nil || says != "" && (!config.IsUsage(err) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%d devices: %v", lanes, err)
		}
		m.More = nil
		if _, err := (&Trials{in: j}).Machine(m); err != nil {
			t.Errorf("%d devices that are alike: %v", lanes, err)
		}
	}
}

// TestSmallestMachine: the least memory is found for a run that lacks memory on the device,
// whatever the host has, and for one that lacks it on the host.
func TestSmallestMachine(t *testing.T) {
	c := testkit.Must(model.FromInline(map[string]any{"model_type": "llama", "hidden_size": int64(64), "intermediate_size": int64(128), "num_hidden_layers": int64(2), "num_attention_heads": int64(2),
		"num_key_value_heads": int64(2), "vocab_size": int64(64), "max_position_embeddings": int64(32), "tie_word_embeddings": false}, "test"))(t)
	q := SyntheticOptions{Model: c, Rows: 2, SeqLen: 32, Recompute: "auto"}.request()
	var found []predict.Smallest
	for _, room := range [][2]int64{{1 << 40, 1 << 40}, {1 << 40, 1}, {1, 1 << 40}, {1, 1}} {
		q.DeviceMemory, q.HostMemory = room[0], room[1]
		s, err := predict.SmallestFor(q)
		if err != nil {
			t.Fatalf("with %d and %d bytes: %v", room[0], room[1], err)
		}
		found = append(found, s)
	}
	for _, s := range found {
		if s.Device != found[0].Device || s.Host < 1<<20 || s.Device < 1<<16 {
			t.Errorf("the smallest machines are %+v", found)
		}
	}
}

// TestSmallestMachineOfALongRow: the least memory is found for a row that fits on the device only
// with fp32 gradients. The search must not start with too little host memory, which forces bf16
// gradients.
func TestSmallestMachineOfALongRow(t *testing.T) {
	c, err := model.Preset("qwen2.5-7b")
	testkit.NoError(t, err)
	q := SyntheticOptions{Model: c, Rows: 1, SeqLen: 524288, Act: device.BF16, Recompute: "auto"}.request()
	q.DeviceMemory, q.HostMemory, q.Context = 10<<30, 1<<40, 512<<20
	s, err := predict.SmallestFor(q)
	if err != nil || s.Host > 250<<30 || s.Device > 11<<30 {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestTrialsOnDisks: trials with optimizer states on disks can run before any plan was checked, and
// they leave no file.
func TestTrialsOnDisks(t *testing.T) {
	dir := t.TempDir()
	open := func(keys string) *Trials {
		c := testkit.Must(config.Parse("t.yaml", []byte("model: tiny\ndataset: none\nmax_seq_len: 16\nper_device_train_batch_size: 2\ndevice: cpu\nrecompute: full\nmax_grad_norm: 0\nstate_dir: "+dir+"\n"+keys), config.Args{}))(t)
		trials := testkit.Must(OpenTrials(c, settings.Options{Stderr: io.Discard}))(t)
		return trials
	}
	roomy := open("")
	defer roomy.Close()
	least, err := predict.SmallestFor(roomy.request.Asked)
	testkit.NoError(t, err)
	trials := open(fmt.Sprintf("host_memory: %d\n", least.Host))
	r, err := trials.Plan(trials.Asked())
	if err != nil || r.StateOnDisk == nil {
		t.Fatalf("no state is on a disk: %v", err)
	}
	reports, err := trials.Run(t.Context(), r, 1, 2)
	if err := errors.Join(err, trials.Close()); err != nil || len(reports) != 2 {
		t.Fatalf("%d steps: %v", len(reports), err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
