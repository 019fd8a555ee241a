package watch

import (
	"net"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"9000": {"127.0.0.1", "9000"}, ":9000": {"127.0.0.1", "9000"}, "0": {"127.0.0.1", "0"}, "localhost": {"localhost", "8383"},
		"box.example:80": {"box.example", "80"}, "0.0.0.0:9000": {"0.0.0.0", "9000"}, "10.0.0.1": {"10.0.0.1", "8383"},
		"[::1]:9000": {"::1", "9000"}, "::": {"::", "8383"}, "[::1]": {"::1", "8383"},
	} {
		if got, err := ParseAddress(text); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, why := range map[string]string{
		"": "it is empty", "70000": "from 0 to 65535", "-1": "from 0 to 65535", "box:http": "from 0 to 65535", "box:": "from 0 to 65535", "a:b:c": "too many colons",
		"http://box": "from 0 to 65535", "box/x": "characters", "box:080": "from 0 to 65535", "user@box": "characters",
	} {
		if got, err := ParseAddress(text); err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "HOST:PORT") {
			t.Errorf("%q is %+v, %v; want %s", text, got, err, why)
		}
	}
}

// TestListenWherePortsAreTaken: a requested port is used or an error; without a request another port is used, with a
// note.
func TestListenWherePortsAreTaken(t *testing.T) {
	taken, _, err := Listen(mustParse(t, "0"))
	testkit.NoError(t, err)
	defer taken.Close()
	_, _, err = Listen(mustParse(t, taken.Addr().String()))
	if err == nil || !strings.Contains(err.Error(), taken.Addr().String()+" is in use; give another port, or 0") {
		t.Errorf("a taken port: %v", err)
	}
	// Two servers request the default port, so the second one cannot have it, whether or not it is free on this
	// machine.
	first, _, err := Listen(Address{})
	testkit.NoError(t, err)
	defer first.Close()
	second, note, err := Listen(Address{})
	testkit.NoError(t, err)
	defer second.Close()
	at := second.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() || at.Port == 8383 || note != "port 8383 is in use, so the dashboard takes another" {
		t.Errorf("beside another dashboard: %s, %q", at, note)
	}
}

func TestListenElsewhere(t *testing.T) {
	for text, want := range map[string]string{"203.0.113.7:0": "203.0.113.7 is no address of this machine", "no.such.host.invalid:0": "there is no host \"no.such.host.invalid\""} {
		l, _, err := Listen(mustParse(t, text))
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	l, note, err := Listen(mustParse(t, "0.0.0.0:0"))
	testkit.NoError(t, err)
	defer l.Close()
	if !strings.Contains(note, "other machines") {
		t.Errorf("of an address that others reach: %q", note)
	}
	if at := url(l, "x"); strings.Contains(at, "0.0.0.0") || strings.Contains(at, "[::]") {
		t.Errorf("%s is nothing to open", at)
	}
}

// TestNoteOfReach: Listen warns exactly if other machines can reach the dashboard.
func TestNoteOfReach(t *testing.T) {
	for host, others := range map[string]bool{"127.0.0.1": false, "127.0.0.2": false, "localhost": false, "::1": false, "0.0.0.0": true, "::": true} {
		l, note, err := Listen(Address{host, "0"})
		if err != nil {
			t.Logf("%s: %v", host, err) // on a machine without IPv6
			continue
		}
		at := l.Addr().String()
		_ = l.Close()
		if reach := strings.Contains(note, at+" can be reached from other machines") && strings.Contains(note, "not encrypted"); reach != others || !others && note != "" {
			t.Errorf("%s: note %q, want one: %t", host, note, others)
		}
	}
}

func TestKnownHost(t *testing.T) {
	names := mustParse(t, "box.example:0").hosts()
	for host, want := range map[string]bool{"127.0.0.1:8383": true, "localhost": true, "LOCALHOST:1": true, "mt.localhost:9": true, "[::1]:8383": true, "10.1.2.3": true,
		"box.example:8383": true, "Box.Example.": true, "evil.example": false, "evil.example:8383": false, "": false, "notlocalhost": false, "127.0.0.1.evil.example": false} {
		if knownHost(host, names) != want {
			t.Errorf("host %q is known: %t", host, !want)
		}
	}
}

func mustParse(t *testing.T, text string) Address {
	t.Helper()
	a := testkit.Must(ParseAddress(text))(t)
	return a
}
