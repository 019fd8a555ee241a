package main

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// wheel is a Python package that holds a binary. A wheel is a zip file whose contents pip copies to their places
// (packaging.python.org/specifications/binary-distribution-format). It has no Python code and works with every Python
// 3.
type wheel struct {
	version string // in Python's version format
	tag     string
	made    time.Time
	files   []file
}

// cudaWheels is the part of the wheel's metadata that requires NVIDIA's packages with libcudart and libcublasLt. The
// extra cu12 requires their older versions, for drivers that do not support CUDA 13.
const cudaWheels = `Requires-Dist: nvidia-cuda-runtime>=13,<14
Requires-Dist: nvidia-cublas>=13,<14
Provides-Extra: cu12
Requires-Dist: nvidia-cuda-runtime-cu12; extra == "cu12"
Requires-Dist: nvidia-cublas-cu12; extra == "cu12"
`

// newWheel returns the wheel of a binary. pip copies the files of extras to the same paths below the Python
// environment. licences is the text of all licences, and sbom the bill of materials.
func newWheel(b *mtBinary, p platform, extras []file, licences, sbom []byte) (*wheel, error) {
	version, err := pythonVersion(b.info.Main.Version)
	if err != nil {
		return nil, err
	}
	w := &wheel{version: version, made: b.made,
		tag: fmt.Sprintf("py3-none-manylinux_%d_%d_%s", oldest[0], oldest[1], p.python)}
	data, info := "mt-"+version+".data/", "mt-"+version+".dist-info/"
	w.files = append(w.files, file{name: data + "scripts/mt", data: b.data, runs: true})
	for _, f := range extras {
		w.files = append(w.files, file{name: data + "data/" + f.name, data: f.data})
	}
	w.files = append(w.files,
		file{name: info + "licenses/licences.txt", data: licences},
		file{name: info + "sboms/mt.cdx.json", data: sbom}, // peps.python.org/pep-0770
		file{name: info + "METADATA", data: []byte(w.metadata())},
		file{name: info + "WHEEL", data: []byte("Wheel-Version: 1.0\nGenerator: mt-dist\nRoot-Is-Purelib: false\nTag: " + w.tag + "\n")})
	w.files = append(w.files, file{name: info + "RECORD", data: []byte(record(w.files, info+"RECORD"))})
	return w, nil
}

// name returns the wheel's file name, from which pip takes the version and the tag.
func (w *wheel) name() string { return "mt-" + w.version + "-" + w.tag + ".whl" }

// metadata returns the text of the wheel's file METADATA (packaging.python.org/specifications/core-metadata).
func (w *wheel) metadata() string {
	return "Metadata-Version: 2.4\nName: mt\nVersion: " + w.version + `
Summary: Train large language models in full precision, on GPUs whose memory they do not fit
Requires-Python: >=3.8
License-File: licences.txt
` + cudaWheels + `Description-Content-Type: text/markdown

The command ` + "`mt`" + `, and the CUDA libraries that it computes with on an NVIDIA GPU. The driver must be there.
` + "`mt doctor`" + ` says what was found, ` + "`mt init`" + ` writes a first config, ` + "`mt --help`" + ` says the rest. With a driver for
CUDA 12, install ` + "`mt[cu12]`" + `.
`
}

// record returns the wheel's list of files, each with SHA-256 and size. self is the name of the list, whose own entry
// has neither.
func record(files []file, self string) string {
	var b strings.Builder
	for _, f := range files {
		sum := sha256.Sum256(f.data)
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.data))
	}
	b.WriteString(self + ",,\n")
	return b.String()
}

// write writes the wheel as a zip file, with its files in order and all with the time of the commit.
func (w *wheel) write(to io.Writer) error {
	z := zip.NewWriter(to)
	for _, f := range w.files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: w.made}
		header.SetMode(f.mode())
		part, err := z.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := part.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}

// goVersion matches a version as Go derives it, from a tag or from a commit after a tag (go.dev/ref/mod#versions).
var goVersion = regexp.MustCompile(`^v(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.?(\d+))?(?:[-.](?:0\.)?(\d{14})-([0-9a-f]{12}))?(\+dirty)?$`)

// pythonVersion converts a Go version to Python's format (packaging.python.org/specifications/version-specifiers) such
// that versions keep their order. For example, v1.2.0-rc.1 becomes 1.2.0rc1, and a commit after v1.1.9 becomes
// 1.1.10.devTIME+COMMIT.
func pythonVersion(v string) (string, error) {
	part := goVersion.FindStringSubmatch(v)
	if part == nil {
		return "", fmt.Errorf("the version %s has no form in Python: tag the commit as v1.2.3, v1.2.3-alpha.1, v1.2.3-beta.1 or v1.2.3-rc.1", v)
	}
	out, local := part[1], part[5]
	if part[2] != "" {
		out += map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[part[2]] + part[3]
	}
	if part[4] != "" {
		if part[2] != "" {
			out += ".post0" // a commit after rc.1 is newer than rc.1
		}
		out += ".dev" + part[4]
	}
	if part[6] != "" {
		local = strings.TrimPrefix(local+".dirty", ".")
	}
	if local != "" {
		out += "+" + local
	}
	return out, nil
}
