package jinja

import "testing"

// TestAsPython: expressions whose values are those of Python 3.
func TestAsPython(t *testing.T) {
	for source, want := range map[string]string{
		"{{ '%*d|' % (-5, 3) }}":                                                          "3    |",
		"{{ 'aab' | replace(old='a', new='c') }}":                                         "ccb",
		"{{ '{:.0f} {:.0e} {:.0}'.format(2.6, 2.6, 2.6) }}":                               "3 3e+00 3e+00",
		"{{ '{:.2} {:.3} {:.3}'.format(26.0, 26.0, 0.00026) }}":                           "2.6e+01 26.0 0.00026",
		"{{ '{:.3} {:.3} {:.3f}'.format('inf' | float, '-inf' | float, 'nan' | float) }}": "inf -inf nan",
		"{{ 4.5 % 2 }} {{ -4.5 % 2 }}":                                                    "0.5 1.5",
		"{{ 4.5 % -2 }} {{ 4.5 // 2 }} {{ 4 % 2 }}":                                       "-1.5 2.0 0",
	} {
		got, err := parse(t, "values", source).Render(withTokens(twoTurns))
		if err != nil || got.Text != want {
			t.Errorf("%s: %q, %v; want %q", source, got.Text, err, want)
		}
	}
}
