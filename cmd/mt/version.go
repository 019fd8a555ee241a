package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"mt/internal/run/machine"
)

// version is the output of mt version.
type version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Emulated bool   `json:"emulated_cuda,omitempty"` // device: cuda is the emulator
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return a.report(thisVersion(), asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// thisVersion returns the version that the Go toolchain recorded in the binary.
func thisVersion() version {
	v := version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Emulated: machine.Emulated()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// released reports whether the version identifies one program: a release, or a commit without local changes.
func (v version) released() bool { return v.Version != "(devel)" && !v.Modified }

// build identifies the program to other ranks. It returns the version. For a development build it adds a hash of the
// program file, because all development builds have the same version.
func (v version) build(program string) string {
	if v.released() {
		return v.String()
	}
	f, err := os.Open(program)
	if err != nil {
		return v.String()
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return v.String()
	}
	return fmt.Sprintf("%s, file %x", v, sum.Sum(nil)[:6])
}

// WriteTable prints v on one line.
func (v version) WriteTable(w io.Writer) error {
	_, err := fmt.Fprintln(w, v)
	return err
}

// String returns v on one line.
func (v version) String() string {
	revision := ""
	if v.Revision != "" {
		revision = ", revision " + v.Revision
		if v.Modified {
			revision += " with changes"
		}
	}
	if v.Emulated {
		revision += ", device: cuda is an emulator"
	}
	return fmt.Sprintf("mt %s (%s, %s%s)", v.Version, v.Go, v.Platform, revision)
}
