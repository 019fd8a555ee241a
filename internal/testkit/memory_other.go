//go:build !linux

package testkit

import "testing"

// InMemory runs a package's tests. It returns the exit status for TestMain.
func InMemory(m *testing.M) int { return m.Run() }
