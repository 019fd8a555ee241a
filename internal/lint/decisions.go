package lint

import (
	"fmt"
	"regexp"
	"slices"
)

// pageLink matches a link to a page of the same folder, such as [credits](2026-11-credits.md).
var pageLink = regexp.MustCompile(`\]\(([^/#)]+\.md)\)`)

// CheckIndex compares index, the text of a folder's index page, with pages, the names of the folder's other pages. It
// returns one sentence for each page without a link and for each link without a page.
func CheckIndex(index string, pages []string) (found []string) {
	linked := map[string]bool{}
	for _, m := range pageLink.FindAllStringSubmatch(index, -1) {
		if !linked[m[1]] && !slices.Contains(pages, m[1]) {
			found = append(found, fmt.Sprintf("the index links to %s, which does not exist", m[1]))
		}
		linked[m[1]] = true
	}
	for _, p := range pages {
		if !linked[p] {
			found = append(found, fmt.Sprintf("the index has no line for %s: add a link and one sentence", p))
		}
	}
	return found
}
