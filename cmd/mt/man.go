package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"mt/internal/run/config"
)

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages into a folder",
		Long: `Man writes a manual page for every command into a folder, which it makes. Packages
of mt have them already: man mt-train.`,
		Example: `  mt man ~/.local/share/man/man1 && man mt-train`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return config.Usagef("man: give one folder to write to (see mt man --help)")
			}
			return a.writePages(c.Root(), args[0])
		},
	}
}

// writePages writes the manual pages of all commands into dir.
func (a *app) writePages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	for c := range a.keys {
		hideFlags(c)
	}
	for _, p := range manPages(root, "mt "+thisVersion().Version) {
		if err := os.WriteFile(filepath.Join(dir, p.Name), p.Text, 0o644); err != nil {
			return fmt.Errorf("man: %w", err)
		}
	}
	return nil
}
