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

// Address is where a dashboard is served. The zero Address is the default: the port
// 8383 of 127.0.0.1, or a free one where that is in use.
type Address struct {
	host, port string
}

// ParseAddress reads PORT, HOST, :PORT or HOST:PORT. A port alone is one of 127.0.0.1;
// a host alone is taken with the default port. Port 0 is any free one.
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

// Listen takes the port of a. The note is for the user, empty where there is nothing to
// say. The error of a port that somebody else has names another way.
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

// refused is err of a without what the system calls it by.
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

// hosts are the names that a request to l may call its host by, beside addresses and
// localhost: a page of another site, whose name was made to lead here, has none of them.
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

// knownHost says whether host, of a request's header, is an address, localhost or one of
// names.
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

// url is where a browser on this machine, or for an unspecified address on another, finds l.
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
