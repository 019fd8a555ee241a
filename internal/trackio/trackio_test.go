package trackio

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mt/internal/board"
	"mt/internal/pytest"
)

// open opens r, sends the steps and closes it.
func open(t *testing.T, r Run, steps ...int) {
	t.Helper()
	s, err := Open(r)
	if err != nil {
		t.Fatal(err)
	}
	var points []board.Point
	for _, n := range steps {
		points = append(points, board.Point{Time: time.Unix(1e9, 5e8), Step: n, Values: []board.Scalar{{Name: "train/loss", Value: 1 / float64(n)}, {Name: "train/epoch", Value: 0.5}, {Name: "eval/loss", Value: math.NaN()}, {Name: "eval/worst", Value: math.Inf(1)}, {Name: "eval/best", Value: math.Inf(-1)}}})
	}
	if err := s.Send(context.Background(), points); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background(), board.Finished); err != nil {
		t.Fatal(err)
	}
}

// rows are the metrics of a database.
func rows(t *testing.T, file string) (out []string) {
	t.Helper()
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: file}).String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	all, err := db.Query("SELECT run_id, run_name, timestamp, step, metrics FROM metrics ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	for all.Next() {
		var id, name, at, metrics string
		var step int
		if err := all.Scan(&id, &name, &at, &step, &metrics); err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprint(id, " ", name, " ", at, " ", step, " ", metrics))
	}
	return out
}

// TestRuns: a resumed run goes on in its own rows, and other runs keep theirs.
func TestRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a folder?", "trackio")
	r := Run{Dir: dir, Project: "my.project", Name: "one", ID: "id1", Config: map[string]string{"seed": "7"}}
	open(t, r, 1, 2, 3)
	open(t, Run{Dir: dir, Project: "my.project", Name: "two", ID: "id2"}, 1, 2, 3)
	r.Resumed = 2
	open(t, r, 3, 4)
	got := strings.Join(rows(t, filepath.Join(dir, "myproject.db")), "\n")
	line := func(run string, step int, loss string) string {
		return fmt.Sprintf(`%s 2001-09-09T01:46:40.500000+00:00 %d {"train/epoch":0.5,"train/loss":%s}`, run, step, loss)
	}
	want := strings.Join([]string{line("id1 one", 1, "1"), line("id1 one", 2, "0.5"), line("id2 two", 1, "1"), line("id2 two", 2, "0.5"),
		line("id2 two", 3, "0.3333333333333333"), line("id1 one", 3, "0.3333333333333333"), line("id1 one", 4, "0.25")}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestConfig: the run's keys are written beside the user's name and the time.
func TestConfig(t *testing.T) {
	s, err := Open(Run{Dir: t.TempDir(), Project: "p", Name: "one", ID: "id1", Config: map[string]string{"seed": "7"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	var text string
	if err := s.db.QueryRow("SELECT config FROM configs WHERE run_id = 'id1'").Scan(&text); err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	var name any
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if config["seed"] != "7" || config["_Username"] != name || config["_Created"] == nil {
		t.Errorf("the configuration is %s, want seed 7 and the user %v", text, name)
	}
}

// TestRefusedRow: points of which the database refuses one are an error, and leave it free for
// the next.
func TestRefusedRow(t *testing.T) {
	s, err := Open(Run{Dir: t.TempDir(), Project: "p", Name: "one", ID: "id1"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.db.Close()
	if _, err := s.db.Exec("CREATE TRIGGER t BEFORE INSERT ON metrics WHEN NEW.step = 2 BEGIN SELECT RAISE(ABORT, 'no twos'); END"); err != nil {
		t.Fatal(err)
	}
	err = s.Send(context.Background(), []board.Point{{Step: 1}, {Step: 2}})
	if err == nil || !strings.Contains(err.Error(), s.file) || !strings.Contains(err.Error(), "no twos") {
		t.Errorf("error %v, want the database's, with the file", err)
	}
	if n := s.db.Stats().InUse; n != 0 {
		t.Fatalf("%d connections are in use after the error", n)
	}
	if err := s.Send(context.Background(), []board.Point{{Step: 3}}); err != nil {
		t.Error(err)
	}
	if got := rows(t, s.file); len(got) != 1 || !strings.Contains(got[0], " 3 ") {
		t.Errorf("there are %q, want step 3 alone", got)
	}
}

func TestDir(t *testing.T) {
	for _, v := range []string{"TRACKIO_DIR", "HF_HOME", "XDG_CACHE_HOME"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", "/home/me")
	for _, tc := range []struct{ variable, value, want string }{
		{"", "", "/home/me/.cache/huggingface/trackio"}, {"XDG_CACHE_HOME", "/x", "/x/huggingface/trackio"},
		{"HF_HOME", "~/hf", "/home/me/hf/trackio"}, {"TRACKIO_DIR", "/t", "/t"},
	} {
		if tc.variable != "" {
			t.Setenv(tc.variable, tc.value)
		}
		if got, err := Dir(); err != nil || got != tc.want {
			t.Errorf("%s=%s: %s, %v, want %s", tc.variable, tc.value, got, err, tc.want)
		}
	}
	if got := File("/t", "..."); got != "/t/default.db" {
		t.Error(got)
	}
}

// TestCheck: a folder that cannot be is refused, and one that can be is not made.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TRACKIO_DIR", filepath.Join(dir, "a", "b"))
	if err := Check(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "a")); err == nil {
		t.Error("it is made")
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Check(); err == nil || !strings.Contains(err.Error(), "set TRACKIO_DIR") {
		t.Error(err)
	}
	file := filepath.Join(dir, "a")
	t.Setenv("TRACKIO_DIR", file)
	if err := Check(); err == nil || !strings.Contains(err.Error(), file+": not a directory") {
		t.Errorf("a file in place of the folder: %v", err)
	}
}

// TestNoDatabase: a file that is no database is an error that names it.
func TestNoDatabase(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.db"), []byte(strings.Repeat("no database ", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Run{Dir: dir, Project: "p", ID: "x", Name: "x"}); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, "p.db")) {
		t.Error(err)
	}
}

// TestOlderDatabase: the error of a table without what we write says what to do.
func TestOlderDatabase(t *testing.T) {
	dir := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "p.db"))
	if err == nil {
		_, err = db.Exec("CREATE TABLE metrics (id INTEGER, run_name TEXT)")
		db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Run{Dir: dir, Project: "p", ID: "x", Name: "x"}); err == nil || !strings.Contains(err.Error(), "choose another project") {
		t.Error(err)
	}
}

// TestTrackioReads: Trackio itself lists the runs, reads every number, and writes a run of
// its own beside ours.
func TestTrackioReads(t *testing.T) {
	python := pytest.Need(t, "trackio")
	dir := t.TempDir()
	r := Run{Dir: dir, Project: "p", Name: "ours", ID: "id1", Config: map[string]string{"learning_rate": "0.1"}}
	open(t, r, 1, 2, 4)
	t.Setenv("TRACKIO_DIR", dir)
	var got struct {
		Projects []string
		Runs     []string
		Steps    []int
		Loss     []float64
		Config   map[string]any
	}
	if err := json.Unmarshal(pytest.Run(t, python, "testdata/read.py", "p", "ours"), &got); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got.Projects) != "[p]" || fmt.Sprint(got.Runs) != "[ours theirs]" || fmt.Sprint(got.Steps) != "[1 2 4]" || fmt.Sprint(got.Loss) != "[1 0.5 0.25]" || got.Config["learning_rate"] != "0.1" {
		t.Errorf("Trackio reads %+v", got)
	}
	r.Resumed = 2
	open(t, r, 3)
	if got := rows(t, filepath.Join(dir, "p.db")); len(got) != 4 {
		t.Errorf("beside a run of Trackio's: %q", got)
	}
}
