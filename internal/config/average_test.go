package config

import "testing"

// TestAverageBeginsBeforeTheEnd: an average that begins with the last step, or after it, is refused; one step earlier it is one.
func TestAverageBeginsBeforeTheEnd(t *testing.T) {
	for text, ok := range map[string]bool{
		"max_steps: 5\nema_decay: 0.9\nema_update_after_step: 3":  true,
		"max_steps: 5\nema_decay: 0.9\nema_update_after_step: 4":  false,
		"max_steps: 5\nema_decay: 0.9\nema_update_after_step: 5":  false,
		"max_steps: 5\nema_update_after_step: 5":                  true,
		"max_steps: 1\nema_decay: 0.9":                            true,
		"max_steps: -1\nema_decay: 0.9\nema_update_after_step: 9": true, // how many steps there are is not known
	} {
		if _, err := Parse("run.yaml", []byte("model: tiny\ndataset: x\n"+text), Args{}); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
