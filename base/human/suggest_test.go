package human

import "testing"

func TestSuggest(t *testing.T) {
	names := []string{"rtx-4090", "rtx-3090", "h100-sxm", "l40s"}
	for said, want := range map[string]string{
		"rtx-4091": `; did you mean "rtx-4090"?`,
		"l4os":     `; did you mean "l40s"?`,
		"h100-smx": `; did you mean "h100-sxm"?`, // neighbours that are swapped are one mistake
		"rtx-090":  `; did you mean "rtx-3090"?`, // as near as another: the first by name
		"l04s":     `; did you mean "l40s"?`,     // one mistake is all that four letters may have
		"l4x":      "",                           // two mistakes of three letters
		"l40s":     "",
		"banana":   "",
		"":         "",
	} {
		if got := Suggest(said, names); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
