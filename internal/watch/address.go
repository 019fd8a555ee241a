package watch

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
)

const (
	loopback    = "127.0.0.1"
	defaultPort = "8383"
)

// Address is the address of a dashboard. The zero Address is the default: port 8383 of 127.0.0.1, or a free port if
// 8383 is in use.
type Address struct {
	host, port string
}

// ParseAddress parses PORT, HOST, :PORT or HOST:PORT. The default host is 127.0.0.1, the default port 8383. Port 0
// means any free port.
func ParseAddress(text string) (Address, error) {
	wrong := func(why string) (Address, error) {
		return Address{}, fmt.Errorf("%q is no address: %s; write PORT, HOST or HOST:PORT, such as 9000 or 0.0.0.0:9000", text, why)
	}
	host, port := text, defaultPort
	switch _, err := strconv.ParseInt(text, 10, 64); {
	case text == "":
		return wrong("it is empty")
	case err == nil:
		host, port = loopback, text
	case isIP(text) || !strings.Contains(text, ":"):
	default:
		h, p, err := net.SplitHostPort(text)
		if err != nil {
			return wrong(strings.TrimPrefix(err.Error(), "address "+text+": "))
		}
		host, port = h, p
		if h == "" {
			host = loopback
		}
	}
	if strings.ContainsAny(host, "/?#@ \t") {
		return wrong("it has characters that no host has")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || strconv.FormatUint(n, 10) != port {
		return wrong("a port is a number from 0 to 65535")
	}
	return Address{host: strings.Trim(host, "[]"), port: port}, nil
}

func isIP(text string) bool {
	_, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return err == nil
}

// Listen opens the port of a. note is a message for the user; "": none. If the port is in use, the error suggests an
// alternative.
func Listen(a Address) (l net.Listener, note string, err error) {
	asked := a != Address{}
	if !asked {
		a = Address{host: loopback, port: defaultPort}
	}
	l, err = net.Listen("tcp", net.JoinHostPort(a.host, a.port))
	if errors.Is(err, syscall.EADDRINUSE) && !asked {
		note = fmt.Sprintf("port %s is in use, so the dashboard takes another", a.port)
		l, err = net.Listen("tcp", net.JoinHostPort(a.host, "0"))
	}
	if err != nil {
		return nil, "", a.refused(err)
	}
	if at, ok := l.Addr().(*net.TCPAddr); ok && !at.IP.IsLoopback() {
		note = fmt.Sprintf("the dashboard at %s can be reached from other machines, and what it sends is not encrypted", l.Addr())
	}
	return l, note, nil
}

// refused returns the error for a listener that could not open the address a. It replaces err, the system's error, by
// a text that names a remedy.
func (a Address) refused(err error) error {
	at := net.JoinHostPort(a.host, a.port)
	var lookup *net.DNSError
	var call *os.SyscallError
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use; give another port, or 0 for a free one", at)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%s is no address of this machine; 0.0.0.0 stands for all that it has", a.host)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("%s is not for users without privileges; give a port from 1024 on", at)
	case errors.As(err, &lookup):
		return fmt.Errorf("there is no host %q (%s)", a.host, lookup.Err)
	case errors.As(err, &call):
		err = call.Err
	}
	return fmt.Errorf("%s: %w", at, err)
}

// hosts returns the host names that requests may use, in addition to IP addresses and localhost. This stops DNS
// rebinding: a foreign page whose name resolves to this machine sends another host name.
func (a Address) hosts() []string {
	var names []string
	if a.host != "" && !isIP(a.host) {
		names = append(names, strings.ToLower(a.host))
	}
	if name, err := os.Hostname(); err == nil {
		names = append(names, strings.ToLower(name))
	}
	return names
}

// knownHost reports whether host, taken from the header of a request, is an IP address, localhost or one of names.
func knownHost(host string, names []string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if isIP(host) || host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	for _, name := range names {
		if host == name {
			return true
		}
	}
	return false
}

// url returns the URL under which a browser on this machine reaches the listener l, with the token that requests must
// show. If l listens on all of the machine's addresses, the URL works from other machines too.
func url(l net.Listener, token string) string {
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = loopback
		if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return fmt.Sprintf("http://%s/?token=%s", net.JoinHostPort(host, strconv.Itoa(at.Port)), token)
}
