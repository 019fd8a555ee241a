package human

import "fmt"

// Suggest returns `; did you mean "near"?` with the name nearest to s, or "" if no name is near or s is one of the
// names.
func Suggest(s string, names []string) string {
	best, name := 1+max(1, len(s)/3), ""
	for _, n := range names {
		if d := distance(s, n); d < best || d == best && name != "" && n < name {
			best, name = d, n
		}
	}
	if name == "" || name == s {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", name)
}

// distance counts the smallest number of edits that turn a into b: inserted, deleted or replaced bytes, and swaps of
// neighbours (optimal string alignment).
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}
