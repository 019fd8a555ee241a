package extents

import (
	"strings"
	"testing"
	"time"
)

// dying is a file that a killed process still has locked for some tries.
type dying struct {
	file
	tries *int
}

func (d dying) Lock() error {
	if *d.tries--; *d.tries >= 0 {
		return errLocked
	}
	return d.file.Lock()
}

// TestLockOfAKilledRun: a lock that a killed process gives up a moment late is waited for, up to two seconds; one that stays is
// another run's.
func TestLockOfAKilledRun(t *testing.T) {
	for _, c := range []struct {
		tries int // that find the file locked
		waits time.Duration
		want  string
	}{{0, 0, ""}, {2, 2 * lockPause, ""}, {lockTries - 1, (lockTries - 1) * lockPause, ""},
		{lockTries, (lockTries - 1) * lockPause, "another run keeps its state there now"}} {
		o, tries, waited := three(t, 1), c.tries, time.Duration(0)
		o.open = func(path string, fresh bool) (file, error) {
			f, err := openFile(path, fresh)
			return dying{f, &tries}, err
		}
		o.pause = func(d time.Duration) { waited += d }
		e, err := Open(o)
		if err == nil {
			err = e.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("locked for %d tries: %v", c.tries, err)
		}
		if waited != c.waits {
			t.Errorf("locked for %d tries: waits %v, want %v", c.tries, waited, c.waits)
		}
	}
	if all := (lockTries - 1) * lockPause; all != 2*time.Second {
		t.Errorf("a lock that stays is waited for for %v", all)
	}
}
