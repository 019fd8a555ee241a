package actors

import (
	"strings"
	"testing"

	"mt/host"
)

// What aliased layers compute is nothing to save: such a run is refused.
func TestAliasedLayersAreNotSaved(t *testing.T) {
	s, err := host.NewAliased(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := Run(Options{Home: s}); err == nil || !strings.Contains(err.Error(), "not to be saved") {
		t.Errorf("%v", err)
	}
}
