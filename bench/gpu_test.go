package bench

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// script runs bench/gpu.sh with programs in the folder bin that stand in for mt and
// compute-sanitizer.
type script struct {
	t        *testing.T
	bin, out string
}

func newScript(t *testing.T) script {
	t.Helper()
	for _, name := range []string{"bash", "python3", "timeout", "awk"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(name + " is not in the path")
		}
	}
	s := script{t, t.TempDir(), t.TempDir()}
	s.program("mt", `case $1 in version) echo "mt of a test" ;; doctor) echo "$@" >>"$(dirname "$0")/asked"; echo '{"device": "a GPU", "ok": true, "seconds": 1, "checks": [], "rates": []}' ;; esac`)
	return s
}

// program writes a shell script called name into bin. Its text replaces the program, except that mt
// bench report is run by this test binary.
func (s script) program(name, text string) {
	s.t.Helper()
	if name == "mt" { // the page is the program's own
		text = fmt.Sprintf("[ \"$1 $2\" != 'bench report' ] || exec env %s=\"$3\" %q\n%s", reportOf, os.Args[0], text)
	}
	if err := os.WriteFile(filepath.Join(s.bin, name), []byte("#!/usr/bin/env bash\n"+text+"\n"), 0o755); err != nil {
		s.t.Fatal(err)
	}
}

// run runs bench/gpu.sh and returns its output and the report that it wrote.
func (s script) run(args ...string) (out, report string, err error) {
	s.t.Helper()
	c := exec.Command("bash", append([]string{"gpu.sh", "--mt", filepath.Join(s.bin, "mt"), "--out", s.out, "--scale", "small"}, args...)...)
	c.Env = append(os.Environ(), "PATH="+s.bin+":"+os.Getenv("PATH"))
	raw, err := c.CombinedOutput()
	text, reading := os.ReadFile(filepath.Join(s.out, "report.md"))
	if reading != nil {
		s.t.Fatalf("%v\n%s", reading, raw)
	}
	return string(raw), string(text), err
}

// reportOf is the environment variable that makes this test binary print the report on the folder
// that it names.
const reportOf = "MT_TEST_BENCH_REPORT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(reportOf); dir != "" {
		c, err := ReadContact(dir)
		if err == nil {
			err = c.WriteMarkdown(os.Stdout)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const sanitizeParts = "sanitize-memcheck,sanitize-racecheck,sanitize-synccheck"

// TestSanitize: the self test runs under each tool of compute-sanitizer. Findings are in the report and fail the
// script. A slow tool is stopped, and a missing tool is named.
func TestSanitize(t *testing.T) {
	testkit.NotShort(t)
	s := newScript(t)
	s.program("compute-sanitizer", `
tool=$2 log=$6; shift 6
echo "========= COMPUTE-SANITIZER" >"$log"
case $tool in
racecheck) echo "========= Error: Potential WAW hazard detected at __shared__ 0x0 in matmul" >>"$log"
	"$@"; echo "========= RACECHECK SUMMARY: 1 hazard displayed" >>"$log"; exit 9 ;;
synccheck) exit 124 ;; # as timeout ends that stops it
esac
"$@"; echo "========= ERROR SUMMARY: 0 errors" >>"$log"`)
	out, report, err := s.run("--sanitize", "--only", sanitizeParts)
	if err == nil {
		t.Errorf("findings do not fail the script:\n%s", out)
	}
	for _, want := range []string{"## compute-sanitizer", "memcheck: ERROR SUMMARY: 0 errors", "racecheck: RACECHECK SUMMARY: 1 hazard displayed",
		"========= Error: Potential WAW hazard detected at __shared__ 0x0 in matmul", "synccheck: it was stopped before its summary",
		"- sanitize-memcheck: done in ", ", nothing found", "- sanitize-racecheck: failed: compute-sanitizer has findings, see sanitize-racecheck.txt",
		"- sanitize-synccheck: stopped after its 300 s"} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in the report:\n%s\n%s", want, report, out)
		}
	}
	asked, err := os.ReadFile(filepath.Join(s.bin, "asked"))
	if want := strings.Repeat("doctor --selftest --in-process --small --device cuda --json\n", 2); err != nil || string(asked) != want {
		t.Errorf("mt was asked for\n%s%v", asked, err)
	}
}

// TestSanitizeMissing: if compute-sanitizer is not installed, the report says so, and the script
// continues.
func TestSanitizeMissing(t *testing.T) {
	testkit.NotShort(t)
	if _, err := exec.LookPath("compute-sanitizer"); err == nil {
		t.Skip("compute-sanitizer is installed here")
	}
	if _, err := os.Stat("/usr/local/cuda/bin/compute-sanitizer"); err == nil {
		t.Skip("compute-sanitizer is installed here")
	}
	s := newScript(t)
	out, report, err := s.run("--sanitize", "--only", sanitizeParts+",selftest")
	if err != nil || strings.Count(report, "compute-sanitizer is not installed") != 3 || !strings.Contains(report, "- selftest: done in ") {
		t.Errorf("%v\n%s\n%s", err, out, report)
	}
	s.out = t.TempDir()
	if _, report, err = s.run("--only", "selftest"); err != nil || strings.Contains(report, "sanitize") {
		t.Errorf("without --sanitize: %v\n%s", err, report)
	}
}

// TestPartCutOff: a hanging part is stopped after three times its expected time. The file that it has written is kept,
// and the other parts run.
func TestPartCutOff(t *testing.T) {
	testkit.NotShort(t)
	s := newScript(t)
	s.program("timeout", `[ "$3" != doctor ] && [ "$4" = doctor ] && echo "$2" >"$(dirname "$0")/limit" && shift 2 && "$@" >/dev/null && exit 124
shift 2; exec "$@"`)
	s.program("mt", `case $1 in version) echo "mt of a test" ;;
doctor) while [ $# -gt 1 ]; do shift; done; echo '{"device": "a GPU", "ok": false, "seconds": 1, "checks": null, "rates": null, "running": "Scale/fp32/1", "error": "operations: Scale was lost"}' >"$1" ;; esac`)
	out, report, err := s.run("--only", "selftest,seq1024")
	limit, reading := os.ReadFile(filepath.Join(s.bin, "limit"))
	if err == nil || reading != nil || string(limit) != "180\n" {
		t.Errorf("%v, limit %q, %v\n%s", err, limit, reading, out)
	}
	for _, want := range []string{"a GPU: not finished, 0 checks", "It was cut off while Scale/fp32/1 ran.", "It ended before its end: operations: Scale was lost", "- selftest: failed: it was stopped after ", "its limit is 180 s", "- seq1024: done in "} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in the report:\n%s\n%s", want, report, out)
		}
	}
}

// TestPlan: the script plans its parts in calls of at most ten minutes. The first two calls, which
// include a comparison with a peer, take less than 25 minutes.
func TestPlan(t *testing.T) {
	raw, err := exec.Command("bash", "gpu.sh", "--plan").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	calls := strings.Split(string(raw), "\ncall ")[1:]
	var all int
	for i, call := range calls {
		lines := strings.Split(strings.TrimSpace(call), "\n")
		var sum int
		for _, line := range lines[1 : len(lines)-1] {
			var name string
			var seconds int
			if _, err := fmt.Sscanf(line, " %s %d s", &name, &seconds); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sum += seconds
		}
		all += sum
		if want := fmt.Sprintf("together %d s, %d s in all", sum, all); sum > 570 || strings.Join(strings.Fields(lines[len(lines)-1]), " ") != want {
			t.Errorf("call %d ends with %q, want %q and at most 570 s", i+1, lines[len(lines)-1], want)
		}
		if i == 1 && (all > 25*60 || !strings.Contains(call, "zero3-1024") || !strings.Contains(call, "fsdp2-1024")) {
			t.Errorf("after %d s there is no ratio:\n%s", all, raw)
		}
	}
	if len(calls) != 7 {
		t.Errorf("%d calls:\n%s", len(calls), raw)
	}
}

// TestCalls: a call runs only its own parts, and the report includes the results of earlier calls.
func TestCalls(t *testing.T) {
	testkit.NotShort(t)
	s := newScript(t)
	only := []string{"--only", "doctor,selftest,slots-2,batch-16"}
	if out, report, err := s.run(append(only, "--call", "1")...); err != nil || strings.Count(report, "done in") != 2 || !strings.Contains(report, "- selftest: done") {
		t.Errorf("%v\n%s\n%s", err, out, report)
	}
	s.program("mt", `[ "$1" = version ] || { echo "no such GPU" >&2; exit 1; }`)
	out, report, err := s.run(append(only, "--call", "3")...)
	if err == nil || strings.Count(out, "== slots-2") != 2 || strings.Contains(out, "batch-16") || strings.Contains(out, "selftest") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, want := range []string{"a GPU: passed", "- doctor: done in ", "- selftest: done in ", "- slots-2: failed with exit code 1: no such GPU"} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in the report:\n%s", want, report)
		}
	}
	if out, err := exec.Command("bash", "gpu.sh", "--call", "8", "--out", s.out).CombinedOutput(); err == nil || !strings.Contains(string(out), "--call 8: there are calls 1 to 7") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestContainer: the report has the smallest limit of each kind among the control groups of version 2 and 1. The number
// of blocks follows from the remaining memory.
func TestContainer(t *testing.T) {
	testkit.LongOnly(t)
	for name, tc := range map[string]struct {
		files map[string]string
		says  string // "": no limits
	}{
		"none":      {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n", "sys/fs/cgroup/memory.max": "max\n"}, ""},
		"no groups": {nil, ""},
		"version 2, nested": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n", "sys/fs/cgroup/a/cpu.max": "250000 100000\n", "sys/fs/cgroup/cpu.max": "max 100000\n",
			"sys/fs/cgroup/a/b/memory.max": "5368709120\n", "sys/fs/cgroup/a/b/memory.current": "0\n", "sys/fs/cgroup/a/memory.max": "3221225472\n", "sys/fs/cgroup/a/memory.current": "5\n"},
			"The container may take the time of 2.5 cores and 3.0 GiB of memory."},
		"version 1": {map[string]string{"proc/self/cgroup": "5:memory:/d\n4:cpu,cpuacct:/d\n", "sys/fs/cgroup/cpu/d/cpu.cfs_quota_us": "50000\n", "sys/fs/cgroup/cpu/d/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/d/memory.limit_in_bytes": "1073741824\n", "sys/fs/cgroup/memory/d/memory.usage_in_bytes": "4096\n"}, "The container may take the time of 0.5 cores and 1.0 GiB of memory."},
		"version 1, none": {map[string]string{"proc/self/cgroup": "5:memory:/\n4:cpu,cpuacct:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "4096\n"}, ""},
	} {
		s, root := newScript(t), t.TempDir()
		t.Setenv("MT_HOST_ROOT", root)
		for file, text := range tc.files {
			file = filepath.Join(root, file)
			testkit.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			testkit.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		}
		testkit.NoError(t, os.MkdirAll(filepath.Join(root, "proc"), 0o755))
		testkit.NoError(t, os.WriteFile(filepath.Join(root, "proc/meminfo"), []byte("MemAvailable: 8388608 kB\n"), 0o644))
		out, report, err := s.run("--only", "doctor")
		if err != nil || !strings.Contains(report, tc.says) || strings.Contains(report, "The container") != (tc.says != "") {
			t.Errorf("%s: %v\n%s\n%s", name, err, out, report)
		}
		free := map[string]string{"version 2, nested": "3 GiB", "version 1": "1 GiB"}[name]
		if free == "" {
			free = "8 GiB"
		}
		if want := free + " of host memory free"; !strings.Contains(report, want) {
			t.Errorf("%s: the report does not say %q:\n%s", name, want, report)
		}
	}
}

// TestReasons: the report has the last output of a part that was stopped and the note on work that
// does not end. It has cuda-gdb's description of core dumps, or says that cuda-gdb is missing.
func TestReasons(t *testing.T) {
	testkit.LongOnly(t)
	s := newScript(t)
	s.program("mt", `case $1 in version) echo "mt of a test" ;;
doctor) echo "note: a GPU: Scale by scale_f32 has not ended after 10s" >&2; echo "self test: operations" >&2; echo >&2
	echo "mt: terminated: finishing what is begun; once more to stop at once" >&2
	echo "mt: work on the GPU does not end: stopping without it; checkpoints stay as they are" >&2; exit 137 ;;
bench) echo "mt: code 700" >&2; echo "$SHAPE" >"${CUDA_COREDUMP_FILE/\%p/7}"; exit 1 ;; esac`)
	_, report, _ := s.run("--only", "selftest,blocks-2")
	for _, want := range []string{"- selftest: failed: it was stopped after ", "s: self test: operations; note: a GPU: Scale by scale_f32 has not ended after 10s",
		"- blocks-2: failed with exit code 1: mt: code 700; core dump 7.cudacore: ", "## Core dumps of the GPU"} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in the report:\n%s", want, report)
		}
	}
	_, err := exec.LookPath("cuda-gdb")
	if _, there := os.Stat("/usr/local/cuda/bin/cuda-gdb"); err != nil && there != nil && !strings.Contains(report, "7.cudacore: cuda-gdb is not installed") {
		t.Errorf("the report does not say that cuda-gdb is not installed:\n%s", report)
	}
	s.out = t.TempDir()
	s.program("cuda-gdb", `echo "Opening $5
CUDA Exception: Warp Illegal Address
The exception was triggered at PC 0x7f10
#0  0x7f10 in scale_f32<<<(1,1,1),(32,1,1)>>> ()"`)
	_, report, _ = s.run("--only", "blocks-2")
	want := "core dump 7.cudacore: CUDA Exception: Warp Illegal Address The exception was triggered at PC 0x7f10 #0 0x7f10 in scale_f32<<<(1,1,1),(32,1,1)>>> ()"
	if !strings.Contains(report, want) {
		t.Errorf("%q is not in the report:\n%s", want, report)
	}
}

// TestRehearse: rehearsals of a faulting kernel and of a disagreeing peer leave reports about the fault.
func TestRehearse(t *testing.T) {
	testkit.LongOnly(t)
	newScript(t)
	raw, err := exec.Command("bash", "rehearse.sh", "fault", "peer-disagrees").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, raw)
	}
}
