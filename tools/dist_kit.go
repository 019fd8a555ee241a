package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// kitLimit is the largest size of a kit in bytes. Some machines without a network do not accept larger files.
const kitLimit = 56 << 20

// onMachine lists Python packages that the GPU machine has already. The kit leaves out these packages and what they
// require.
var onMachine = []string{"torch"}

// makeKit writes the kit, an archive with all files that bench/gpu.sh needs on a machine with a GPU, PyTorch, nvcc and
// no network. Python packages come from x.
func (d *dist) makeKit(ctx context.Context, x index) error {
	if err := empty(d.out); err != nil {
		return err
	}
	list, err := os.ReadFile(filepath.Join(d.root, "tools/dist/kit/packages.txt"))
	if err != nil {
		return err
	}
	packages, err := x.fetch(ctx, string(list))
	if err != nil {
		return err
	}
	if err := closed(packages); err != nil {
		return err
	}
	b, err := d.binary(ctx, platforms[0])
	if err != nil {
		return err
	}
	terms, err := licences(ctx, d.root, b.info)
	if err != nil {
		return err
	}
	files, err := kitFiles(d.root, b, terms, packages)
	if err != nil {
		return err
	}
	name := "mt-gpu-kit-" + b.version() + "-linux-amd64.tar.gz"
	if err := d.write(name, func(to io.Writer) error { return tarball(to, "mt-gpu-kit", b.made, files) }); err != nil {
		return err
	}
	if err := within(filepath.Join(d.out, name), files, kitLimit); err != nil {
		return err
	}
	return writeSums(d.out)
}

// kitFiles returns the files of a kit. root is the folder of the clone, terms the text of all licences, and packages
// the Python packages.
func kitFiles(root string, b *mtBinary, terms []byte, packages []file) ([]file, error) {
	files := []file{{name: "mt", data: b.data, runs: true}, {name: "licences.txt", data: terms}}
	for _, f := range [][2]string{{"tools/dist/kit/README.md", "README.md"}, {"tools/dist/kit/install.sh", "install.sh"},
		{"tools/dist/kit/packages.txt", "packages/" + sums}, {"bench/gpu.sh", "bench/gpu.sh"}} {
		data, err := os.ReadFile(filepath.Join(root, f[0]))
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: f[1], data: data, runs: strings.HasSuffix(f[1], ".sh")})
	}
	peers, err := filesUnder(filepath.Join(root, "bench/peers"), "bench/peers")
	if err != nil {
		return nil, err
	}
	for _, f := range peers {
		if strings.HasSuffix(f.name, ".py") { // leaves out the folders __pycache__
			files = append(files, f)
		}
	}
	for _, f := range packages {
		files = append(files, file{name: "packages/" + f.name, data: f.data})
	}
	return files, nil
}

// within returns an error if the archive has more than limit bytes, and removes the archive then. The error lists the
// bytes of each part: a file of the top folder, the folder bench, or a package.
func within(archive string, files []file, limit int64) error {
	info, err := os.Stat(archive)
	if err != nil || info.Size() <= limit {
		return err
	}
	parts := map[string]int{}
	for _, f := range files {
		part := f.name
		if strings.HasPrefix(part, "bench/") {
			part = "bench"
		}
		size, err := packedSize(f.data)
		if err != nil {
			return err
		}
		parts[part] += size
	}
	var names []string
	for name := range parts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(parts[b]-parts[a], strings.Compare(a, b)) })
	var text strings.Builder
	for _, name := range names {
		fmt.Fprintf(&text, "\n%12d  %s", parts[name], name)
	}
	return errors.Join(fmt.Errorf("%s has %d bytes and may have %d; its parts, packed, in bytes:%s", filepath.Base(archive), info.Size(), limit, text.String()),
		os.Remove(archive))
}

// packedSize returns the size of data after gzip.
func packedSize(data []byte) (int, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := z.Write(data); err != nil {
		return 0, err
	}
	err = z.Close()
	return out.Len(), err
}

// closed returns an error if a package requires a package that is neither in packages nor in onMachine. It ignores
// requirements under a condition, such as extras.
func closed(packages []file) error {
	has := slices.Clone(onMachine)
	for _, f := range packages {
		has = append(has, project(f.name))
	}
	for _, f := range packages {
		about, err := metadata(f)
		if err != nil {
			return err
		}
		for line := range strings.Lines(about) {
			needs, is := strings.CutPrefix(strings.TrimSpace(line), "Requires-Dist: ")
			if !is || strings.Contains(needs, ";") {
				continue
			}
			if name := project(needs[:len(needs)-len(strings.TrimLeft(needs, nameRunes))]); !slices.Contains(has, name) {
				return fmt.Errorf("%s needs %s, which is not in packages.txt: add its file and SHA-256", f.name, needs)
			}
		}
	}
	return nil
}

// nameRunes has the characters that may occur in the name of a Python project.
const nameRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

// metadata returns the core metadata of f, a wheel or a source distribution
// (packaging.python.org/specifications/core-metadata).
func metadata(f file) (string, error) {
	if !strings.HasSuffix(f.name, ".whl") {
		return sourceMetadata(f)
	}
	z, err := zip.NewReader(bytes.NewReader(f.data), int64(len(f.data)))
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.name, err)
	}
	for _, part := range z.File {
		if path.Base(part.Name) == "METADATA" && strings.HasSuffix(path.Dir(part.Name), ".dist-info") {
			r, err := part.Open()
			if err != nil {
				return "", fmt.Errorf("%s: %w", f.name, err)
			}
			text, err := io.ReadAll(r)
			return string(text), errors.Join(err, r.Close())
		}
	}
	return "", fmt.Errorf("%s has no METADATA", f.name)
}

// sourceMetadata returns the file PKG-INFO in the top folder of the source distribution f.
func sourceMetadata(f file) (string, error) {
	z, err := gzip.NewReader(bytes.NewReader(f.data))
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.name, err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			return "", fmt.Errorf("%s has no PKG-INFO: %w", f.name, err)
		}
		if dir, name := path.Split(h.Name); name == "PKG-INFO" && strings.Count(dir, "/") == 1 {
			text, err := io.ReadAll(r)
			return string(text), err
		}
	}
}
