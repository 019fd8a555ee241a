package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manPage is a manual page of section 1.
type manPage struct {
	Name string // file name, such as mt-train.1
	Text []byte // man(7) source
}

// manPages returns the pages of a command and its visible subcommands. source is the program name and version for the
// page footer.
func manPages(c *cobra.Command, source string) []manPage {
	pages := []manPage{{Name: manTitle(c) + ".1", Text: writeManPage(c, source)}}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			pages = append(pages, manPages(sub, source)...)
		}
	}
	return pages
}

// manTitle returns the name of a command's page, such as mt-data-inspect.
func manTitle(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// writeManPage returns the page of one command.
func writeManPage(c *cobra.Command, source string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q\n", strings.ToUpper(manTitle(c)), source)
	manSection(&b, "NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", manEscape(manTitle(c)), manEscape(c.Short))
	manSection(&b, "SYNOPSIS")
	manProse(&b, c.UseLine())
	manSection(&b, "DESCRIPTION")
	manProse(&b, cmp.Or(c.Long, c.Short))
	manOptions(&b, c.LocalFlags())
	if c.Example != "" {
		manSection(&b, "EXAMPLES")
		manProse(&b, c.Example)
	}
	var others []string
	if c.HasParent() {
		others = append(others, manTitle(c.Parent())+"(1)")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, manTitle(sub)+"(1)")
		}
	}
	if len(others) > 0 {
		manSection(&b, "SEE ALSO")
		manProse(&b, strings.Join(others, ", "))
	}
	return b.Bytes()
}

func manSection(b *bytes.Buffer, name string) { fmt.Fprintf(b, ".SH %s\n", name) }

// manProse appends text to the page b as troff. Empty lines separate paragraphs. Indented lines
// keep their line ends.
func manProse(b *bytes.Buffer, text string) {
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
		fmt.Fprintln(b, manEscape(line))
	}
	if kept {
		fmt.Fprintln(b, ".fi")
	}
}

// manOptions appends the section OPTIONS with the visible flags to the page b.
func manOptions(b *bytes.Buffer, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	manSection(b, "OPTIONS")
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
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", manEscape(flag), manEscape(usage))
	})
}

// manEscape escapes backslashes and dashes for troff. It also protects a leading period or apostrophe, which would
// start a request.
func manEscape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
