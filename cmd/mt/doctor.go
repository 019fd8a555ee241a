package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/cpu"

	"mt/base/cluster"
	"mt/device/cpu/gemm"
	"mt/host"
	"mt/host/optim"
	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/machine"
)

// health is the report of mt doctor.
type health struct {
	OS        string        `json:"os"`
	Processor string        `json:"processor,omitempty"`
	Features  []string      `json:"cpu_features"`
	Kernels   string        `json:"kernels"`  // instruction set of the host kernels
	Products  string        `json:"products"` // instruction set of the CPU device's matrix products
	Cores     int           `json:"cores"`
	Threads   int           `json:"threads"`
	Available config.Bytes  `json:"available_memory_bytes,omitempty"`
	Device    string        `json:"device"` // the choice of device: auto
	CUDA      machine.CUDA  `json:"cuda"`
	MPI       cluster.Found `json:"mpi"`
	Ranks     *exchange     `json:"ranks,omitempty"` // nil: one process

	Checks doctor.Parts `json:"checks"`
}

// doctorFlags holds the flags of mt doctor.
type doctorFlags struct {
	asJSON                      bool
	dir, save, profile, devices string
	fromReport                  string
	test                        selfTest
}

func (a *app) doctorCommand() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Show what mt finds on this machine and what slows it down, or test it",
		Long: `Doctor shows the machine, the CUDA libraries that were found and where, and what
is missing with the way to get it. Of each part of the machine that a run's speed
hangs on it says whether it is ok, slow or broken, and what to do about it: the
link and the clocks of the GPU, instructions and quota of the CPU, huge pages,
NUMA, how fast memory is, and how fast a file is written to the folder --dir. The
exit code is 1 where something is broken.

Started as several ranks by an MPI, it also shows where they are, what is broken on
the machine of any, and how fast they exchange bytes.

With --selftest it computes the table of operations on the device and on the CPU, and
attention, matrix products and a tensor of more than 2^31 elements at the sizes of
training in two ways; it proves the order of streams, trains ten steps on both, and
measures copies, matrix products and attention. The exit code is 1 where something
does not hold. The test runs in a child process; where a kernel faults or hangs, the
report names the case, and another process runs what is left.

With --save it measures, in about a minute, what the device, the link, the host's
memory and the disk reach, and writes it to a file of rates. Of several GPUs it
measures each that differs, and what they copy to each other at. With --profile it
shows the rates of a machine that mt knows, or of such a file, with where each
figure is from: a GPU (rtx-4090), or a GPU and a host (h100+ddr5-4800x8-64c-1024g).
With --save beside it they are written to a file, to be changed by hand.

With --from-report it makes rates of what bench/gpu.sh measured on a machine, of its
folder or of one file in it, and says of each rate what it was before and which part
measured it. What was not measured stays as in the profile of that GPU, or as in
--profile, and is named. With --save the rates are written to a file.`,
		Example: `  mt doctor
  mt doctor --json --dir /data/runs
  mt doctor --selftest --device cuda --report selftest.json
  mt doctor --selftest --only MatMul,Attention/bf16,copies
  mt doctor --save rates.json
  mt doctor --profile rtx-3090 --save other.json
  mt doctor --from-report out/gpu --save rates.json
  mpirun -n 2 mt doctor`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return a.doctor(c.Context(), f) },
	}
	f.test.define(c.Flags())
	c.Flags().StringVar(&f.dir, "dir", ".", "folder whose disk is tried: where runs would write")
	c.Flags().StringVar(&f.save, "save", "", "measure the machine and write its rates to this file")
	c.Flags().StringVar(&f.devices, "devices", "auto", "of how many devices to save the rates, and what they copy to each other at: auto (all GPUs) or a number")
	c.Flags().StringVar(&f.profile, "profile", "", "show the rates of a GPU, of GPU+HOST, or of a file")
	c.Flags().StringVar(&f.fromReport, "from-report", "", "make rates of what bench/gpu.sh has measured: its folder, or a file of it")
	c.Flags().StringVar(&f.test.device, "device", "auto", "what to test or measure: auto, cpu or cuda")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

// doctor runs the action that the flags of mt doctor select.
func (a *app) doctor(ctx context.Context, f doctorFlags) error {
	if f.test.device != "auto" && f.test.device != "cpu" && f.test.device != "cuda" {
		return config.Usagef("doctor: --device %q: want auto, cpu or cuda", f.test.device)
	}
	l, err := launched("doctor")
	if err != nil {
		return err
	}
	if f.test.wanted || f.save != "" || f.profile != "" || f.fromReport != "" {
		if err := alone("doctor", "--selftest, --save, --profile and --from-report are for one: start them by themselves"); err != nil {
			return err
		}
	}
	switch {
	case f.save != "" && f.test.wanted:
		return config.Usagef("doctor: --save and --selftest are two commands; give one of them")
	case f.profile != "" && f.test.wanted:
		return config.Usagef("doctor: --profile and --selftest are two commands; give one of them")
	case f.fromReport != "" && f.test.wanted:
		return config.Usagef("doctor: --from-report and --selftest are two commands; give one of them")
	case f.fromReport != "":
		return a.learnRates(f.fromReport, f.profile, f.save, f.asJSON)
	case f.profile != "":
		return a.showProfile(f.profile, f.save, f.asJSON)
	case f.save != "":
		return a.saveRates(ctx, f.save, f.dir, f.test.device, f.devices, f.asJSON)
	}
	if f.test.wanted {
		return a.selfTest(ctx, f.test, f.asJSON)
	}
	h, err := examine(f.dir, l)
	if l.Size > 1 {
		return a.examineRanks(h, err, l, f.asJSON)
	}
	if err != nil {
		return err
	}
	if err := a.report(h, f.asJSON); err != nil {
		return err
	}
	if n := h.Checks.Broken(); n > 0 {
		return fmt.Errorf("doctor: %d of %d parts are broken; the report says what to do", n, len(h.Checks))
	}
	return nil
}

// examine inspects the machine, the disk of dir, and the MPI library that fits the launcher (l) of this process. Even
// with an error the result names the MPI library, so that this rank can tell the others about the error.
func examine(dir string, l cluster.Launch) (health, error) {
	found := cluster.Find(cluster.ThisMachine(), l)
	dev, err := machine.Open(machine.Options{Device: "cpu", Unified: true})
	if err != nil {
		return health{MPI: found}, err
	}
	h := health{OS: runtime.GOOS + "/" + runtime.GOARCH, Processor: doctor.Processor(os.DirFS("/")), Features: features(),
		Kernels: optim.Level(), Products: gemm.Level(), Cores: runtime.NumCPU(), Threads: runtime.GOMAXPROCS(0),
		Available: config.Bytes(host.AvailableMemory().Bytes), Device: dev.Name(), CUDA: machine.FindCUDA(),
		MPI: found}
	if h.CUDA.Problem == "" && !h.CUDA.Emulated {
		h.Device = h.CUDA.Device
	}
	h.Checks = judge(h.CUDA, dir)
	return h, dev.Close()
}

// features returns the relevant instruction sets that the processor has.
func features() []string {
	out := []string{}
	for _, f := range []struct {
		name string
		has  bool
	}{
		{"avx2", cpu.X86.HasAVX2}, {"fma", cpu.X86.HasFMA}, {"avx512f", cpu.X86.HasAVX512F},
		{"avx512bw", cpu.X86.HasAVX512BW}, {"avx512dq", cpu.X86.HasAVX512DQ}, {"avx512vl", cpu.X86.HasAVX512VL},
		{"avx512_vbmi", cpu.X86.HasAVX512VBMI}, {"avx512_bf16", cpu.X86.HasAVX512BF16}, {"amx_tile", cpu.X86.HasAMXTile}, {"amx_bf16", cpu.X86.HasAMXBF16},
		{"asimd", cpu.ARM64.HasASIMD}, {"sve", cpu.ARM64.HasSVE},
	} {
		if f.has {
			out = append(out, f.name)
		}
	}
	return out
}

// WriteTable prints h as a table.
func (h health) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	memory := "unknown on this system"
	if h.Available > 0 {
		memory = h.Available.String() + " available"
	}
	for _, row := range [][2]string{
		{"system", h.OS}, {"processor", h.Processor}, {"cpu features", strings.Join(h.Features, " ")}, {"kernels", h.Kernels + ", products " + h.Products},
		{"cores", fmt.Sprintf("%d, %d threads in use", h.Cores, h.Threads)}, {"host memory", memory},
		{"device: auto", h.Device}, {"device: cuda", h.CUDA.String()},
		{"MPI", h.MPI.String()},
	} {
		if _, err := fmt.Fprintf(t, "%s\t%s\n", row[0], row[1]); err != nil {
			return err
		}
	}
	if s := h.CUDA.State; s != nil {
		if _, err := fmt.Fprintf(t, "\t%s\n", s); err != nil {
			return err
		}
	}
	for _, note := range h.CUDA.Notes {
		if _, err := fmt.Fprintf(t, "\t%s\n", note); err != nil {
			return err
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := h.CUDA.WriteLibraries(w); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return h.Checks.WriteTable(w)
}
