package extents

import (
	"strings"
	"testing"
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

// TestLockOfAKilledRun: a lock that a killed process gives up a moment late is waited for; one that stays is another run's.
func TestLockOfAKilledRun(t *testing.T) {
	for _, c := range []struct {
		tries int
		want  string
	}{{2, ""}, {lockTries, "another run keeps its state there now"}} {
		o, tries := three(t, 1), c.tries
		o.open = func(path string, fresh bool) (file, error) {
			f, err := openFile(path, fresh)
			return dying{f, &tries}, err
		}
		e, err := Open(o)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("locked for %d tries: %v", c.tries, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("locked for %d tries: %v", c.tries, err)
		} else if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
