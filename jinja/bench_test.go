package jinja

import "testing"

func BenchmarkRender(b *testing.B) {
	tmpl := family(b, "thinking")
	vars := withTokens(append(append([]any{}, twoTurns...), twoTurns[1:]...))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(vars); err != nil {
			b.Fatal(err)
		}
	}
}
