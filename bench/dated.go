package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"mt/internal/chart"
)

// Report is what a benchmark found: a table, a picture and, with its exported fields,
// JSON.
type Report interface {
	WriteTable(w io.Writer) error
	Chart() chart.Chart
}

// Dated is what stands above a report that is kept.
type Dated struct {
	Name    string    // of the benchmark: copy, attention
	Command []string  // with which it ran
	Version string    // of mt
	At      time.Time // when it began
}

// Machine is the machine in words: processor, cores, memory, system.
func Machine() string {
	words := []string{processor(), fmt.Sprintf("%d cores", runtime.NumCPU())}
	if raw, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int64
		if _, err := fmt.Sscanf(string(raw), "MemTotal: %d kB", &kib); err == nil {
			words = append(words, fmt.Sprintf("%d GiB", (kib+1<<19)>>20))
		}
	}
	system := runtime.GOOS + "/" + runtime.GOARCH
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		system += " " + strings.TrimSpace(string(raw))
	}
	return strings.Join(append(words, system), ", ")
}

// processor is the processor's name, as far as the system tells it.
func processor() string {
	raw, _ := os.ReadFile("/proc/cpuinfo") // where there is none, nothing is told
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH + " processor"
}

// Write writes r into dir as three files, DATE-bench-NAME.md, .json and .svg, and returns
// the path of the first. The directory is made where it is not there. A report of the
// same day and name is replaced.
func (d Dated) Write(dir string, r Report) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("bench: report: %w", err)
	}
	stem := fmt.Sprintf("%s-bench-%s", d.At.Format("2006-01-02"), d.Name)
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("bench: report: %w", err)
	}
	var picture, text bytes.Buffer
	if err := r.Chart().WriteSVG(&picture); err != nil {
		return "", fmt.Errorf("bench: report: %w", err)
	}
	if err := d.markdown(&text, stem, r); err != nil {
		return "", fmt.Errorf("bench: report: %w", err)
	}
	path := filepath.Join(dir, stem+".md")
	for _, f := range []struct {
		name string
		data []byte
	}{{stem + ".json", append(data, '\n')}, {stem + ".svg", picture.Bytes()}, {stem + ".md", text.Bytes()}} {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.data, 0o644); err != nil {
			return "", fmt.Errorf("bench: report: %w", err)
		}
	}
	return path, nil
}

// markdown is the page with the table on it.
func (d Dated) markdown(w io.Writer, stem string, r Report) error {
	if _, err := fmt.Fprintf(w, "# %s: mt bench %s\n\n%s.\n%s.\n\n```sh\n%s\n```\n\n```\n", d.At.Format("2006-01-02"), d.Name,
		Machine(), d.Version, strings.Join(d.Command, " ")); err != nil {
		return err
	}
	if err := r.WriteTable(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "```\n\n![%s](%s.svg)\n\nThe same figures as JSON: [%s.json](%s.json).\n", d.Name, stem, stem, stem)
	return err
}
