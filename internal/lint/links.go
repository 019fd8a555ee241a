package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+?) *#*$`)
	anchor  = regexp.MustCompile(`(?:id|name)="([^"]+)"`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N}\p{M}_ -]`)
)

// CheckLinks follows the relative links of a Markdown page to files and headings. name is the page's
// path below root. It returns one sentence for each link that leads nowhere.
func CheckLinks(root, name string, content []byte) (found []string) {
	text := codeSpan.ReplaceAllString(fence.ReplaceAllString(string(content), ""), "")
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, id, _ := strings.Cut(m[1], "#")
		if strings.Contains(target, ":") {
			continue
		}
		file := name
		if target != "" {
			file = filepath.Join(filepath.Dir(name), target)
		}
		page, err := os.Stat(filepath.Join(root, file))
		if err != nil {
			found = append(found, fmt.Sprintf("%s links to %s, which does not exist", name, m[1]))
			continue
		}
		if id == "" || page.IsDir() || !strings.HasSuffix(file, ".md") {
			continue
		}
		linked, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			found = append(found, err.Error())
		} else if !anchors(string(linked))[id] {
			found = append(found, fmt.Sprintf("%s links to %s, but %s has no such heading", name, m[1], file))
		}
	}
	return found
}

// anchors returns the fragments ("#...") by which a link can point into the page. GitHub makes them
// out of the headings.
func anchors(page string) map[string]bool {
	ids := map[string]bool{}
	page = fence.ReplaceAllString(page, "")
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		title := linkTarget.ReplaceAllString(m[1], "]")
		id := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(title), ""), " ", "-")
		for base, n := id, 1; ids[id]; n++ {
			id = fmt.Sprintf("%s-%d", base, n)
		}
		ids[id] = true
	}
	for _, m := range anchor.FindAllStringSubmatch(page, -1) {
		ids[m[1]] = true
	}
	return ids
}
