package bench

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/device/op"
	"mt/device/wrap"
	"mt/internal/doctor"
	"mt/internal/doctor/measure"
	"mt/internal/testkit"
	"mt/plan/rates"
)

const h100 = "NVIDIA H100 80GB HBM3"

// just returns a sample of one value.
func just(v float64) Sample { return Sample{v, v, v} }

// contact writes an invented output folder of bench/gpu.sh on an H100 and returns its path. change,
// unless nil, modifies the reports first.
func contact(t *testing.T, change func(c *Contact)) string {
	t.Helper()
	where := Where{Device: h100, Cores: 16, PredictedFor: "h100-sxm+ddr5-4800x8-16c"}
	c := &Contact{Machine: ContactMachine{Date: "2026-11-26T20:00:00Z", Blocks: 12, HostMemory: 120 << 30, Cores: 16, Processor: "a processor", Version: "mt 1", GPU: h100 + ", 570.86, 81559 MiB"},
		Copy:      &CopyReport{Where: where, Figures: []Figure{{"to enqueue the smallest operation", "µs", rates.Against(5, 4)}}},
		MatMul:    &MatMulReport{Where: where, Tokens: 8192},
		Attention: &AttentionReport{Where: where},
		SelfTest: &doctor.SelfTestReport{Device: h100, Kind: "cuda", OK: true, Rates: []doctor.Rate{{Name: "matrix product fp32", Value: 50, Unit: "TFLOP/s", Detail: "4096×4096×4096", Beside: rates.Against(40, 50)},
			{Name: "host to device", Value: 1, Unit: "GB/s", Detail: "256 MiB pinned"}}},
		Train: map[string]*TrainReport{"profile": {ProfileSteps: 2}}}
	c.Doctor.CUDA.Memory, c.Doctor.CUDA.Device = 79<<30, h100
	add := func(what, memory string, bytes int64, rate float64) {
		c.Copy.Rows = append(c.Copy.Rows, CopyRow{What: what, Memory: memory, Bytes: bytes, GBps: just(rate), Beside: rates.Against(2*rate, rate)})
	}
	add("h2d", "registered", 65536, 65536/22e3) // 22 µs, of which 1.3 are for the bytes
	for _, row := range []struct {
		what, memory string
		rate         float64
	}{{"h2d", "registered", 50}, {"h2d", "pinned", 51}, {"d2h", "registered", 52}, {"h2d, both ways", "registered", 40}, {"d2h, both ways", "registered", 41}, {"d2d", "", 2700}, {"host copy", "", 150},
		{"register, 1 at a time", "pageable", 3}, {"register, 8 at a time", "pageable", 7}} {
		add(row.what, row.memory, 256<<20, row.rate)
	}
	u := measure.Update{Split: true}
	for _, bytes := range []int64{12 << 16, 12 << 24} { // 10 µs and 100 GB/s
		u.Params = bytes / 12
		moved := float64(u.Bytes())
		add("host AdamW, split, fp32 gradient", "", bytes, moved/(10e-6+moved/100e9)/1e9)
	}
	c.Copy.LaunchUS.Stream, c.Copy.LaunchUS.Enqueue = just(2.5), just(4)
	for _, trans := range [][2]bool{{false, true}, {true, false}} {
		c.MatMul.Rows = append(c.MatMul.Rows, MatMulRow{Name: "down", DType: "bf16", M: 8192, N: 3584, K: 18944, TransA: trans[0], TransB: trans[1], TFLOPS: just(700), Beside: rates.Against(790, 700)})
	}
	c.MatMul.Rows = append(c.MatMul.Rows, MatMulRow{Name: "o", DType: "bf16", M: 64, N: 64, K: 64, TFLOPS: just(3)}, MatMulRow{Name: "q", DType: "bf16", M: 64, N: 64, K: 64, TFLOPS: just(1)})
	for _, way := range []string{"forward", "backward"} {
		c.Attention.Rows = append(c.Attention.Rows, AttentionRow{Way: way, DType: "bf16", Length: 8192, Tokens: 16384, Heads: 32, KVHeads: 8, Dim: 128, TFLOPS: just(500), Beside: rates.Against(625, 500)})
	}
	r := c.Train["profile"]
	r.Shape, r.StepSeconds.Ours, r.Pipeline = TrainShape{Rows: 2, SeqLen: 8}, []float64{4}, &PipelineSample{ComputeS: 4}
	r.Details = &Details{Device: h100, PredictedFor: where.PredictedFor, Figures: []Figure{{"step", "s", rates.Against(5, 4)}}, Notes: []string{"all is well"}}
	r.Profile = []OpTime{{wrap.OpTime{Op: (&op.RMSNorm{}).Name(), Calls: 100, Total: 10100 * time.Microsecond, Bytes: 20e9}, rates.Against(4, 5.05)}}
	if change != nil {
		change(c)
	}
	dir := t.TempDir()
	for name, v := range map[string]any{"machine": c.Machine, "doctor": c.Doctor, "copy": c.Copy, "matmul": c.MatMul, "attention": c.Attention, "selftest": c.SelfTest, "profile": r} {
		raw := testkit.Must(json.Marshal(v))(t)
		if name == "doctor" {
			raw = []byte(strings.Replace(string(raw), "{", `{"kernels": "avx2", `, 1))
		}
		if string(raw) != "null" {
			put(t, dir, name+".json", string(raw))
		}
	}
	put(t, dir, "parts.txt", "copy=failed: no GPU\nmatmul=done in 4 s\ncopy=done in 3 s\n")
	return dir
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
}

// TestContactPage: the report shows each measured figure beside its prediction, with the ratio. It
// names each file that cannot be read.
func TestContactPage(t *testing.T) {
	dir := contact(t, nil)
	put(t, dir, "fsdp2-1024.json", "{")
	put(t, dir, "sanitize-memcheck.json", "{")
	c := testkit.Must(ReadContact(dir))(t)
	var page strings.Builder
	testkit.NoError(t, c.WriteMarkdown(&page))
	var words []string // of all lines, with one space between cells
	for line := range strings.Lines(page.String()) {
		words = append(words, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range []string{
		"# mt on " + h100 + ", 570.86, 81559 MiB",
		"Predicted in virtual time for h100-sxm+ddr5-4800x8-16c. A ratio is measured over predicted; where no rate says a figure, both cells are empty.",
		"| matrix product fp32 | TFLOP/s | 40 | 50 | 1.25 | 4096×4096×4096 |",
		"| host to device | GB/s | | 1 | | 256 MiB pinned |",
		"| profile | step | s | 5 | 4 | 0.80 |",
		"| RMSNorm | 100 | 100.0 % | | 4 | 5.05 | 1.26 |",
		"| forward, bf16, 2 × 8,192 tokens, 32/8 heads of 128 | TFLOP/s | 625 | 500 | 0.80 | 500 to 500 |",
		"| d2h, registered, 256 MiB | GB/s | 104 | 52 | 0.50 | 52 to 52 |",
		"| register, 8 at a time, pageable, 256 MiB | GB/s | 14 | 7 | 0.50 | 7 to 7 |",
		"| to enqueue the smallest operation | µs | 5 | 4 | 0.80 | |",
		"| down, bf16, 8192×3584×18944, A·Bᵀ | TFLOP/s | 790 | 700 | 0.89 | 700 to 700 |",
		"- all is well (profile)", "- copy: done in 3 s", "- matmul: done in 4 s",
		"- not read: " + filepath.Join(dir, "fsdp2-1024.json") + ": 1 bytes that are no JSON object (unexpected end of JSON input): the part was cut off; run it again, or remove the file",
	} {
		if !slices.Contains(words, want) {
			t.Errorf("%q is no line of the page:\n%s", want, page.String())
		}
	}
	if strings.Contains(page.String(), "sanitize-memcheck") || strings.Contains(page.String(), "no GPU") {
		t.Errorf("the page has a sanitizer's figures, or an outcome of before:\n%s", page.String())
	}
}

// TestLearn: measured rates replace those of the profile, and the changes list the values before.
// Fields without a measurement are listed too.
func TestLearn(t *testing.T) {
	c, err := ReadContact(contact(t, nil))
	testkit.NoError(t, err)
	found, err := c.Found()
	if err != nil || found != (rates.Found{GPU: h100, DeviceGiB: 81559.0 / 1024, Cores: 16, HostGiB: 120}) {
		t.Fatalf("%+v, %v", found, err)
	}
	base, err := rates.At(found)
	testkit.NoError(t, err)
	before, _ := json.Marshal(base)
	l, err := c.Learn(base)
	testkit.NoError(t, err)
	got := map[string]Learning{}
	for _, change := range l.Changes {
		got[change.Field] = change
	}
	for field, want := range map[string][2]float64{
		"link.h2d_gb_per_s": {55, 50}, "link.d2h_gb_per_s": {55, 52}, "link.both_gb_per_s": {80, 81}, "link.latency_us": {10, 20.69}, "link.pin_gb_per_s": {4, 7},
		"device.memory_gb_per_s": {2848, 2700}, "device.launch_us": {3, 2.5}, "device.enqueue_us": {5, 4}, "device.memory_gib": {79.6, 79},
		"device.products.bf16 8192×3584×18944 A·Bᵀ": {793.2, 700}, "device.products.bf16 8192×3584×18944 Aᵀ·B": {793.2, 700}, "device.products.bf16 64×64×64 A·B": {0.1746, 2}, "device.products.fp32 4096×4096×4096 A·Bᵀ": {50.2, 50},
		"device.attention.bf16 8192 tokens, heads of 128, forward": {603.5, 500}, "device.attention.bf16 8192 tokens, heads of 128, backward": {443.4, 500},
		"device.ops.RMSNorm": {2848, 2030}, "host.memory_gb_per_s": {230.4, 150}, "host.update": {221.2, 100}, "host.cores": {16, 16}, "host.memory_gib": {120, 120},
	} {
		if c := got[field]; math.Abs(c.Before-want[0]) > 2e-3*want[0] || math.Abs(c.After-want[1]) > 2e-3*want[1] || c.Part == "" {
			t.Errorf("%s: %+v, want %g → %g", field, c, want[0], want[1])
		}
		delete(got, field)
	}
	if len(got) > 0 {
		t.Errorf("not wanted: %+v", got)
	}
	if want := "device.attention.fp32,link.peer_gb_per_s,host.updates,host.norm,host.gather,host.pack_s_per_mtoken,host.message_us,disk.write_gb_per_s,disk.read_gb_per_s,network"; strings.Join(l.Kept, ",") != want {
		t.Errorf("kept %v, want %s", l.Kept, want)
	}
	m := l.Machine
	if o := m.Host.Update; math.Abs(o.Fixed-10) > 0.1 {
		t.Errorf("updates begin with %g µs, want 10", o.Fixed)
	}
	if n := len(m.Device.Attention["bf16"]); n != 6 || m.Device.Attention["bf16"][5].Forward != 500 {
		t.Errorf("attention %+v: want the measured one in place of one of six", m.Device.Attention["bf16"])
	}
	if o := m.Device.Ops["RMSNorm"]; math.Abs(o.Rate-2030) > 5 || o.Fixed != 2.5 {
		t.Errorf("RMSNorm %+v: want 20 GB in 10.1 ms less 100 launches of 2.5 µs", o)
	}
	if after, _ := json.Marshal(base); string(after) != string(before) {
		t.Errorf("the profile was\n%s\nand is\n%s", before, after)
	}
	if !strings.HasPrefix(m.Link.Sources["h2d_gb_per_s"], "measured: part copy of ") || m.Name != h100 || !strings.Contains(m.Source, "2026-11-26") {
		t.Errorf("%s, %s, sources %v", m.Name, m.Source, m.Link.Sources)
	}
	file := filepath.Join(t.TempDir(), "rates.json")
	testkit.NoError(t, m.Save(file))
	if _, err := rates.Find(file); err != nil {
		t.Error(err)
	}
	var table strings.Builder
	if err := l.WriteTable(&table); err != nil || !strings.Contains(table.String(), "link.h2d_gb_per_s") || !strings.Contains(table.String(), "not measured, as in h100-sxm+ddr5-4800x8-16c-120g: device.attention.fp32") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestLearnOneFile: a single file of a contact replaces only the rates that it measured.
func TestLearnOneFile(t *testing.T) {
	c, err := ReadContact(filepath.Join(contact(t, nil), "attention.json"))
	testkit.NoError(t, err)
	base, err := rates.Find("h100")
	testkit.NoError(t, err)
	l, err := c.Learn(base)
	if err != nil || len(l.Changes) != 3 || l.Machine.Link.Up != base.Link.Up || l.Machine.Host.Cores != 16 {
		t.Errorf("%+v, %v", l, err)
	}
	// Without a report of mt bench copy, the copies that the self test measured are used.
	if c, err = ReadContact(filepath.Join(contact(t, nil), "selftest.json")); err != nil {
		t.Fatal(err)
	}
	if l, err = c.Learn(base); err != nil || l.Machine.Link.Up != 1 || l.Machine.Device.Products["fp32"][0].Rate != 50 {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestLearnFixed: the fixed time of an operation stays as in the base rates, but is at most half of
// a measured call. The rate follows from the rest of the time.
func TestLearnFixed(t *testing.T) {
	base := testkit.Must(rates.Find("h100"))(t)
	for fixed, want := range map[float64]rates.Op{20: {Fixed: 20, Rate: 2469}, 1e4: {Fixed: 50.5, Rate: 3960}} { // 20 GB in 100 calls of 101 µs
		base.Device.Ops = map[string]rates.Op{"RMSNorm": {Fixed: fixed, Rate: 1000}}
		c, err := ReadContact(filepath.Join(contact(t, nil), "profile.json"))
		testkit.NoError(t, err)
		l, err := c.Learn(base)
		if err != nil || l.Machine.Device.Ops["RMSNorm"] != want || l.Changes[0].Before != 1000 || l.Changes[0].Part != "profile" {
			t.Errorf("%+v, %v; want %+v", l, err, want)
		}
	}
}

// TestLearnRefuses: for a report without usable rates, the error names file, field, value and remedy.
func TestLearnRefuses(t *testing.T) {
	for want, change := range map[string]func(c *Contact){
		"matmul.json: rows[1].tflops.median is -3: want a positive number of TFLOP/s; measure again with mt bench matmul": func(c *Contact) { c.MatMul.Rows[1].TFLOPS.Median = -3 },
		"copy.json: rows[3].gb_per_s.median is 0: want a positive number of GB/s":                                         func(c *Contact) { c.Copy.Rows[3].GBps.Median = 0 },
		"copy.json: launch_us.stream.median is 0: want a positive number of µs":                                           func(c *Contact) { c.Copy.LaunchUS.Stream = just(0) },
		"copy.json: rows[10].bytes is -5: want a size between 12 bytes and 64 TiB":                                        func(c *Contact) { c.Copy.Rows[10].Bytes = -5 },
		`matmul.json: rows[0] is a product of 0 × 3584 × 18944 in "bf16": want positive extents`:                          func(c *Contact) { c.MatMul.Rows[0].M = 0 },
		`attention.json: rows[0].tflops.median is attention over 8192 tokens, heads of 128 in "fp8"`:                      func(c *Contact) { c.Attention.Rows[0].DType, c.Attention.Rows[1].DType = "fp8", "fp8" },
		`attention.json: device is "NVIDIA L40S", and "` + h100 + `" in `:                                                 func(c *Contact) { c.Attention.Device = "NVIDIA L40S" },
		"copy.json: emulated is true: an emulator's figures are no rates":                                                 func(c *Contact) { c.Copy.Emulated = true },
		"machine.json: scale is small: a trial of the script":                                                             func(c *Contact) { c.Machine.Scale = small },
		"matmul.json: device is empty":         func(c *Contact) { c.MatMul.Device = "" },
		"profile.json: profile[0] has 0 calls": func(c *Contact) { c.Train["profile"].Profile[0].Calls = 0 },
		"what it measured cannot be: link.d2h_gb_per_s is 5e+09 GB/s: want a number between 0.01 and 40000": func(c *Contact) { c.Copy.Rows[3].GBps.Median = 5e9 },
		"no part of it measures rates: want the files of mt bench copy, matmul, attention or train": func(c *Contact) {
			c.Copy, c.MatMul, c.Attention, c.SelfTest.Rates, c.Train["profile"].Profile = nil, nil, nil, nil, nil
		},
	} {
		c := testkit.Must(ReadContact(contact(t, change)))(t)
		base := testkit.Must(rates.Find("h100"))(t)
		if _, err := c.Learn(base); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	dir := t.TempDir()
	put(t, dir, "cut.json", `{"rows": [`)
	put(t, dir, "list.json", `[1]`)
	put(t, dir, "other.json", `{"a": 1}`)
	put(t, dir, "words.json", `{"rows": "none", "launch_us": 1}`)
	for name, want := range map[string]string{"cut.json": "10 bytes that are no JSON object", "list.json": "3 bytes that are no JSON object", "other.json": "no part of a report: want what mt bench copy",
		"words.json": "no report of mt bench copy that this mt reads"} {
		c := testkit.Must(ReadContact(filepath.Join(dir, name)))(t)
		if _, err := c.Learn(&rates.Machine{}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := ReadContact(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file or directory: name the folder of bench/gpu.sh --out") {
		t.Error(err)
	}
}
