package config

import (
	"reflect"
	"strings"
	"testing"
)

// TestDeviceList: what the key devices may say, and what not.
func TestDeviceList(t *testing.T) {
	for text, want := range map[string]any{
		"auto": DeviceList{All: true}, "3": DeviceList{Count: 3}, "[0, 2]": DeviceList{Count: 2, Ordinals: []int{0, 2}}, "[0]": DeviceList{Count: 1, Ordinals: []int{0}},
		"[1, 1]": "GPU 1 is named twice", "0": "0 devices compute nothing", "-1": "want auto", "65": "want auto", "[]": "want auto", "both": "want auto",
	} {
		c := Default()
		c.Devices = text
		got, err := c.DeviceList()
		if says, bad := want.(string); bad != (err != nil) || bad && !strings.Contains(err.Error(), says) || !bad && !reflect.DeepEqual(got, want) {
			t.Errorf("devices: %s is %+v (%v), want %v", text, got, err, want)
		}
	}
}
