package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// TestRanksAreRefused: if several processes were started for a command of one, the first reports an error and the
// others are silent, before any other work.
func TestRanksAreRefused(t *testing.T) {
	torch := map[string]string{"RANK": "0", "WORLD_SIZE": "2"}
	hydra := map[string]string{"PMI_RANK": "0", "PMI_SIZE": "2"}
	for _, tt := range []struct {
		args string
		env  map[string]string
		says string
	}{
		{"generate --model no", hydra, "generate: MPICH's mpirun has started 2 ranks, and it is for one process: start it by itself, once"},
		{"bench adamw", hydra, "bench adamw: MPICH's mpirun has started 2 ranks, and it is for one process"},
		{"train no.yaml", torch, "train: torchrun, or something that sets its variables, has started 2 processes (RANK=0, WORLD_SIZE=2): mt's ranks are started by MPI: mpirun -n 2 mt"},
		{"doctor --dir /proc/nowhere", torch, "doctor: torchrun"},
		{"doctor --selftest", hydra, "doctor: MPICH's mpirun has started 2 ranks, and --selftest, --save, --profile and --from-report are for one"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			for rank, name := range []string{"0", "1"} {
				for k, v := range tt.env {
					if strings.HasSuffix(k, "RANK") {
						v = name
					}
					t.Setenv(k, v)
				}
				code, stdout, stderr := mt(t, "", strings.Fields(tt.args)...)
				switch {
				case rank == 0 && (code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.says)):
					t.Errorf("rank 0: exit code %d, want %d and %s\n%s%s", code, exitUsage, tt.says, stdout, stderr)
				case rank == 1 && (code != exitDone || stdout+stderr != ""):
					t.Errorf("rank 1: exit code %d\n%s%s", code, stdout, stderr)
				}
			}
		})
	}
}

// TestDoctorOfRanks: the ranks of a machine are examined together, and rank 0 prints the report. A failure shows in
// the report and in mpirun's exit code.
func TestDoctorOfRanks(t *testing.T) {
	testkit.NotShort(t)
	program := testkit.Must(os.Executable())(t)
	good := t.TempDir()
	for dir, code := range map[string]int{good: exitDone, filepath.Join(good, "none"): exitFailed} {
		r := testkit.RunRanks(t, 2, []string{asCommand + "=1"}, program, "doctor", "--json", "--dir", dir)
		var got struct {
			MPI   struct{ Path, Version, ABI string }
			Ranks struct {
				All   []struct{ Rank, Cores int }
				Rates map[string]float64
			}
			Checks []struct{ Name, State, Found string }
		}
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.Code != code {
			t.Fatalf("exit code %d, want %d; %v\n%s%s", r.Code, code, err, r.Stdout, r.Stderr)
		}
		if says := "mt: doctor: something is broken on the machines of 2 of 2 ranks"; strings.Contains(r.Stderr, says) != (code == exitFailed) {
			t.Errorf("exit code %d, %s", r.Code, r.Stderr)
		}
		found := map[string]string{}
		for _, c := range got.Checks {
			found[c.Name] = c.State
		}
		if got.MPI.Path == "" || got.MPI.ABI == "" || len(got.Ranks.All) != 2 || got.Ranks.All[1].Rank != 1 || got.Ranks.All[1].Cores < 1 || len(got.Ranks.Rates) != 3 ||
			found["ranks"] != "slow" || found["all to all"] != "ok" || (found["rank 1"] == "broken") != (code == exitFailed) {
			t.Errorf("%+v\n%s", got, r.Stderr)
		}
		for name, v := range got.Ranks.Rates {
			if v <= 0 {
				t.Errorf("%s is %g", name, v)
			}
		}
	}
}
