package trackio

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"mt/internal/board"
)

// Run says what is written where.
type Run struct {
	Dir     string // see Dir
	Project string
	Name    string // what Trackio shows
	ID      string // names the run, and is the same when it is resumed
	// Resumed is the step that the run goes on from; what is there of later steps is
	// removed. 0: the run begins.
	Resumed int
	Config  map[string]string // by key
}

// Dir is the folder of Trackio's databases: TRACKIO_DIR, or trackio in Hugging Face's
// folder (HF_HOME, or huggingface in the user's cache). It need not exist.
func Dir() (string, error) {
	for _, at := range []struct{ variable, below string }{{"TRACKIO_DIR", ""}, {"HF_HOME", "trackio"}, {"XDG_CACHE_HOME", "huggingface/trackio"}} {
		if dir := os.Getenv(at.variable); dir != "" {
			return expand(filepath.Join(dir, at.below))
		}
	}
	return expand("~/.cache/huggingface/trackio")
}

// expand replaces a leading "~/".
func expand(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~/")
	if !ok {
		return path, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("where is Trackio's folder? %w (set TRACKIO_DIR)", err)
	}
	return filepath.Join(home, rest), nil
}

// File is the database of a project. Of its name only letters, digits, - and _ count
// (Trackio 0.43, utils.canonical_project_name).
func File(dir, project string) string {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_' {
			return r
		}
		return -1
	}, project)
	if name == "" {
		name = "default"
	}
	return filepath.Join(dir, name+".db")
}

// tables are those that Trackio 0.43 needs to show a run; it adds what else it has.
const tables = `
CREATE TABLE IF NOT EXISTS metrics (
	id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, run_name TEXT NOT NULL,
	timestamp TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS configs (
	id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL UNIQUE, run_name TEXT NOT NULL,
	config TEXT NOT NULL, created_at TEXT NOT NULL);`

// Sink is a run in the database.
type Sink struct {
	db   *sql.DB
	run  Run
	file string
}

// Open opens the database of r's project, which is made if need be, and begins the run
// there or goes on with it.
func Open(r Run) (*Sink, error) {
	s := &Sink{run: r, file: File(r.Dir, r.Project)}
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("trackio: %w", err)
	}
	// Trackio's own settings. Its programs may write at the same time: a lock is waited for.
	source := url.URL{Scheme: "file", Path: s.file, RawQuery: "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate"}
	db, err := sql.Open("sqlite", source.String())
	if err != nil {
		return nil, s.fail(err)
	}
	db.SetMaxOpenConns(1)
	s.db = db
	if err := s.begin(); err != nil {
		_ = db.Close() // err says what went wrong
		return nil, s.fail(err)
	}
	return s, nil
}

func (s *Sink) fail(err error) error { return fmt.Errorf("trackio %s: %w", s.file, err) }

func (s *Sink) begin() error {
	config := map[string]any{"_Username": nil, "_Created": stamp(time.Now()), "_Group": nil}
	if u, err := user.Current(); err == nil {
		config["_Username"] = u.Username
	}
	for k, v := range s.run.Config {
		config[k] = v
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(tables); err != nil {
		return err
	}
	if _, err := s.db.Exec("DELETE FROM metrics WHERE run_id = ? AND step > ?", s.run.ID, s.run.Resumed); err != nil {
		return fmt.Errorf("%w (was it made by an older Trackio? choose another project)", err)
	}
	_, err = s.db.Exec("INSERT INTO configs (run_id, run_name, config, created_at) VALUES (?, ?, ?, ?) ON CONFLICT(run_id) DO UPDATE SET config = excluded.config",
		s.run.ID, s.run.Name, string(text), stamp(time.Now()))
	return err
}

// Send implements board.Sink.
func (s *Sink) Send(ctx context.Context, points []board.Point) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return s.fail(err)
	}
	defer tx.Rollback() // of no effect once it is committed
	for _, p := range points {
		values := map[string]any{}
		for _, v := range p.Values {
			if !math.IsNaN(v.Value) && !math.IsInf(v.Value, 0) { // JSON has no others
				values[v.Name] = v.Value
			}
		}
		text, err := json.Marshal(values)
		if err != nil {
			return &board.Refusal{Err: s.fail(err)}
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO metrics (run_id, run_name, timestamp, step, metrics) VALUES (?, ?, ?, ?, ?)",
			s.run.ID, s.run.Name, stamp(p.Time), p.Step, string(text)); err != nil {
			return s.fail(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return s.fail(err)
	}
	return nil
}

// Close implements board.Sink. Trackio knows no end of a run.
func (s *Sink) Close(context.Context, board.Status) error {
	if err := s.db.Close(); err != nil {
		return s.fail(err)
	}
	return nil
}

// Check refuses a folder that Open could not make or write to. It changes nothing.
func Check() error {
	dir, err := Dir()
	if err != nil {
		return err
	}
	for at := dir; ; at = filepath.Dir(at) {
		st, err := os.Stat(at)
		if errors.Is(err, os.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err == nil && !st.IsDir() {
			err = errors.New("not a directory")
		}
		if err == nil {
			err = unix.Access(at, unix.W_OK|unix.X_OK)
		}
		if err != nil {
			return fmt.Errorf("trackio: its folder %s: %s: %w; set TRACKIO_DIR", dir, at, err)
		}
		return nil
	}
}

// stamp is a time as Trackio writes it: ISO 8601 in UTC.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }
