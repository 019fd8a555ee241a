package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestImport: a config of another tool is converted and printed or written, and mt plan accepts the result. Lost
// settings are printed, existing files are not overwritten, and mt train rejects what mt import warns about.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	theirs, ours := filepath.Join(dir, "theirs.yaml"), filepath.Join(dir, "ours.yaml")
	const whole = "stage: sft\nfinetuning_type: full\nmodel_name_or_path: " + "MODEL" + "\ndataset: a.jsonl\ncutoff_len: 64\ntemplate: vicuna\n"
	model := filepath.Join(dir, "model")
	testkit.NoError(t, os.Mkdir(model, 0o700))
	for name, text := range map[string]string{theirs: strings.Replace(whole, "MODEL", model, 1) + "use_galore: true\n", filepath.Join(model, "config.json"): `{"model_type": "martian"}`} {
		testkit.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	code, out, errs := mt(t, "", "import", theirs)
	if code != exitDone || !strings.Contains(out, "max_seq_len: 64  # renamed from cutoff_len\n") || !strings.Contains(errs, "theirs.yaml:7:13: use_galore: true: not possible: ") ||
		!strings.Contains(errs, "mt cannot train this model") || !strings.Contains(errs, "martian") {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	if code, out, errs = mt(t, "", "import", theirs, "--out", ours); code != exitDone || out != "" || !strings.Contains(errs, "a config of LLaMA-Factory, written to "+ours) {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
	if code, _, errs = mt(t, "", "plan", ours, "--model", "tiny"); code != exitDone {
		t.Errorf("exit %d\n%s", code, errs)
	}
	for line, want := range map[string]string{
		"import " + theirs + " --out " + ours:         "there is such a file already",
		"import " + theirs + " --out " + dir + "/x/y": "no such file or directory",
		"import":                               "takes one config file",
		"import " + ours:                       "its keys do not show the tool it is for",
		"import " + theirs + " --from axolotI": "--from: must be torchtune",
		"train " + theirs:                      "use_galore: true: not possible",
		"import " + dir + "/none.yaml":         "no such file",
	} {
		if code, _, errs := mt(t, "", strings.Fields(line)...); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %s, want %s", line, code, errs, want)
		}
	}
}

// TestImportOfAContradiction: valid keys that exclude each other are reported as a mistake of the config.
func TestImportOfAContradiction(t *testing.T) {
	theirs := filepath.Join(t.TempDir(), "theirs.yaml")
	const text = "stage: sft\nfinetuning_type: full\nmodel_name_or_path: none\ndataset: a.jsonl\ntemplate: vicuna\nmask_history: true\ntrain_on_prompt: true\n"
	testkit.NoError(t, os.WriteFile(theirs, []byte(text), 0o600))
	code, out, errs := mt(t, "", "import", theirs)
	if code != exitUsage || out != "" || !strings.Contains(errs, "mask_history trains on the last answer of a chat") || !strings.Contains(errs, "mend "+theirs) {
		t.Errorf("exit %d\n%s\n%s", code, out, errs)
	}
}

// TestImportPlans: a converted config that is valid but cannot be planned with its model gives a
// warning. Settings that the other tool's config leaves open are printed.
func TestImportPlans(t *testing.T) {
	theirs := filepath.Join(t.TempDir(), "theirs.yaml")
	model := testkit.Must(filepath.Abs("../../internal/run/testdata/recordings/llama-clipped/model"))(t)
	for lines, want := range map[string]string{
		"freeze: [no_such_tensor]\n": "cannot be planned with this model: ",
		"beta: 0.1\n":                "no key says for which command of TRL this is",
	} {
		testkit.NoError(t, os.WriteFile(theirs, []byte("model_name_or_path: "+model+"\ndataset_name: a.jsonl\n"+lines), 0o600))
		if code, out, errs := mt(t, "", "import", theirs); code != exitDone || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d\n%s\n%s, want %s", lines, code, out, errs, want)
		}
	}
}
