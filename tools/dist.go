package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// distribute makes the release files for linux on amd64 and arm64. It makes an archive with the binary, a Python wheel,
// a CycloneDX list of the modules in the binary, and the checksums of all files.
//
//	go run ./tools dist [-out out/dist] [-arch amd64,arm64] [-check=false]
//	go run ./tools dist -gpu-kit [-offline] [-out out/kit] [-check=false]
//
// With -gpu-kit, distribute makes one archive with all files that bench/gpu.sh needs on a machine with a GPU, PyTorch
// and no network. Python packages come from PyPI, or from the index in PIP_INDEX_URL. The file dist/kit/packages.txt
// pins them.
//
// The command needs Go and a git clone, and publishes nothing; docs/releasing.md has the next steps. The same commit
// and the same Go version give the same bytes, in any folder and at any time.
func distribute(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	return makeIn(ctx, args, os.Stdout)
}

// makeIn parses the flags in args and writes the release files to the folder that -out names. It writes its progress to
// log.
func makeIn(ctx context.Context, args []string, log io.Writer) (err error) {
	set := flag.NewFlagSet("dist", flag.ContinueOnError)
	out := set.String("out", "out/dist", "folder to write to; what an earlier run left there is removed")
	arch := set.String("arch", "amd64,arm64", "for which processors")
	check := set.Bool("check", true, "build the commit a second time, from nothing and in another folder, and compare")
	kit := set.Bool("gpu-kit", false, "make instead one archive for a machine with a GPU, PyTorch and no network: mt for amd64, bench/gpu.sh, and DeepSpeed with what it needs")
	offline := set.Bool("offline", false, "with -gpu-kit: fetch no package, take all from the cache")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %s", set.Arg(0))
	}
	if *offline && !*kit {
		return errors.New("-offline goes with -gpu-kit: nothing else is fetched")
	}
	var platforms []platform
	for _, name := range strings.Split(*arch, ",") {
		p, ok := platformOf(name)
		if !ok {
			return fmt.Errorf("-arch %s: want amd64 or arm64", name)
		}
		platforms = append(platforms, p)
	}
	scratch, err := os.MkdirTemp("", "mt-dist-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	d := dist{root: filepath.Join(scratch, "mt"), scratch: scratch, out: *out, check: *check, log: log}
	if err := d.clone(ctx); err != nil {
		return err
	}
	if *kit {
		x, err := newIndex(*offline)
		if err != nil {
			return err
		}
		return d.makeKit(ctx, x)
	}
	return d.make(ctx, platforms)
}

// dist is one run of the command dist.
type dist struct {
	root    string // a clone of the commit; all files are made from the clone
	scratch string // a folder for temporary files, including the clone
	out     string // the folder of the result
	check   bool   // build every binary twice and compare
	log     io.Writer
}

// clone clones the commit that the current folder is at, so that the result contains committed files only. Go also
// needs a clone: in a work tree that git worktree has added, it finds no version.
func (d *dist) clone(ctx context.Context) error {
	top, err := output(ctx, ".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return fmt.Errorf("dist makes files of a commit, so it needs a git clone: %w", err)
	}
	changed, err := output(ctx, top, nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if changed != "" {
		fmt.Fprintf(d.log, "note: what is in no commit is left out:\n%s\n", changed)
	}
	_, err = output(ctx, top, nil, "git", "clone", "--quiet", "--no-hardlinks", top, d.root)
	return err
}

// make writes the files of every platform and the list of their checksums.
func (d *dist) make(ctx context.Context, platforms []platform) error {
	if err := empty(d.out); err != nil {
		return err
	}
	extras, err := d.extras(ctx)
	if err != nil {
		return err
	}
	for _, p := range platforms {
		if err := d.pack(ctx, p, extras); err != nil {
			return fmt.Errorf("linux/%s: %w", p.arch, err)
		}
	}
	return writeSums(d.out)
}

// binary builds mt for one platform. If d.check is set, it builds mt a second time in another
// folder and compares the two. It also checks that the binary needs no newer system libraries than
// the platform promises.
func (d *dist) binary(ctx context.Context, p platform) (*mtBinary, error) {
	bin := filepath.Join(d.scratch, "mt-"+p.arch)
	fmt.Fprintf(d.log, "building mt for linux/%s\n", p.arch)
	if err := build(ctx, d.root, p, "", bin); err != nil {
		return nil, err
	}
	if d.check {
		fmt.Fprintf(d.log, "building it again, in another folder and from nothing\n")
		if err := d.sameAgain(ctx, p, bin); err != nil {
			return nil, err
		}
	}
	b, err := readBinary(bin)
	if err != nil {
		return nil, err
	}
	return b, b.runsOn(p)
}

// pack builds mt for one platform and writes the archive, the wheel and the list of modules. Archive and wheel also get
// the files of extras, such as manual pages.
func (d *dist) pack(ctx context.Context, p platform, extras []file) error {
	b, err := d.binary(ctx, p)
	if err != nil {
		return err
	}
	licences, err := licences(ctx, d.root, b.info)
	if err != nil {
		return err
	}
	sbom, err := bill(b)
	if err != nil {
		return err
	}
	w, err := newWheel(b, p, extras, licences, sbom)
	if err != nil {
		return err
	}
	share := append(slices.Clone(extras), file{name: "licences.txt", data: licences})
	name := "mt-" + b.version() + "-linux-" + p.arch
	return errors.Join(
		d.write(name+".tar.gz", func(to io.Writer) error { return archive(to, b, share) }),
		d.write(name+".cdx.json", func(to io.Writer) error { _, err := to.Write(sbom); return err }),
		d.write(w.name(), w.write))
}

// write creates one file of the result; the function content writes its bytes. It logs the file's
// size.
func (d *dist) write(name string, content func(io.Writer) error) error {
	path := filepath.Join(d.out, name)
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(content(f), f.Close()); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil {
		fmt.Fprintf(d.log, "%s  %.1f MB\n", path, float64(info.Size())/1e6)
	}
	return err
}

// output runs a program in dir and returns its standard output, without trailing newlines. env lists variables to add
// to the environment.
func output(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimRight(string(out), "\n"), err
}
