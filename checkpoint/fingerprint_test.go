package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"mt/internal/testkit"
)

// TestFingerprint: a copy of a model has the same fingerprint. A model with another first or last element or name
// differs.
func TestFingerprint(t *testing.T) {
	const dir = "../internal/run/testdata/recordings/dpo-ipo/model"
	raw := testkit.Must(os.ReadFile(filepath.Join(dir, singleName)))(t)
	of := func(change func([]byte)) string {
		t.Helper()
		b, to := append([]byte(nil), raw...), t.TempDir()
		change(b)
		testkit.NoError(t, os.WriteFile(filepath.Join(to, singleName), b, 0o644))
		print := testkit.Must(Fingerprint(to))(t)
		return print
	}
	want := testkit.Must(Fingerprint(dir))(t)
	if got := of(func([]byte) {}); got != want || len(got) != 64 {
		t.Errorf("of a copy %s, of the original %s", got, want)
	}
	s := testkit.Must(openSource(dir))(t)
	defer s.Close()
	seen := map[string]string{want: "the original"}
	for what, change := range map[string]func([]byte){
		"first element": func(b []byte) { b[s.shards[singleName].tensors["lm_head.weight"].off] ^= 1 },
		"last element": func(b []byte) {
			x := s.shards[singleName].tensors["lm_head.weight"]
			b[x.off+x.bytes-1] ^= 1
		},
		"name": func(b []byte) { b[bytes.Index(b, []byte("lm_head"))] = 'k' },
	} {
		got := of(change)
		if other, twice := seen[got]; twice {
			t.Errorf("%s has the fingerprint of %s", what, other)
		}
		seen[got] = what
	}
	if _, err := Fingerprint(t.TempDir()); err == nil {
		t.Error("of an empty directory")
	}
}
