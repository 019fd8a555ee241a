package config

import "mt/internal/near"

// suggest is `; did you mean "near"?` for the nearest of names, or nothing when
// none is near.
func suggest(s string, names []string) string { return near.Suggest(s, names) }
