package host

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"mt/internal/testkit"
)

// TestPrefer: pages come from the preferred node, if the system allows the choice.
func TestPrefer(t *testing.T) {
	page := os.Getpagesize()
	b := testkit.Must(unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	defer func() { _ = unix.Munmap(b) }()
	switch err := (LinuxNodes{}).Prefer(b, 0); {
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS):
		t.Skipf("the system does not let memory be placed: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	b[0], b[3*page] = 1, 2
	if err := (LinuxNodes{}).Prefer(b, 1000); err == nil {
		t.Error("a node that is not there is taken")
	}
}
