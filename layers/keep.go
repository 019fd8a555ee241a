package layers

import "fmt"

var keepNames = [...]string{"nothing", "attention", "qkv", "all"}

// String is the level's name in resolved configurations.
func (k Keep) String() string {
	if int(k) < len(keepNames) {
		return keepNames[k]
	}
	return fmt.Sprintf("Keep(%d)", uint8(k))
}
