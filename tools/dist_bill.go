package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Types for a software bill of materials, with the fields of CycloneDX 1.6 (cyclonedx.org/docs/1.6/json).
type (
	billOfMaterials struct {
		Schema      string      `json:"$schema"`
		Format      string      `json:"bomFormat"`
		SpecVersion string      `json:"specVersion"`
		Version     int         `json:"version"`
		Metadata    billAbout   `json:"metadata"`
		Components  []component `json:"components"`
	}
	billAbout struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	}
	component struct {
		Ref        string     `json:"bom-ref"`
		Type       string     `json:"type"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// bill returns the bill of materials of the binary in JSON: every module that Go has recorded in the binary, and Go's
// standard library.
func bill(b *mtBinary) ([]byte, error) {
	sum := sha256.Sum256(b.data)
	self := component{Ref: "mt", Type: "application", Name: "mt", Version: b.version(),
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}}}
	for _, s := range b.info.Settings {
		self.Properties = append(self.Properties, property{"go:build:" + s.Key, s.Value})
	}
	out := billOfMaterials{Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", Format: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: billAbout{b.made.UTC().Format(time.RFC3339), self}}
	for _, m := range b.info.Deps {
		c, err := library(m)
		if err != nil {
			return nil, err
		}
		out.Components = append(out.Components, c)
	}
	std := strings.TrimPrefix(b.info.GoVersion, "go")
	out.Components = append(out.Components, component{Ref: "pkg:golang/std@" + std, Type: "library", Name: "std", Version: std, PURL: "pkg:golang/std@" + std})
	text, err := json.MarshalIndent(out, "", "  ")
	return append(text, '\n'), err
}

// library describes a module as a component of the bill. Its hash is the one in go.sum: a SHA-256 of the list of the
// module's file hashes (go.dev/ref/mod#go-sum-files).
func library(m *debug.Module) (component, error) {
	if m.Replace != nil {
		m = m.Replace
	}
	url := "pkg:golang/" + m.Path + "@" + m.Version
	sum, ok := strings.CutPrefix(m.Sum, "h1:")
	raw, err := base64.StdEncoding.DecodeString(sum)
	if !ok || err != nil || len(raw) != sha256.Size {
		return component{}, fmt.Errorf("the module %s %s has the checksum %q, which is none of go.sum: no other can get the same", m.Path, m.Version, m.Sum)
	}
	return component{Ref: url, Type: "library", Name: m.Path, Version: m.Version, PURL: url, Hashes: []hash{{"SHA-256", hex.EncodeToString(raw)}}}, nil
}

// licence matches the names of files with licences.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice)`)

// licences returns the licence texts of everything in the binary: mt's own if there is one, then Go's, then each
// module's. root is the folder of mt's module.
func licences(ctx context.Context, root string, info *buildinfo.BuildInfo) ([]byte, error) {
	goroot, err := output(ctx, root, nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	args := []string{"list", "-mod=readonly", "-m", "-f", "{{.Path}} {{.Version}}\t{{.Dir}}"}
	for _, m := range info.Deps {
		args = append(args, m.Path)
	}
	listed, err := output(ctx, root, []string{"GOFLAGS="}, "go", args...)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := terms(&out, "mt", root, false); err != nil {
		return nil, err
	}
	if err := terms(&out, "Go's standard library", goroot, true); err != nil {
		return nil, err
	}
	for line := range strings.Lines(listed) {
		name, dir, _ := strings.Cut(strings.TrimRight(line, "\n"), "\t")
		if err := terms(&out, name, dir, true); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// terms appends the licence files of the folder dir to out. The argument of says what they license, for the headings.
// If must is set, a folder without a licence file is an error.
func terms(out *bytes.Buffer, of, dir string, must bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the licence of %s: %w (go mod download fetches it)", of, err)
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.IsDir() || !licence.MatchString(e.Name()) })
	if len(entries) == 0 && must {
		return fmt.Errorf("%s, in %s, has no licence, so a binary with it must not be handed on", of, dir)
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "== %s: %s\n\n%s\n\n", of, e.Name(), bytes.TrimSpace(text))
	}
	return nil
}
