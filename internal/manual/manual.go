package manual

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is a manual page, for section 1.
type Page struct {
	Name string // of the file: mt-train.1
	Text []byte // in the macros of man(7)
}

// Pages are the pages of a command and of all below it that are not hidden. source is the program and its version, which
// stand at a page's foot.
func Pages(c *cobra.Command, source string) []Page {
	pages := []Page{{Name: title(c) + ".1", Text: page(c, source)}}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, Pages(sub, source)...)
		}
	}
	return pages
}

// title is the name of a command's page: mt-data-inspect.
func title(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page is the page of one command.
func page(c *cobra.Command, source string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q\n", strings.ToUpper(title(c)), source)
	section(&b, "NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", escape(title(c)), escape(c.Short))
	section(&b, "SYNOPSIS")
	prose(&b, c.UseLine())
	section(&b, "DESCRIPTION")
	prose(&b, first(c.Long, c.Short))
	options(&b, c.LocalFlags())
	if c.Example != "" {
		section(&b, "EXAMPLES")
		prose(&b, c.Example)
	}
	var others []string
	if c.HasParent() {
		others = append(others, title(c.Parent())+"(1)")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, title(sub)+"(1)")
		}
	}
	if len(others) > 0 {
		section(&b, "SEE ALSO")
		prose(&b, strings.Join(others, ", "))
	}
	return b.Bytes()
}

func section(b *bytes.Buffer, name string) { fmt.Fprintf(b, ".SH %s\n", name) }

// prose appends text as it stands in help: paragraphs between empty lines, and lines that are indented, which stay as
// they are.
func prose(b *bytes.Buffer, text string) {
	kept := false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \n")
		if indented := strings.HasPrefix(line, " "); indented != kept && line != "" {
			fmt.Fprintln(b, map[bool]string{true: ".nf", false: ".fi"}[indented])
			kept = indented
		}
		if line == "" {
			fmt.Fprintln(b, ".PP")
			continue
		}
		fmt.Fprintln(b, escape(line))
	}
	if kept {
		fmt.Fprintln(b, ".fi")
	}
}

// options appends the flags that are not hidden.
func options(b *bytes.Buffer, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	section(b, "OPTIONS")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		flag := "--" + f.Name
		if f.Shorthand != "" {
			flag = "-" + f.Shorthand + ", " + flag
		}
		if name != "" {
			flag += " " + name
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", escape(flag), escape(usage))
	})
}

// escape is text whose backslashes and dashes troff shows as they are. A line that begins with a point or an
// apostrophe would be a request.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// first is text, or where it is empty, other.
func first(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
