package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"mt/base/accounts"
	"mt/host"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/report"
	"mt/internal/run/resolve"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/plan"
	"mt/plan/rates"
)

// largerReference returns the directory of a reference model for DPO. It has the tokens of
// pairModel, and its bf16 weights have 8 MiB.
func largerReference(t *testing.T) string {
	t.Helper()
	s := newScene(t, "max_steps: 1\nsave_strategy: 'no'\nwarmup_steps: 0\n"+strings.NewReplacer("vocab_size: 48", "vocab_size: 259", "hidden_size: 16", "hidden_size: 512",
		"intermediate_size: 24", "intermediate_size: 512", "max_position_embeddings: 32", "max_position_embeddings: 64").Replace(tinyModel))
	s.mustTrain(t)
	return s.out
}

// onPass is a writer that calls the function for every write.
type onPass func()

func (f onPass) Write(b []byte) (int, error) { f(); return len(b), nil }

// TestPassTakesWhatIsPlanned: the pass of the reference model over the pairs allocates exactly the
// planned bytes by purpose. The reference is the model itself or a larger one. The memory of
// training is not allocated yet, and the pass leaves none. In bf16 weights take 2 bytes a
// parameter, except tables whose new rows are the mean of others.
func TestPassTakesWhatIsPlanned(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	larger := "dpo: {beta: 0.3, reference_model: " + largerReference(t) + "}\n"
	for name, extra := range map[string]string{
		"itself": "", "larger": larger, "in bf16": "compute_dtype: bf16\nbinding: copy\n" + larger, "on two devices": "devices: 2\nbinding: copy\n" + larger,
		"itself with new tokens": "compute_dtype: bf16\nadd_tokens: <new>\nresize_vocab: true\n", "small batches": "binding: copy\npipeline: {micro_batch_tokens: 40, activation_slots: 3}\n" + larger,
	} {
		t.Run(name, func(t *testing.T) {
			testkit.DrawnInRace(t, 3)
			j, err := openRun(pairScene(t, extra).config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard}, open.Asks{Run: true}, nil)
			testkit.NoError(t, err)
			defer open.CloseAfter(j, &err)
			table, planned := j.Ref.Pass.Table(), map[string]int64{}
			for _, row := range table.Rows {
				if row.Purpose != "program" && row.Bytes > 0 {
					planned[strings.TrimRight(row.Where, " 01")+" "+strings.Replace(row.Purpose, "staging", "host staging", 1)] += row.Bytes
				}
			}
			if split := planned["host lo planes"] > 0; split != (name == "itself with new tokens") {
				t.Errorf("lower halves are planned: %t", split)
			}
			if _, bf16 := strings.CutPrefix(name, "in bf16"); bf16 && float64(planned["host weights"]) > 2.02*float64(table.Params) {
				t.Errorf("%d bytes for %d parameters", planned["host weights"], table.Params)
			}
			hw, err := j.OpenHardware()
			testkit.NoError(t, err)
			defer open.CloseAfter(hw, &err)
			held := map[string]int64{}
			say := &report.Line{Out: onPass(func() {
				for p, bytes := range host.Usage().Now {
					if p := accounts.Purpose(p); bytes > 0 {
						held["host "+p.String()] = bytes
					}
				}
			})}
			testkit.Must(resolve.FindReferences(j.Resolved, hw.Devs, hw.Pool, say))(t)
			for i, d := range hw.Devs {
				use := d.Usage()
				for p, bytes := range use.Peak {
					switch p := accounts.Purpose(p); {
					case bytes > 0 && p == accounts.HostStaging:
						held["host "+p.String()] += bytes
					case bytes > 0:
						held["device "+p.String()] += bytes
					}
				}
				if use.Total != 0 {
					t.Errorf("device %d keeps %v", i, use.Now)
				}
			}
			if fmt.Sprint(held) != fmt.Sprint(planned) {
				t.Errorf("held:    %v\nplanned: %v", held, planned)
			}
			if u := host.Usage(); u.Total != 0 {
				t.Errorf("the pass has kept host memory: %v", u.Now)
			}
		})
	}
}

// TestPassOfNewTokens: rows of added tokens begin at the mean of other rows, computed in fp32 and
// streamed as bf16. They have the same bits in the model and in its pass as the reference, so all
// rewards are 0 before training.
func TestPassOfNewTokens(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := pairScene(t, "compute_dtype: bf16\nadd_tokens: [<new>, <newer>]\nresize_vocab: true\nlearning_rate: 0\nmax_steps: 1\neval_steps: 1\nlogging_steps: 1\n")
	s.mustTrain(t)
	several := s.in(t)
	several.trainRanks(t, 2) // whose new tokens begin elsewhere, and so the references of one alone are not theirs
	seen := 0
	for _, line := range append(s.metrics(t), several.metrics(t)...) {
		var m map[string]any
		testkit.NoError(t, json.Unmarshal([]byte(line), &m))
		for _, key := range []string{"rewards/chosen", "rewards/rejected", "eval_rewards/chosen", "eval_rewards/rejected"} {
			if x, ok := m[key]; ok && x != 0.0 {
				t.Errorf("%s is %v", key, x)
			} else if ok {
				seen++
			}
		}
	}
	if seen < 8 {
		t.Errorf("%d rewards", seen)
	}
}

// TestPassIsPlanned: the plan, as table and as JSON, has a line for the reference pass of another
// model. For a reference that is the model itself, it says that the pass needs no more memory than
// training. It gives a lower bound on the pass's time once all data is known. If all reference
// log-probabilities are known, no pass is planned.
func TestPassIsPlanned(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	dir := largerReference(t)
	type shown struct {
		Memory plan.Table
		Pass   *shownPass `json:"reference_pass"`
	}
	asJSON := func(text string) (s shown) {
		if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):strings.LastIndex(text, "}")+1]), &s); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return s
	}
	itself := pairScene(t, "")
	larger := itself.with("dpo: {beta: 0.3, reference_model: " + dir + "}\n")
	const more = "given back before training: all pairs go forward through dpo.reference_model"
	for _, of := range []struct {
		s     scene
		words string
		rows  int
	}{{itself, "\nthe forward pass of the model, as the reference, over all pairs before training takes at least ", 0},
		{larger, "\nthe forward pass of dpo.reference_model " + dir + " over all pairs before training takes at least ", 2}} {
		out, err := sketch(t, of.s.source(), settings.Options{})
		if err != nil || !strings.Contains(out, of.words) || !strings.Contains(out, " s for a batch of full rows, of which a step has 4") ||
			strings.Contains(out, more) != (of.rows > 0) || strings.Contains(out, "no more memory than training") != (of.rows == 0) {
			t.Errorf("%v\n%s", err, out)
		}
		raw, err := sketch(t, of.s.source(), settings.Options{JSON: true})
		testkit.NoError(t, err)
		got := asJSON(raw)
		if rows := got.Memory.Before; len(rows) != of.rows || rows != nil && (rows[0].Where != "host" || rows[1].Where != "device" || rows[0].Bytes <= got.Memory.Host || rows[1].Bytes == rows[0].Bytes || rows[1].Purpose != "reference pass") {
			t.Errorf("before training: %v", rows)
		}
		if p := got.Pass; p == nil || p.Step <= 0 || p.Steps != 0 || p.All != nil {
			t.Errorf("the time of the pass: %+v", p)
		}
	}
	// The pass covers the 24 pairs for training and the 6 held-out ones as one data set, 4 rows per
	// step: 8 steps.
	out, err := dryRun(t, larger, settings.Options{})
	if err != nil || !strings.Contains(out, " before training takes 8 batches of 4 rows, at least ") || !strings.Contains(out, " s where all rows are full\n") {
		t.Errorf("%v\n%s", err, out)
	}
	raw, err := dryRun(t, larger, settings.Options{JSON: true})
	testkit.NoError(t, err)
	if p := asJSON(raw).Pass; p == nil || p.Steps != 8 || p.All == nil || *p.All != 8*p.Step {
		t.Errorf("the time of the pass: %+v", p)
	}
	if n, out := larger.passes(t); n != 1 || !strings.Contains(out, more) {
		t.Errorf("%d passes\n%s", n, out)
	}
	if out, err := dryRun(t, larger.in(t), settings.Options{}); err != nil || strings.Contains(out, "the forward pass of") || strings.Contains(out, more) {
		t.Errorf("all is known: %v\n%s", err, out)
	}
}

// dryRun returns the output of mt train --dry-run for the scene.
func dryRun(t *testing.T, s scene, o settings.Options) (string, error) {
	t.Helper()
	var out strings.Builder
	o.Stdout, o.Stderr = &out, &out
	err := DryRun(t.Context(), s.config(t), o)
	return out.String(), err
}

// TestPassOnAMachine: a plan for the profile of a machine gives a lower bound on the time of the
// reference pass, which all its devices share. It also gives the least memory with which both the
// run and the pass fit.
func TestPassOnAMachine(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	const yaml = "model: {preset: qwen2.5-7b, num_hidden_layers: 4}\nmax_seq_len: 512\n"
	predicted := func(keys, gpus string) (p struct {
		Pass *shownPass `json:"reference_pass"`
	}) {
		m, err := rates.Find(gpus)
		testkit.NoError(t, err)
		raw, err := sketch(t, yaml+keys, settings.Options{JSON: true, Forecast: settings.Forecast{Machine: m}})
		if err == nil {
			err = json.Unmarshal([]byte(raw[strings.Index(raw, "{"):strings.LastIndex(raw, "}")+1]), &p)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		return p
	}
	if p := predicted("", "rtx-4090"); p.Pass != nil {
		t.Errorf("a pass without dpo: %+v", p.Pass)
	}
	one, two := predicted("dpo: {beta: 1}\n", "rtx-4090"), predicted("dpo: {beta: 1}\n", "rtx-4090,rtx-3090")
	if one.Pass == nil || two.Pass == nil || one.Pass.Step < 1e-3 || one.Pass.Step > 10 {
		t.Fatalf("%+v, %+v", one.Pass, two.Pass)
	}
	if part := two.Pass.Step / one.Pass.Step; part < 0.6 || part > 0.8 { // 149 of 149 + 64 TFLOP/s
		t.Errorf("two devices take %.3f of the time of the faster one", part)
	}
	// A larger reference needs the memory of its own pass, and the run then needs no more than
	// that.
	c := pairScene(t, "binding: copy\ndpo: {beta: 0.3, reference_model: "+largerReference(t)+"}\n").config(t)
	in, err := open.Open(c, settings.Options{Stdout: io.Discard, Stderr: io.Discard}, open.Asks{Sketch: true})
	testkit.NoError(t, err)
	defer open.CloseAfter(in, &err)
	j, err := resolve.Sketch(in, 0)
	testkit.NoError(t, err)
	run, err := predict.SmallestFor(j.Asked)
	testkit.NoError(t, err)
	pass, err := predict.SmallestFor(*j.Ref.Asked)
	testkit.NoError(t, err)
	if both, err := predict.SmallestOf(j); err != nil || both != pass || pass.Host <= run.Host || pass.Device <= run.Device {
		t.Errorf("%v: %v with both, %v the pass, %v the run", err, both, pass, run)
	}
}

// TestPassThatDoesNotFit: planning refuses a reference that does not fit, with advice, and a reference with fewer
// positions than rows have tokens. If its log-probabilities are known, it needs no memory.
func TestPassThatDoesNotFit(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	dir := largerReference(t)
	s := pairScene(t, "dpo: {beta: 0.3, reference_model: "+dir+"}\n")
	pass := "the forward pass of dpo.reference_model " + dir + " over all pairs before training"
	h := settings.Hooks{Allocating: func() { t.Error("memory is taken") }}
	_, err := s.with("host_memory: 100MiB\n").train(t, t.Context(), h)
	checkError(t, err, true, "run.yaml:", "plan: "+pass+" needs ", "of host memory and 100 MiB are available: ", "use a smaller dpo.reference_model", "raise host_memory", "or give a cache_dir")
	h.Room = func() host.Room { return host.Room{Known: true, Bytes: 100 << 20, By: "x"} }
	_, err = s.with("host_memory: 1GiB\n").train(t, t.Context(), h)
	checkError(t, err, true, "run.yaml:", "host_memory: "+pass+" needs ", "too little: lower host_memory")
	_, err = sketch(t, s.with("max_seq_len: 20\nhost_memory: 100MiB\n").source(), settings.Options{})
	checkError(t, err, true, "run.yaml:", "plan: "+pass+" needs ")

	s.in(t).mustTrain(t)
	known := s.in(t).with("host_memory: 100MiB\n")
	if n, out := known.passes(t); n != 0 {
		t.Errorf("%d passes\n%s", n, out)
	}
	write(t, s.cached(t), "mt references 1\n") // damaged: there is a pass again, but for a run that is finished
	if out, err := known.train(t, t.Context(), settings.Hooks{}); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	_, err = known.in(t).train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, pass)

	learned := newScene(t, "max_steps: 1\nwarmup_steps: 0\nmodel: {model_type: gpt2, n_embd: 16, n_layer: 1, n_head: 2, vocab_size: 259, n_positions: 12, bos_token_id: 1, eos_token_id: 2}\n")
	learned.mustTrain(t)
	_, err = pairScene(t, "dpo: {beta: 0.3, reference_model: "+learned.out+"}\n").train(t, t.Context(), settings.Hooks{})
	checkError(t, err, true, "run.yaml:", "max_seq_len", "dpo.reference_model has learned 12 positions")
}

// plannedPass returns the plans of the scene's training and of its reference pass. asked are the
// depths that the user gave.
func (s scene) plannedPass(t *testing.T) (run, pass *plan.Run, asked plan.Depths) {
	t.Helper()
	j, err := openRun(s.config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard}, open.Asks{Run: true}, nil)
	testkit.NoError(t, err)
	defer open.CloseAfter(j, &err)
	return j.Plan, j.Ref.Pass, j.Ref.Asked.Depths
}

// TestPassHasDepthsOfItsOwn: the reference pass does not use the depths that mt has chosen for
// training, because the reference may be larger. It uses depths that the user gives.
func TestPassHasDepthsOfItsOwn(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := pairScene(t, "binding: copy\nrecompute: full\npipeline: {micro_batch_tokens: 40, activation_slots: 3, weight_slots: 1}\ndpo: {beta: 0.3, reference_model: "+largerReference(t)+"}\n")
	run, pass, asked := s.plannedPass(t)
	if want := (plan.Depths{WeightSlots: 1, ActivationSlots: 3}); asked != want {
		t.Errorf("%+v is asked of the pass, not %+v", asked, want)
	}
	least := max(run.Table().Device, pass.Table().Device)
	run, _, asked = s.with(fmt.Sprintf("device_memory: %d\npipeline: {micro_batch_tokens: 40}\n", least)).plannedPass(t)
	if run.Depths.ActivationSlots <= 3 || asked != (plan.Depths{}) {
		t.Errorf("the run has %d activation slots, and %+v is asked of the pass", run.Depths.ActivationSlots, asked)
	}
}

// TestPassOfAModelOnDisks: if a run keeps weights on disks, the reference pass of the same model
// may need more host memory than training. The plan then has a line for the pass, and refuses a
// budget that is too small for it.
func TestPassOfAModelOnDisks(t *testing.T) {
	const yaml = "model: {hidden_size: 2048, intermediate_size: 8192, num_hidden_layers: 24, num_attention_heads: 16, num_key_value_heads: 16, vocab_size: 1024, max_position_embeddings: 512}\n" +
		"dpo: {beta: 1}\nmax_seq_len: 256\nmax_grad_norm: 0\ndevice_memory: 24GiB\nstate_dir: /a\nparam_dir: /b\nhost_memory: "
	_, err := sketch(t, yaml+"2.5GiB\n", settings.Options{})
	checkError(t, err, true, "run.yaml:", "plan: the forward pass of the model, as the reference, over all pairs before training needs ")
	var lack *plan.NotFitting
	if !errors.As(err, &lack) {
		t.Fatal(err)
	}
	for room, rows := range map[int64]int{lack.Need: 1, lack.Need + 256<<20: 0} {
		out, err := sketch(t, yaml+fmt.Sprintln(room), settings.Options{})
		if n := strings.Count(out, "given back before training: all pairs go forward through the model\n"); err != nil || n != rows {
			t.Errorf("%v: %d rows for the pass\n%s", err, n, out)
		}
	}
}

// shownPass is the time of a pass as plans have it in JSON, in seconds.
type shownPass struct {
	Step  float64  `json:"step_seconds"`
	Steps int      `json:"steps"`
	All   *float64 `json:"seconds"`
}
