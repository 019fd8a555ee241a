package ptx

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// heap is the Memory of a test: a list of buffers.
type heap []*Buffer

func (h heap) Find(addr uint64) *Buffer {
	for _, b := range h {
		if addr >= b.Base && addr-b.Base < uint64(len(b.Data)) {
			return b
		}
	}
	return nil
}

// add makes a buffer that holds data.
func (h *heap) add(name string, data []byte) *Buffer {
	b := &Buffer{Base: uint64(len(*h)+1) << 36, Data: data, Name: name}
	*h = append(*h, b)
	return b
}

func words32(v ...uint32) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, x)
	}
	return out
}

func words64(v ...uint64) []byte {
	var out []byte
	for _, x := range v {
		out = binary.LittleEndian.AppendUint64(out, x)
	}
	return out
}

func params(v ...any) []byte {
	var out []byte
	for _, x := range v {
		n := binary.Size(x)
		for len(out)%n != 0 {
			out = append(out, 0)
		}
		out, _ = binary.Append(out, binary.LittleEndian, x)
	}
	return out
}

// file parses a module of testdata. edit has pairs of old and new text to replace first.
func file(t testing.TB, name string, edit ...string) *Module {
	t.Helper()
	src := testkit.Must(os.ReadFile(filepath.Join("testdata", name)))(t)
	text := string(src)
	for i := 0; i < len(edit); i += 2 {
		if !strings.Contains(text, edit[i]) {
			t.Fatalf("%s does not contain %q", name, edit[i])
		}
		text = strings.ReplaceAll(text, edit[i], edit[i+1])
	}
	m := testkit.Must(Parse(name, text))(t)
	return m
}

func parse(t testing.TB, src string) *Module {
	t.Helper()
	m := testkit.Must(Parse("test.ptx", src))(t)
	return m
}

// TestShippedModules: Parse accepts every PTX module in device/cuda/kernels.
func TestShippedModules(t *testing.T) {
	testkit.NotShort(t)
	files, err := filepath.Glob("../../../device/cuda/kernels/*.ptx")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no modules", err)
	}
	for _, name := range files {
		src, err := os.ReadFile(name)
		testkit.NoError(t, err)
		m, err := Parse(filepath.Base(name), string(src))
		if err != nil {
			t.Error(err)
			continue
		}
		if len(m.Kernels()) == 0 {
			t.Errorf("%s has no kernels", name)
		}
	}
}

// TestBrokenText: if tokens of a module are deleted, swapped or inserted, Parse does not panic. It
// returns a module, or an error that names the file.
func TestBrokenText(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for _, name := range []string{"element.ptx", "gemm.ptx"} {
		src := testkit.Must(os.ReadFile(filepath.Join("testdata", name)))(t)
		var tokens []string
		for _, line := range strings.SplitAfter(string(src), "\n") {
			tokens = append(tokens, strings.SplitAfter(line, " ")...)
		}
		for range 300 {
			broken := slices.Clone(tokens)
			for range 1 + rng.IntN(3) {
				i, j := rng.IntN(len(broken)), rng.IntN(len(broken))
				switch rng.IntN(4) {
				case 0:
					broken = slices.Delete(broken, i, i+1)
				case 1:
					broken[i], broken[j] = broken[j], broken[i]
				case 2:
					broken[i] = broken[i][:rng.IntN(len(broken[i])+1)]
				case 3:
					broken = slices.Insert(broken, i, broken[j])
				}
			}
			if _, err := Parse(name, strings.Join(broken, "")); err != nil && !strings.HasPrefix(err.Error(), name+":") {
				t.Fatalf("error %v", err)
			}
		}
	}
}
