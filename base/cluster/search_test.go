package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// machine makes a folder that imitates a computer's files, and an Env that searches for MPI
// libraries below it. Files whose path contains "broken" fail to load; a file's path decides its
// library's version.
func machine(t *testing.T, files []string, vars map[string]string) (e Env, root string, shuts *int) {
	t.Helper()
	root = t.TempDir()
	for _, f := range files {
		at := filepath.Join(root, f)
		testkit.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, nil, 0o755)))
	}
	shuts = new(int)
	return Env{Root: root, Getenv: func(name string) string { return strings.ReplaceAll(vars[name], "ROOT", root) },
		open: func(file string) (*library, error) {
			switch {
			case strings.Contains(file, "broken"):
				return nil, errors.New(file + ": it is broken")
			case !strings.Contains(file, "/") && file != vars["loader"]:
				return nil, errors.New(file + ": cannot open shared object file: No such file or directory")
			}
			l := &library{path: file, version: "MPICH 5.0", abi: MPICH}
			switch {
			case strings.Contains(file, "spectrum"):
				l.version, l.abi = "IBM Spectrum MPI 10.4", OpenMPI
			case strings.Contains(file, "ompi"), strings.HasSuffix(file, ".40"):
				l.version, l.abi = "Open MPI 5.0", Standard
			}
			return l, nil
		},
		shut: func(*library) { *shuts++ },
	}, root, shuts
}

// TestFind: Find returns the nearest library that matches the launcher.
func TestFind(t *testing.T) {
	system := "usr/lib/" + triplet() + "/"
	ofMPICH, ofOpenMPI := Launch{By: "MPICH's mpirun", Size: 2, Family: OfMPICH}, Launch{By: "Open MPI's mpirun", Size: 2, Family: OfOpenMPI}
	for name, tt := range map[string]struct {
		files   []string
		vars    map[string]string
		parents []string
		launch  Launch
		want    string // path below the root
		failed  string // text in the reasons why other libraries were rejected
		shuts   int
	}{
		"nothing":                        {want: ""},
		"a distribution's":               {files: []string{system + "libmpich.so.12"}, want: system + "libmpich.so.12"},
		"the standard ABI first":         {files: []string{system + "libmpi.so.12", system + "libmpi_abi.so.0"}, want: system + "libmpi_abi.so.0"},
		"the loader's before the system": {files: []string{system + "libmpi.so.12"}, vars: map[string]string{"loader": "libmpi.so.40"}, want: "libmpi.so.40"},
		"beside mpirun in PATH": {files: []string{system + "libmpi.so.12", "opt/bin/mpirun", "opt/lib/libmpi.so.40"},
			vars: map[string]string{"PATH": "/none:/opt/bin"}, want: "opt/lib/libmpi.so.40"},
		"of a Python environment": {files: []string{"venv/lib/libmpi.so.12"}, vars: map[string]string{"VIRTUAL_ENV": "ROOT/venv"}, want: "venv/lib/libmpi.so.12"},
		"beside what started it": {files: []string{system + "libmpi.so.12", "opt/lib/libmpi.so.12", "far/bin/hydra_pmi_proxy", "far/lib/libmpi.so.12"},
			parents: []string{"/bin/sh", "ROOT/far/bin/hydra_pmi_proxy"}, launch: ofMPICH, want: "far/lib/libmpi.so.12"},
		"beside a launcher that started it alone": {files: []string{system + "libmpi.so.12", "far/bin/mpirun", "far/lib/libmpi.so.12"},
			parents: []string{"ROOT/far/bin/mpirun"}, want: system + "libmpi.so.12"},
		"of the launcher's family": {files: []string{system + "libmpi.so.12", system + "libmpi.so.40"}, launch: ofOpenMPI, want: system + "libmpi.so.40"},
		"of the other family":      {files: []string{system + "libmpi.so.12", system + "libmpi.so.40"}, launch: ofMPICH, want: system + "libmpi.so.12"},
		"the standard ABI of another family": {files: []string{"ompi/bin/mpirun", "ompi/lib/libmpi_abi.so.1", system + "libmpich.so.12"}, launch: ofMPICH,
			vars: map[string]string{"PATH": "/ompi/bin"}, want: system + "libmpich.so.12", failed: "it is Open MPI 5.0, and MPICH's mpirun started", shuts: 1},
		"of the launcher's family by another name": {files: []string{"spectrum/bin/mpirun", "spectrum/lib/libmpi.so.40"}, launch: ofOpenMPI,
			vars: map[string]string{"PATH": "/spectrum/bin"}, want: "spectrum/lib/libmpi.so.40"},
		"one that does not load": {files: []string{"broken/bin/mpirun", "broken/lib/libmpi.so.12", system + "libmpi.so.12"},
			vars: map[string]string{"PATH": "/broken/bin"}, want: system + "libmpi.so.12", failed: "libmpi.so.12: it is broken"},
		"the one that is named": {files: []string{system + "libmpi.so.12", "my.so"}, vars: map[string]string{Variable: "ROOT/my.so"}, want: "my.so"},
		"only the one that is named": {files: []string{system + "libmpi.so.12"}, vars: map[string]string{Variable: "ROOT/broken.so"},
			failed: "broken.so: it is broken"},
	} {
		t.Run(name, func(t *testing.T) {
			e, root, shuts := machine(t, tt.files, tt.vars)
			for _, p := range tt.parents {
				e.Parents = append(e.Parents, strings.ReplaceAll(p, "ROOT", root))
			}
			f := Find(e, tt.launch)
			got := strings.TrimPrefix(f.Path, root+"/")
			if got != tt.want || !strings.Contains(strings.Join(f.Failed, "; "), tt.failed) || (tt.failed == "") != (f.Failed == nil) || *shuts != tt.shuts {
				t.Errorf("found %q, want %q; failed %q, want %q; %d given back\nsearched %q", got, tt.want, f.Failed, tt.failed, *shuts, f.Searched)
			}
			if says := f.String(); (f.Path == "") != strings.HasPrefix(says, "none") {
				t.Errorf("it reads %q", says)
			}
		})
	}
}

// TestAbsent: absent recognizes the loader's messages for a library that does not exist, on several
// systems. Messages for a library that exists and cannot be used are different.
func TestAbsent(t *testing.T) {
	for says, want := range map[string]bool{
		"libmpi.so.12: cannot open shared object file: No such file or directory":                                       true,
		"Error loading shared library libmpi.so.12: No such file or directory":                                          true,
		"dlopen(libmpi.so.12, 0x000A): tried: 'libmpi.so.12' (no such file), '/usr/lib/libmpi.so.12' (no such file)":    true,
		`Shared object "libmpi.so.12" not found, required by "mt"`:                                                      true,
		"libucp.so.0: cannot open shared object file: No such file or directory":                                        false,
		"libmpi.so.12: cannot open shared object file: Permission denied":                                               false,
		"libmpi.so.12: invalid ELF header":                                                                              false,
		"Error loading shared library libucp.so.0: No such file or directory (needed by /usr/lib/libmpi.so.12)":         false,
		"dlopen(libmpi.so.12, 0x000A): Library not loaded: libucp.dylib\n  Reason: tried: '/lib/libucp' (no such file)": false,
		`Shared object "libucp.so.0" not found, required by "libmpi.so.12"`:                                             false,
	} {
		if got := absent("libmpi.so.12", says); got != want {
			t.Errorf("%s: %v", says, got)
		}
	}
}

// TestStartWithoutALibrary: if no library was found, the error of Start says how to install one
// that works with the launcher.
func TestStartWithoutALibrary(t *testing.T) {
	for family, want := range map[Family]string{
		OfAny:     "no MPI library: apt install mpich,",
		OfMPICH:   "no MPI library: apt install mpich,",
		OfOpenMPI: "no MPI library: apt install openmpi-bin,",
	} {
		l := Launch{Size: 2, Family: family}
		e, _, _ := machine(t, nil, nil)
		_, err := Start(Find(e, l), l, Options{})
		if !errors.Is(err, ErrMissing) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestPostedWhileEnding: an operation that is posted while MPI is being finalized is not begun, and
// gets an error.
func TestPostedWhileEnding(t *testing.T) {
	e := newEngine(&library{})
	c := &mpiComm{w: &mpiWorld{engine: e, size: 1, largest: 1}, name: "late"}
	ends := make(chan error, 1)
	testkit.NoError(t, e.do(func() error {
		c.AllGatherV(nil, []int{0}, func(err error) { ends <- err })
		e.end()
		return nil
	}))
	if err := <-ends; !errors.Is(err, errEnded) {
		t.Errorf("it ends with %v", err)
	}
}

// TestParents: parents finds the programs above a process, even if a program's name contains spaces
// or brackets.
func TestParents(t *testing.T) {
	proc := t.TempDir()
	for pid, one := range map[string][2]string{
		"30": {"/bin/sh", "30 (a ) R 1) S 20 1"},
		"20": {"/opt/bin/hydra_pmi_proxy", "20 (hydra) S 10 1"},
		"10": {"/opt/bin/mpirun", "10 (mpirun) S 1 1"},
		"1":  {"/sbin/init", "1 (init) S 0 1"},
	} {
		dir := filepath.Join(proc, pid)
		testkit.NoError(t, errors.Join(os.Mkdir(dir, 0o755), os.Symlink(one[0], filepath.Join(dir, "exe")), os.WriteFile(filepath.Join(dir, "stat"), []byte(one[1]), 0o644)))
	}
	if got, want := strings.Join(parents(proc, 30), " "), "/bin/sh /opt/bin/hydra_pmi_proxy /opt/bin/mpirun"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLaunch: LaunchOf finds the launcher, rank and size from the environment variables that each
// launcher sets.
func TestLaunch(t *testing.T) {
	for env, tt := range map[string]struct {
		want Launch
		says string // of the error
	}{
		"": {Launch{Size: 1}, ""},
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3":                                                       {Launch{"Open MPI's mpirun", 1, 3, OfOpenMPI}, ""},
		"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=3 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2": {Launch{"Open MPI's mpirun", 1, 3, OfOpenMPI}, ""},
		"PMI_RANK=0 PMI_SIZE=2": {Launch{"MPICH's mpirun", 0, 2, OfMPICH}, ""},
		"PMI_RANK=0 PMI_SIZE=1": {Launch{"MPICH's mpirun", 0, 1, OfMPICH}, ""},
		"PMI_RANK=1 PMI_SIZE=2 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2": {Launch{"srun --mpi=pmi2", 1, 2, OfAny}, ""},
		"PMIX_RANK=1 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2":                           {Launch{"srun --mpi=pmix", 1, 2, OfAny}, ""},
		"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2":                                       {Launch{"srun without an MPI", 1, 2, OfAny}, "srun --mpi=pmix with Open MPI"},
		"SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=1":                                       {Launch{Size: 1}, ""},
		"SLURM_PROCID=0 SLURM_NTASKS=4":                                               {Launch{Size: 1}, ""}, // a batch script
		"RANK=3 WORLD_SIZE=4 LOCAL_RANK=3":                                            {Launch{"torchrun, or something that sets its variables,", 3, 4, OfAny}, "mpirun -n 4 mt"},
		"RANK=0 WORLD_SIZE=1":                                                         {Launch{Size: 1}, ""},
		"RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2":                                   {Launch{"MPICH's mpirun", 1, 2, OfMPICH}, ""},
		"RANK=first WORLD_SIZE=2":                                                     {Launch{Size: 1}, ""},
		"PMI_RANK=2 PMI_SIZE=2":                                                       {Launch{Size: 1}, ""},
	} {
		vars := map[string]string{}
		for _, v := range strings.Fields(env) {
			name, value, _ := strings.Cut(v, "=")
			vars[name] = value
		}
		got, err := LaunchOf(func(name string) string { return vars[name] })
		if got != tt.want || (err == nil) != (tt.says == "") || err != nil && (!errors.Is(err, ErrNoMPI) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: %+v, %v; want %+v, %q", env, got, err, tt.want, tt.says)
		}
	}
}

// TestABI: the file name and the exported symbols determine the ABI and its constants.
func TestABI(t *testing.T) {
	open := []string{"ompi_mpi_comm_world", "ompi_mpi_byte", "ompi_mpi_errors_return", "ompi_mpi_info_null"}
	for i, tt := range []struct {
		file    string
		symbols []string
		want    ABI
		world   uintptr
	}{
		{"/a/libmpi_abi.so.1", []string{"MPI_Abi_get_version"}, Standard, 0x101},
		{"/a/libmpi_abi.so.0", append([]string{"MPI_Abi_get_version"}, open...), Standard, 0x101},
		{"/a/libmpi_abi.so.0", open, "", 0}, // a draft
		{"/a/libmpi.so.12", []string{"MPIR_Dup_fn", "MPI_Abi_get_version"}, MPICH, 0x44000000},
		{"/a/other.so", []string{"MPI_Abi_get_version"}, Standard, 0x101},
		{"/a/libmpi.so.40", open, OpenMPI, 1},
		{"/a/libmpi.so.40", open[:1], OpenMPI, 0},
		{"/a/libm.so", nil, "", 0},
	} {
		symbol := func(name string) uintptr {
			for i, s := range tt.symbols {
				if s == name {
					return uintptr(i + 1)
				}
			}
			return 0
		}
		abi, err := abiOf(tt.file, symbol)
		if abi != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%d: %s, %v, want %s", i, abi, err, tt.want)
		}
		if err != nil {
			continue
		}
		c, err := constantsOf(abi, symbol)
		if c.world != tt.world || (err == nil) != (tt.world != 0) {
			t.Errorf("%d: the world is %#x, %v, want %#x", i, c.world, err, tt.world)
		}
	}
}

// TestVersion: versionOf shortens the version texts of libraries to a name and a version.
func TestVersion(t *testing.T) {
	for said, want := range map[string]string{
		"MPICH Version:      4.0.2\nMPICH Release date:\tThu Apr  7\n":                "MPICH 4.0.2",
		"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4":    "Open MPI 4.1.4",
		"Intel(R) MPI Library 2021.9 for Linux* OS\n":                                 "Intel(R) MPI Library 2021.9 for Linux* OS",
		"MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date: Wed March 02, 2022\n": "MVAPICH2 Version : 2.3.7",
	} {
		if got := versionOf(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// TestWindow: all windows together cover every byte of each rank exactly once, at the right offset.
func TestWindow(t *testing.T) {
	for _, counts := range [][]int{{3, 0, 5, 1}, {0, 0, 7}, {2}, {1, 1, 1, 1, 1}} {
		total := 0
		for _, n := range counts {
			total += n
		}
		for largest := 1; largest <= total+1; largest++ {
			owners := make([]string, total)
			for at := 0; at < total; at += largest {
				lengths, places := window(counts, at, min(total, at+largest))
				for r := range counts {
					for i := range lengths[r] {
						owners[at+int(places[r]+i)] += strconv.Itoa(r)
					}
				}
			}
			want := ""
			for r, n := range counts {
				want += strings.Repeat(strconv.Itoa(r), n)
			}
			if got := strings.Join(owners, ""); got != want || len(got) != total {
				t.Errorf("%v by %d: bytes are of ranks %s, want %s", counts, largest, got, want)
			}
		}
	}
}

// TestHostNames: ranks that share memory get one host name, and other ranks never get the same.
func TestHostNames(t *testing.T) {
	at := func(first int64, name string) (p place) {
		p.first = first
		copy(p.name[:], name)
		return p
	}
	got := hostNames([]place{at(0, "a"), at(0, "a"), at(2, "b"), at(3, "c"), at(4, "c")})
	if want := "a a b c of rank 3 c of rank 4"; strings.Join(got, " ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
