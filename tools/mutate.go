package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// session is one run of the command mutate, in the module at root.
type session struct {
	root, module, scratch, cache string
	n, jobs, most                int
	seed                         uint64
	list, hand                   bool
	least                        time.Duration // the shortest time limit of a test binary
	memory                       int64         // limit of a test binary and its children in bytes
	all                          []*listed     // all packages, from go list -test
	judged                       []entry       // the entries of survivors.txt
	draws                        []*[]*mutant  // the mutants of each package, in drawing order
	results                      []*mutant
	profiles                     map[string]*profile
	lock, cleaning               sync.Mutex // lock guards draws and results, cleaning guards profiles
}

// mutate measures whether the tests notice wrong code. It draws small changes of the named packages and applies one at
// a time. The go command's -overlay flag substitutes the changed file, so source files stay unchanged. Tests run until
// one fails:
//
//	go run ./tools mutate host/optim            # 30 mutants of a package
//	go run ./tools mutate -n 5 -seed 2 ./...    # 5 others of every package
//	go run ./tools mutate -list host/optim      # which mutants are drawn
//	go run ./tools mutate -hand host/optim      # the mutants of hand.txt
//
// Each mutant runs against the short tests of its own package, then against the tests of the packages that import it.
// Clean runs with coverage select the tests that execute the mutated line. A line that only child processes execute
// counts as not executed. Verdicts:
//   - noticed: a test failed
//   - hung: a limit of time or memory was reached
//   - SURVIVED: no test failed
//   - not executed: no test executes the line
//   - judged: survivors.txt has the mutant and a reason
//
// A survivor makes the command fail. A mutant that does not compile is replaced by another.
//
// A test checks hand.txt: each entry's text occurs exactly once in its file, and the named tests exist.
func mutate(args []string) error {
	set := flag.NewFlagSet("mutate", flag.ExitOnError)
	s := session{profiles: map[string]*profile{}}
	set.IntVar(&s.n, "n", 30, "mutants of each package")
	set.Uint64Var(&s.seed, "seed", 1, "seed of the draw")
	set.IntVar(&s.jobs, "j", 2, "mutants at a time")
	set.BoolVar(&s.list, "list", false, "list the mutants and run nothing")
	set.BoolVar(&s.hand, "hand", false, "run the mutants of hand.txt, of the named packages or all")
	set.DurationVar(&s.least, "timeout", 20*time.Second, "time limit of a test binary, or five times a clean run if that is more")
	set.IntVar(&s.most, "packages", 1000, "look at the tests of at most so many packages, the mutant's own first")
	set.Int64Var(&s.memory, "memory", 6<<30, "memory limit of a test binary and its children in bytes")
	if err := set.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return s.mutate(ctx, set.Args())
}

// mutate draws the mutants, or reads them from hand.txt, and then runs or lists them. The current folder must be the
// module's root. args name the packages.
func (s *session) mutate(ctx context.Context, args []string) (err error) {
	if len(args) == 0 && !s.hand {
		return errors.New("name the packages to mutate, as in: go run ./tools mutate host/optim")
	}
	s.scratch, err = os.MkdirTemp("", "mutate-")
	defer os.RemoveAll(s.scratch)
	root, rerr := os.Getwd()
	all, lerr := goList(ctx, root, "-test", "-export", "./...")
	if err = errors.Join(err, rerr, lerr); err != nil {
		return err
	}
	s.root, s.all, s.module = root, all, all[0].Module.Path
	s.cache = filepath.Join(os.TempDir(), "mutate-cache")
	var named []*listed
	for i, a := range args {
		args[i] = path.Join(s.module, strings.TrimPrefix(a, s.module+"/"))
	}
	if len(args) > 0 {
		named, err = goList(ctx, s.root, args...)
	}
	if err = errors.Join(err, s.read(named)); err != nil {
		return err
	}
	return s.run(ctx)
}

// read fills draws with all mutants of the named packages. With the flag -hand, these are the entries of hand.txt whose
// file or test is in a named package. It reports entries of survivors.txt that match no mutant.
func (s *session) read(named []*listed) (err error) {
	judged, err := parseEntries("survivors.txt", survivorsText)
	hand, herr := parseEntries("hand.txt", handText)
	s.judged, err = judged, errors.Join(err, herr)
	for _, e := range hand {
		in := func(p *listed) bool {
			return p.Dir == filepath.Join(s.root, path.Dir(e.file)) || p.Dir == filepath.Join(s.root, e.in)
		}
		if s.hand && (len(named) == 0 || slices.ContainsFunc(named, in)) {
			m, merr := e.mutant(s.root)
			err, s.n = errors.Join(err, merr), 1
			s.draws = append(s.draws, &[]*mutant{m})
		}
	}
	for _, p := range named {
		all, perr := packageMutants(s.root, p)
		if err = errors.Join(err, perr); err != nil || s.hand || len(all) == 0 {
			continue
		}
		for _, e := range s.judged {
			if e.in == all[0].in && !slices.ContainsFunc(all, e.judges) {
				fmt.Printf("survivors.txt: %s %s has no mutant %q: delete the entry or correct it\n", e.file, e.name, e.from)
			}
		}
		drawn := draw(all, p.ImportPath, s.seed)
		s.draws = append(s.draws, &drawn)
	}
	return err
}

// run tries n mutants of each package, s.jobs at a time. If ctx ends, it prints the results so far.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	start, total := time.Now(), s.n*len(s.draws)
	work := make(chan *[]*mutant, total)
	for i := range total {
		work <- s.draws[i/s.n]
	}
	close(work)
	var wait sync.WaitGroup
	for range s.jobs {
		wait.Go(func() {
			for of := range work {
				m, err := s.one(ctx, of)
				if err != nil {
					cancel(err)
					return
				}
				s.lock.Lock()
				if m == nil {
					total--
				} else if s.results = append(s.results, m); !s.list {
					left := time.Since(start) / time.Duration(len(s.results)) * time.Duration(total-len(s.results))
					fmt.Fprintf(os.Stderr, "%d/%d, %s left: %s:%d %s: %s %s\n", len(s.results), total, left.Round(time.Second), m.file, m.line, m.op, m.verdict, m.who)
				}
				s.lock.Unlock()
			}
		})
	}
	wait.Wait()
	if n := s.table(time.Since(start)); n > 0 && ctx.Err() == nil {
		return fmt.Errorf("%d mutants survived: write tests that fail for them, or put them into survivors.txt with the reason", n)
	}
	return context.Cause(ctx)
}

// one judges the next mutants of a package (of) until one compiles, and returns this mutant with its verdict. It
// returns nil if no mutant is left.
func (s *session) one(ctx context.Context, of *[]*mutant) (m *mutant, err error) {
	for err == nil && (m == nil || m.verdict == invalid && !s.hand) {
		s.lock.Lock()
		if len(*of) == 0 {
			s.lock.Unlock()
			return nil, nil
		}
		m, *of = (*of)[0], (*of)[1:]
		s.lock.Unlock()
		if !s.list {
			err = s.judge(ctx, m)
		}
	}
	return m, err
}

// judge sets the mutant's verdict. It runs the tests of packages one after the other until one fails, beginning with
// the mutant's own package.
func (s *session) judge(ctx context.Context, m *mutant) error {
	for _, e := range s.judged {
		if e.judges(m) {
			m.verdict, m.who = judged, e.reason
			return nil
		}
	}
	dir, err := os.MkdirTemp(s.scratch, "mutant")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(s.root, dir)
	if err != nil {
		return err
	}
	env := "GOFLAGS=" + strings.TrimSpace(os.Getenv("GOFLAGS")+" "+overlay) // so that go builds that the tests start also use the changed file
	packages, args := importers(s.all, m.pkg), []string{"-test.short"}
	if s.hand {
		i := slices.IndexFunc(s.all, func(p *listed) bool { return p.Dir == filepath.Join(s.root, m.in) })
		packages, args = s.all[i:i+1], []string{"-test.v", "-test.run=" + m.test}
	}
	m.verdict = notExecuted
	for _, p := range packages[:min(s.most, len(packages))] {
		clean, err := s.clean(ctx, p, args...)
		if err != nil {
			return err
		}
		if !clean.executes(m) && !s.hand { // for mutants of hand.txt the line may run only in child processes
			continue
		}
		m.verdict = invalid
		binary, output, err := s.build(ctx, p, dir, overlay)
		if err == nil && output == "" {
			m.verdict, output, err = s.test(ctx, p, binary, max(s.least, 5*clean.Took), env, args...)
		}
		if err != nil || m.verdict != survived {
			m.who = strings.TrimPrefix(p.ImportPath+" ", m.pkg+" ") + strings.TrimPrefix(failure.FindString(output), "--- FAIL: ")
			return err
		}
	}
	return nil
}

// table prints the results, and each survivor as an entry that can be copied to survivors.txt. It returns the number of
// survivors plus the number of mutants that do not compile. took is the time of the whole run.
func (s *session) table(took time.Duration) int {
	slices.SortFunc(s.results, func(a, b *mutant) int { return cmp.Or(strings.Compare(a.file, b.file), a.from-b.from) })
	tally := map[string]int{}
	for _, m := range s.results {
		fmt.Printf("%-44s %-12s %-12s %-30s %s → %s\n", fmt.Sprintf("%s:%d", m.file, m.line), m.op, m.verdict, m.who, m.before, m.after)
		tally[m.verdict]++
	}
	for _, m := range s.results {
		if m.verdict == survived || m.verdict == notExecuted {
			fmt.Printf("\n%s %s\n- %s\n+ %s\n  %s\n", m.file, m.function, m.before, m.after, m.verdict)
		}
	}
	fmt.Printf("\n%d mutants in %s: %v\n", len(s.results), took.Round(time.Second), tally)
	return tally[survived] + tally[invalid]
}

// The verdicts on a mutant. invalid stands for a mutant that does not compile.
const noticed, hung, survived, notExecuted, judged, invalid = "noticed", "hung", "SURVIVED", "not executed", "judged", "does not compile"

// build compiles the tests of package p into a binary in dir. flags are further flags of go test. If compilation fails,
// output is the compiler's output; otherwise output is "".
func (s *session) build(ctx context.Context, p *listed, dir string, flags ...string) (binary, output string, err error) {
	binary = filepath.Join(dir, "mutant.test")
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags, []string{p.ImportPath})...)
	cmd.Dir = s.root
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); ctx.Err() == nil && errors.As(err, &exit) {
		return "", string(out), nil
	}
	return binary, "", err
}

// test runs the test binary of package p with args. env is a variable to add to the environment.
// After limit, or if the tests use too much memory, it stops them. At the end it kills the binary's
// whole process group. verdict is survived if all tests passed.
func (s *session) test(ctx context.Context, p *listed, binary string, limit time.Duration, env string, args ...string) (verdict, output string, err error) {
	limited, over := context.WithCancelCause(ctx)
	defer over(nil)
	defer time.AfterFunc(limit, func() { over(fmt.Errorf("time limit %s", limit)) }).Stop()
	out, exit := new(tail), (*exec.ExitError)(nil)
	cmd := exec.CommandContext(limited, binary, append([]string{"-test.paniconexit0", "-test.failfast", "-test.timeout=0"}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.Dir, out, out
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), "TMPDIR="+filepath.Dir(binary), env), &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	go func() {
		for limited.Err() == nil {
			if held(cmd.Process.Pid) > s.memory {
				over(fmt.Errorf("memory limit %d MiB", s.memory>>20))
			}
			time.Sleep(300 * time.Millisecond)
		}
	}()
	err = cmd.Wait()
	_ = cmd.Cancel()
	switch {
	case ctx.Err() != nil:
		return "", "", ctx.Err()
	case limited.Err() != nil:
		return hung, "--- FAIL: " + context.Cause(limited).Error(), nil
	case errors.As(err, &exit):
		return noticed, string(*out), nil
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return "", "", err
	}
	return survived, string(*out), nil
}

// held returns the resident bytes of all processes of a process group; 0 on a system without /proc.
func held(group int) (bytesHeld int64) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		text, _ := os.ReadFile(name)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // fields[0] is the third field of the line
		if len(fields) > 21 && fields[2] == strconv.Itoa(group) {
			pages, _ := strconv.Atoi(fields[21])
			bytesHeld += int64(pages * os.Getpagesize())
		}
	}
	return bytesHeld
}

// tail keeps the end of a program's output, at most 1 MiB.
type tail []byte

func (t *tail) Write(p []byte) (int, error) {
	*t = append(*t, p...)
	*t = (*t)[max(0, len(*t)-1<<20):]
	return len(p), nil
}

// failure matches the line of a test's output that names the first failed test, or the start of a
// crash.
var failure = regexp.MustCompile(`(?m)^--- FAIL: (.* limit .*|\S+)|^(?:panic|fatal error|signal): .{0,60}`)

// profile has the time and the coverage of a package's short tests, run without a mutant.
type profile struct {
	Took   time.Duration
	Blocks map[string][][6]int // coverage by file; a block is first line and column, last line and column, number of statements, number of executions
}

// executes reports whether the tests execute the line of mutant m. Some lines are in no coverage block, such as a case
// or a package variable. They count as executed if some block of their file is executed.
func (p *profile) executes(m *mutant) bool {
	some, inside, at := false, false, []int{m.line, m.col}
	for _, b := range p.Blocks[m.file] {
		here := slices.Compare(b[:2], at) <= 0 && slices.Compare(at, b[2:4]) <= 0
		if here && b[5] > 0 {
			return true
		}
		some, inside = some || b[5] > 0, inside || here
	}
	return some && !inside
}

// clean returns the profile of package p: it runs p's tests with args and without a mutant.
// Profiles are kept on disk for later runs. A profile's file is named by a hash of the build ids of
// all packages that the tests link, so changed code gets a new profile.
func (s *session) clean(ctx context.Context, p *listed, args ...string) (*profile, error) {
	s.cleaning.Lock()
	defer s.cleaning.Unlock()
	key := p.ImportPath + strings.Join(args, " ")
	if s.profiles[key] != nil {
		return s.profiles[key], nil
	}
	ids, test := key, s.all[slices.IndexFunc(s.all, func(t *listed) bool { return t.ImportPath == p.ImportPath+".test" })]
	for _, q := range s.all {
		if slices.Contains(test.Deps, q.ImportPath) {
			ids += q.BuildID
		}
	}
	got, kept := new(profile), filepath.Join(s.cache, fmt.Sprintf("%x.json", sha256.Sum256([]byte(ids))))
	if text, err := os.ReadFile(kept); err == nil && json.Unmarshal(text, got) == nil {
		s.profiles[key] = got
		return got, nil
	}
	dir, err := os.MkdirTemp(s.scratch, "clean")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary, output, err := s.build(ctx, p, dir, "-cover", "-coverpkg=./...")
	start, lines, v := time.Now(), filepath.Join(dir, "profile"), invalid
	if err == nil && output == "" {
		v, output, err = s.test(ctx, p, binary, 15*time.Minute, "GOCOVERDIR="+dir, append(args, "-test.coverprofile="+lines)...)
	}
	if err != nil || v != survived || strings.Contains(output, "\n--- SKIP: ") {
		return nil, fmt.Errorf("tests of %s (%s) fail or are skipped without any mutation: %s %v\n%s", p.ImportPath, args, v, err, output)
	}
	text, _ := os.ReadFile(lines)
	*got = profile{time.Since(start), parseProfile(string(text), s.module)}
	keep, err := json.Marshal(got)
	err = errors.Join(err, os.MkdirAll(s.cache, 0o755), os.WriteFile(kept, keep, 0o644))
	s.profiles[key] = got
	return got, err
}

// parseProfile reads a coverage profile, with lines such as "module/file.go:1.2,3.4 5 1". The result is as in
// profile.Blocks.
func parseProfile(text, module string) map[string][][6]int {
	blocks := map[string][][6]int{}
	for line := range strings.Lines(text) {
		var b [6]int
		file, at, _ := strings.Cut(strings.TrimPrefix(line, module+"/"), ":")
		if n, _ := fmt.Sscanf(at, "%d.%d,%d.%d %d %d", &b[0], &b[1], &b[2], &b[3], &b[4], &b[5]); n == 6 {
			blocks[file] = append(blocks[file], b)
		}
	}
	return blocks
}
