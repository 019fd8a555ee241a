package plan

import (
	"errors"
	"strings"
	"testing"

	"mt/device"
	"mt/host/optim"
	"mt/model"
	"mt/schedule"
)

// long is a row of so many tokens of Qwen2.5 7B.
func longRows(tokens int, gib int64) Request {
	return Request{Planes: optim.AdamW{}.Planes, Config: qwen(3584, 18944, 28, 28, 4), Rows: 1, RowTokens: tokens, Act: device.BF16, Clip: true, Context: 512 << 20, DeviceMemory: gib << 30}
}

// TestLongRowsFit: rows of which not even three hidden states fit on the device train there, with all that a
// device of that size can have; where the row fits as a whole, it lies on the device.
func TestLongRowsFit(t *testing.T) {
	for _, c := range []struct {
		tokens int
		gib    int64
		onHost bool
		heads  int
	}{
		{131072, 24, false, 28}, {131072, 10, true, 28}, {524288, 10, true, 28}, {524288, 24, true, 28}, {1 << 20, 24, true, 28}, {1 << 20, 80, false, 28},
		{524288, 10, true, 32}, {524288, 24, true, 32}, {1 << 20, 80, false, 32},
	} {
		q := longRows(c.tokens, c.gib)
		if c.heads == 32 {
			q.Config = qwen(4096, 14336, 32, 32, 8)
		}
		r := resolve(t, q)
		table := r.Table()
		if r.Spec.OnHost != c.onHost || table.Device > q.DeviceMemory || r.Limits.MicroBatchTokens != c.tokens {
			t.Errorf("%+v: hidden states on the host %t, %d bytes of the device", c, r.Spec.OnHost, table.Device)
		}
		for _, row := range table.Rows {
			if c.onHost && row.Where == "device" && (row.Purpose == "activations" || row.Purpose == "saved for backward") || !c.onHost && row.Purpose == "waiting heads" {
				t.Errorf("%+v: %+v", c, row)
			}
		}
		if c.onHost && (r.SpillBytes() != 0 || r.Depths.ActivationSlots != r.allActivations()) {
			t.Errorf("%+v: %d activation slots", c, r.Depths.ActivationSlots)
		}
	}
}

// TestHiddenStatesStayWhereTheyFit: hidden states go to the host where a long row does not fit otherwise, or where that is
// asked for, and nowhere else.
func TestHiddenStatesStayWhereTheyFit(t *testing.T) {
	for name, c := range map[string]struct {
		edit   func(*Request)
		onHost bool
		want   string // of the error
	}{
		"asked for":                {func(q *Request) { q.HiddenStates, q.DeviceMemory = "host", 0 }, true, ""},
		"asked not to":             {func(q *Request) { q.HiddenStates = "device" }, false, "of device memory"},
		"no budget":                {func(q *Request) { q.DeviceMemory = 0 }, false, ""},
		"short rows":               {func(q *Request) { q.RowTokens, q.DeviceMemory, q.HeadShards = 16384, 3<<30, 3 }, false, "of device memory"},
		"one token more":           {func(q *Request) { q.RowTokens, q.DeviceMemory, q.HeadShards = 16385, 3<<30, 3 }, true, ""},
		"several rows together":    {func(q *Request) { q.Rows, q.MicroBatchTokens = 2, 1<<20 }, false, "of device memory"},
		"several rows one by one":  {func(q *Request) { q.Rows = 2 }, true, ""},
		"unified":                  {func(q *Request) { q.Unified = true }, false, "of device memory"},
		"keeping all":              {func(q *Request) { q.Recompute = "none" }, false, "of device memory"},
		"keeping all on the host":  {func(q *Request) { q.Recompute, q.HiddenStates = "none", "host" }, false, "hidden_states: host is not possible with recompute: none"},
		"experts on the host":      {func(q *Request) { *q = small(); q.HiddenStates = "host" }, false, "hidden_states: host is not possible with experts"},
		"two devices":              {func(q *Request) { q.HiddenStates, q.Devices, q.Order = "host", 2, schedule.Lanes }, false, "hidden_states: host is not possible on several devices"},
		"too little on the host":   {func(q *Request) { q.HostMemory = 200 << 30 }, false, "of host memory"},
		"too little on the device": {func(q *Request) { q.DeviceMemory = 6 << 30 }, false, "of device memory"},
		"an evaluation":            {func(q *Request) { q.EvalOnly, q.DeviceMemory = true, 8<<30 }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			q := longRows(524288, 24)
			c.edit(&q)
			r, err := Resolve(q)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Spec.OnHost != c.onHost {
				t.Errorf("hidden states on the host: %t", r.Spec.OnHost)
			}
		})
	}
}

// TestRecurrencesKeepHiddenStates: recurrences and output gates are refused with hidden states on the host.
func TestRecurrencesKeepHiddenStates(t *testing.T) {
	for want, edit := range map[string]func(c *model.Config){
		"with recurrences, whose convolution": func(c *model.Config) { c.Recurrence = &model.Recurrence{} },
		"with an output gate":                 func(c *model.Config) { c.OutputGate = true },
	} {
		q := longRows(65536, 24)
		c := *q.Config
		edit(&c)
		q.Config, q.HiddenStates = &c, "host"
		if _, err := Resolve(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestHiddenStatesOnTheHostChangeNoSums: where hidden states lie changes nothing that the order of sums depends on.
func TestHiddenStatesOnTheHostChangeNoSums(t *testing.T) {
	q := longRows(65536, 39) // of a whole head, whose chunks are as large as a block's workspace allows
	q.HeadShards = 1
	near := resolve(t, q)
	q.HiddenStates = "host"
	far := resolve(t, q)
	if a, b := near.Spec, far.Spec; a.ChunkTokens != b.ChunkTokens || a.HeadChunk != b.HeadChunk || near.Limits != far.Limits || near.GradBF16 != far.GradBF16 {
		t.Errorf("on the device %+v, on the host %+v", a, b)
	}
}

// TestWhatALongRowNeedsAtLeast: the error of a long row says what it needs with hidden states on the host, since that is less.
func TestWhatALongRowNeedsAtLeast(t *testing.T) {
	var lack *NotFitting
	if _, err := Resolve(longRows(524288, 1)); !errors.As(err, &lack) || lack.Need > 11<<30 {
		t.Errorf("%v", err)
	}
}

// TestHeadsThatWait: what waits on the host are q, k and v and attention's output of every token, in training also that one's gradient.
func TestHeadsThatWait(t *testing.T) {
	q := longRows(32768, 0)
	q.HiddenStates = "host"
	const token = 2 * (4608 + 3584)
	if got := resolve(t, q).ScratchBytes(); got != 32768*(token+2*3584) {
		t.Errorf("in training %d bytes", got)
	}
	q.EvalOnly = true
	if got := resolve(t, q).ScratchBytes(); got != 32768*token {
		t.Errorf("in an evaluation %d bytes", got)
	}
}

// TestCrossingsBoundTheTime: what launches copy between host and device counts in the bound of a step's time.
func TestCrossingsBoundTheTime(t *testing.T) {
	q := longRows(32768, 0)
	slow := Rates{MatMul: 1e18, Host: 1e15, Link: 1e9}
	near, err := Time(resolve(t, q), slow)
	if err != nil {
		t.Fatal(err)
	}
	q.HiddenStates = "host"
	far, err := Time(resolve(t, q), slow)
	if err != nil {
		t.Fatal(err)
	}
	// By layers.Spec.Crosses, in rows of 3584 elements of bf16 and of qkv 4608: a block copies 2·3584+4608+3584 up forward.
	const token = 2 * 28 * (2*3584 + 4608 + 3584)
	if more := far.Forward - near.Forward; more < 0.9*token*32768/1e9 || more > 1.1*token*32768/1e9 {
		t.Errorf("the forward takes %g s longer", more)
	}
	if far.Backward <= near.Backward {
		t.Errorf("the backward takes %g s, with all on the device %g", far.Backward, near.Backward)
	}
}
