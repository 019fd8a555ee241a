package data

import (
	"os"
	"testing"

	"mt/internal/long"
)

func TestMain(m *testing.M) { os.Exit(long.InMemory(m)) }
