package config

import (
	"bytes"
	"flag"
	"os"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write docs/configuration.md anew")

// TestReference keeps docs/configuration.md equal to the table of keys.
func TestReference(t *testing.T) {
	const file = "../../docs/configuration.md"
	var want bytes.Buffer
	if err := Reference(&want); err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Error("docs/configuration.md is not what the table of keys says: go test ./internal/config -run Reference -rewrite")
	}
}
