package run

import (
	"errors"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// ordered are keys for runs whose results must not depend on the number of devices.
const ordered = "micro_batch_order: lanes\npipeline: {micro_batch_tokens: 12}\nsave_steps: 2\nval_size: 2\neval_steps: 3\nneftune_noise_alpha: 3\n"

// TestDevicesGiveTheSameBits: a run on two or three devices has the same losses, weights and
// checkpoints as a run on one. Both take the micro-batches in the same order. A run can resume with
// another number of devices.
func TestDevicesGiveTheSameBits(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for name, recipe := range map[string]string{"fp32": "", "copied bf16": "compute_dtype: bf16\nbinding: copy\nmax_grad_norm: 0\n", "experts": "experts\nbinding: copy\n"} {
		t.Run(name, func(t *testing.T) {
			scene := recipeScene(t, recipe)
			scene = scene.with(ordered)
			want := scene.in(t)
			want.mustTrain(t)
			for _, devices := range []string{"2", "3"} {
				got, way := scene.in(t).with("devices: "+devices+"\n"), "from device to device, where a slot waits for it"
				if devices == "3" {
					got, way = got.with("peer_copies: false\n"), "through the host"
				}
				out := got.mustTrain(t)
				if !strings.Contains(out, devices+" devices; on device 0 layers ") || !strings.Contains(out, "what passes between them goes "+way) {
					t.Errorf("the run does not say which layers are where, or that what passes goes %s:\n%s", way, out)
				}
				sameRun(t, got, want)
			}
			got := scene.in(t)
			for i, devices := range []string{"devices: 2\n", "devices: 1\n", "devices: 3\n"} {
				if _, err := got.with(devices).interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(2*i+1, cancel) }); !errors.Is(err, settings.ErrInterrupted) {
					t.Fatal(err)
				}
			}
			got.mustTrain(t)
			sameRun(t, got, want)
		})
	}
}

// TestDevicesThatDiffer: devices of different speeds get layers in proportion to their rates, and
// the bits equal a single device's. A resumed run keeps its assignment of layers when the rates
// change, unless the number of devices changes.
func TestDevicesThatDiffer(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, ordered)
	want.mustTrain(t)
	got := want.in(t)
	var tables []string
	saw := func(out string) {
		_, table, _ := strings.Cut(out, " devices; on device 0 layers")
		table, _, _ = strings.Cut(table, "\n")
		tables = append(tables, table)
	}
	for i, keys := range []string{"devices: 2\ndevice_rates: rtx-3090,b200\n", "devices: 2\n", "devices: 3\n"} {
		out, err := got.with(keys).interrupted(t, func(cancel func()) settings.Hooks { return stopsAfter(2*i+1, cancel) })
		if !errors.Is(err, settings.ErrInterrupted) {
			t.Fatalf("%v\n%s", err, out)
		}
		saw(out)
	}
	saw(got.with("devices: 2\n").mustTrain(t))
	if tables[0] == "" || tables[0] != tables[1] || tables[1] == tables[3] || !strings.Contains(tables[2], "on device 2") {
		t.Errorf("the tables of layers are %q: the first is made by the rates, the second kept, and those after it are of devices that are alike", tables)
	}
	sameRun(t, got, want)
}

// TestDevicesThatCannotBe: combinations of keys that several devices do not support give an error
// before any work.
func TestDevicesThatCannotBe(t *testing.T) {
	began := newScene(t, "save_steps: 4\n")
	began.mustTrain(t)
	for name, tc := range map[string]struct {
		scene scene
		says  string
	}{
		"zigzag":    {newScene(t, "devices: 2\nmicro_batch_order: zigzag\n"), "micro_batch_order: zigzag turns"},
		"many":      {newScene(t, "devices: 9\n"), "9 are more than the model has layers: at most 5"},
		"gpus":      {newScene(t, "device: cpu\ndevices: [0, 2]\n"), "devices: 2"},
		"rates":     {newScene(t, "devices: 2\ndevice_rates: rtx-4099\n"), "did you mean"},
		"fewer":     {newScene(t, "devices: 3\ndevice_rates: rtx-4090,rtx-3090\n"), "rates of 2 devices, and the run has 3"},
		"none":      {newScene(t, "devices: 0\n"), "give at least 1 device"},
		"nonsense":  {newScene(t, "devices: both\n"), `"both"`},
		"resumed":   {began.with("devices: 2\nmax_steps: 9\n"), "micro_batch_order"},
		"reordered": {began.with("micro_batch_order: lanes\nmax_steps: 9\n"), "micro_batch_order was zigzag, is lanes"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := config.Parse("run.yaml", []byte(tc.scene.source()), config.Args{})
			if err == nil {
				err = Train(t.Context(), c, settings.Options{Stdout: &strings.Builder{}, Stderr: &strings.Builder{}})
			}
			if err == nil || !config.IsUsage(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("the error is %v, want one of the configuration that says %q", err, tc.says)
			}
		})
	}
}

// TestGPUsGiveTheSameBits: two of three emulated GPUs give the same bits as one, and device auto
// uses all three.
func TestGPUsGiveTheSameBits(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, for which actors has runs on several emulated GPUs")
	}
	want := newScene(t, "device: cuda\nmax_steps: 3\nsave_steps: 2\nmicro_batch_order: lanes\npipeline: {micro_batch_tokens: 12}\n")
	if out, err := want.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{})}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for devices, says := range map[string]string{"[0, 2]": "2 devices", "auto": "3 devices"} {
		got, way := want.in(t).with("devices: "+devices+"\n"), map[bool]string{true: "through the host", false: "from device to device, where a slot waits for it"}[devices == "auto"]
		out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{Devices: 3, WithoutPeers: devices == "auto"})})
		if err != nil || !strings.Contains(out, says) || !strings.Contains(out, "what passes between them goes "+way) {
			t.Fatalf("%v\n%s", err, out)
		}
		sameRun(t, got, want)
	}
	out, err := want.in(t).with("devices: 4\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{Devices: 3})})
	if err == nil || !strings.Contains(err.Error(), "GPU 3 is asked for, counted from 0, and there are 3") {
		t.Errorf("four of three GPUs: %v\n%s", err, out)
	}
}
