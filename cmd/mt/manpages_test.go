package main

import (
	"testing"

	"github.com/spf13/cobra"
)

// TestManPages compares whole pages with the expected ones: paragraphs, unfilled lines, options, and text that troff
// would interpret.
func TestManPages(t *testing.T) {
	nothing := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "Do things", Long: "Tool does things.\n.not a request\n\nLike so:\n  a  b\n\n  c\\d\n'tis all.", Run: nothing}
	sub := &cobra.Command{Use: "cut-up FILE", Short: "Cut a file", Example: "  tool cut-up x", Run: nothing}
	sub.Flags().StringP("out", "o", "", "the `FOLDER` to write to")
	sub.Flags().Bool("all", false, "leave nothing")
	sub.Flags().Bool("secret", false, "")
	_ = sub.Flags().MarkHidden("secret")
	root.AddCommand(sub, &cobra.Command{Use: "inner", Hidden: true, Run: nothing})
	want := []manPage{
		{"tool.1", []byte(`.TH "TOOL" 1 "" "tool 1.0"
.SH NAME
tool \- Do things
.SH SYNOPSIS
tool
.SH DESCRIPTION
Tool does things.
\&.not a request
.PP
Like so:
.nf
  a  b
.PP
  c\ed
.fi
\&'tis all.
.SH SEE ALSO
tool\-cut\-up(1)
`)},
		{"tool-cut-up.1", []byte(`.TH "TOOL-CUT-UP" 1 "" "tool 1.0"
.SH NAME
tool\-cut\-up \- Cut a file
.SH SYNOPSIS
tool cut\-up FILE [flags]
.SH DESCRIPTION
Cut a file
.SH OPTIONS
.TP
\fB\-\-all\fR
leave nothing
.TP
\fB\-o, \-\-out FOLDER\fR
the FOLDER to write to
.SH EXAMPLES
.nf
  tool cut\-up x
.fi
.SH SEE ALSO
tool(1)
`)},
	}
	got := manPages(root, "tool 1.0")
	if len(got) != len(want) {
		t.Fatalf("%d pages, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].Name != want[i].Name || string(got[i].Text) != string(want[i].Text) {
			t.Errorf("page %s:\n%s\nwant %s:\n%s", got[i].Name, got[i].Text, want[i].Name, want[i].Text)
		}
	}
}
