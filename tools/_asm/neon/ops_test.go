package neon

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// TestEncodings: every encoded word equals clang's encoding of the instruction in its comment, for any registers, lanes
// and shifts.
func TestEncodings(t *testing.T) {
	clang, err := exec.LookPath("clang-19")
	if err != nil {
		t.Skip("there is no clang-19")
	}
	file.text.Reset()
	defer file.text.Reset()
	r := rand.New(rand.NewPCG(1, 2))
	f, v, called := reflect.ValueOf(&Func{}), reflect.TypeFor[V](), 0
	for i := range f.NumMethod() {
		method := f.Method(i).Type()
		if method.NumOut() > 0 || method.NumIn() < 2 || method.In(0) != v || method.In(1) != v || f.Type().Method(i).Name == "Store2" {
			continue // it does not compute
		}
		called++
		for range 40 {
			in := make([]reflect.Value, method.NumIn())
			for k := range in {
				switch name := f.Type().Method(i).Name; {
				case method.In(k) == v:
					in[k] = reflect.ValueOf(V(r.IntN(32)))
				case name == "DUP" || name == "FMLALane":
					in[k] = reflect.ValueOf(r.IntN(4))
				default:
					in[k] = reflect.ValueOf(1 + r.IntN(31)) // a shift
				}
			}
			f.Method(i).Call(in)
		}
	}
	if called < 40 {
		t.Fatalf("%d instructions were found: the search is wrong", called)
	}
	var words []uint32
	var names []string
	for line := range strings.Lines(file.text.String()) {
		var word uint32
		code, name, ok := strings.Cut(strings.TrimSpace(line), " // ")
		if _, err := fmt.Sscanf(code, "WORD $0x%x", &word); err != nil || !ok {
			t.Fatalf("%q is not an instruction", line)
		}
		words, names = append(words, word), append(names, name)
	}
	for i, want := range assembled(t, clang, names) {
		if words[i] != want {
			t.Errorf("%s is written as %#08x, want %#08x", names[i], words[i], want)
		}
	}
}

// assembled returns clang's encodings of the instructions.
func assembled(t *testing.T, clang string, lines []string) []uint32 {
	t.Helper()
	object := filepath.Join(t.TempDir(), "out.o")
	cmd := exec.Command(clang, "--target=aarch64-linux-gnu", "-c", "-x", "assembler", "-", "-o", object)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f, err := elf.Open(object)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	code, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint32, len(lines))
	if err := binary.Read(bytes.NewReader(code), binary.LittleEndian, words); err != nil || len(code) != 4*len(lines) {
		t.Fatalf("%d bytes for %d instructions: %v", len(code), len(lines), err)
	}
	return words
}

// TestLayout: arguments and the result are at the stack offsets that Go's calling convention for
// assembly (ABI0) prescribes.
func TestLayout(t *testing.T) {
	args, size := layout("func(k int, a *float32, mask uint32, b *float32, x, y float32, acc bool) float32")
	want := map[string]arg{"k": {0, 8}, "a": {8, 8}, "mask": {16, 4}, "b": {24, 8}, "x": {32, 4}, "y": {36, 4}, "acc": {40, 1}, "ret": {48, 4}}
	if !reflect.DeepEqual(args, want) || size != 52 {
		t.Errorf("%v, %d bytes", args, size)
	}
}
