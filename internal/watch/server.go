package watch

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"log"
	"net"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

// Options configures a server.
type Options struct {
	Dirs    []string         // output directories of the runs
	Within  bool             // the server belongs to the run that it shows, and ends with it
	Address Address          // the requested address; requests may use its host name
	Every   time.Duration    // interval between looks at the files; 0: a second
	Now     func() time.Time // clock; nil: time.Now
	Warn    func(error)      // called if serving fails; may be nil
}

// Server serves the dashboard of one or more runs.
type Server struct {
	o        Options
	http     http.Server
	token    string // hexadecimal
	cookie   string // the cookie's name
	at       string
	names    []string
	closing  chan struct{}
	closes   time.Duration // how long Close waits for viewers: closePatience, or less in tests
	viewers  sync.WaitGroup
	mu       sync.Mutex
	watching int // number of event streams
}

const (
	maxViewers    = 32
	patience      = 30 * time.Second       // time limit for a viewer to accept a write
	keepAlive     = 15 * time.Second       // silence after which a comment is sent, to detect viewers that have left
	closePatience = 2 * time.Second        // time for viewers to receive the last events
	lastWrites    = 300 * time.Millisecond // time to finish writing responses
)

// Serve starts to serve the dashboard on the listener l, on goroutines of its own, and returns. The server serves
// until Close.
func Serve(l net.Listener, o Options) *Server {
	var secret [16]byte
	_, _ = rand.Read(secret[:]) // never fails
	s := &Server{o: o, token: hex.EncodeToString(secret[:]), names: o.Address.hosts(), closing: make(chan struct{}), closes: closePatience}
	id := sha256.Sum256([]byte(s.token))
	s.cookie = "mt-" + hex.EncodeToString(id[:4]) // the ports of a host share their cookies
	s.at = url(l, s.token)
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	if s.o.Every == 0 {
		s.o.Every = time.Second
	}
	s.http = http.Server{Handler: s.guarded(s.routes()), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.New(nobody{}, "", 0)}
	go func() {
		if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) && s.o.Warn != nil {
			s.o.Warn(err)
		}
	}()
	return s
}

// nobody is the writer for the log of the HTTP library. It discards the library's messages about browsers.
type nobody struct{}

func (nobody) Write(b []byte) (int, error) { return len(b), nil }

// URL returns the URL to open in a browser, with the token.
func (s *Server) URL() string { return s.at }

// Close sends viewers the latest changes and the end event, and stops serving. It waits at most about two seconds.
func (s *Server) Close() {
	s.mu.Lock()
	select {
	case <-s.closing:
	default:
		close(s.closing)
	}
	s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		s.viewers.Wait()
		close(gone)
	}()
	late := time.NewTimer(s.closes)
	defer late.Stop()
	select {
	case <-gone:
	case <-late.C:
	}
	// A browser may discard a truncated response, including its last event.
	ctx, cancel := context.WithTimeout(context.Background(), lastWrites)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // errors of idle connections do not matter
	}
}

//go:embed page
var page embed.FS

// kinds maps the endings of the page's files to their media types.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// routes returns the handler that serves the files of the page and the stream of events.
func (s *Server) routes() http.Handler {
	files, err := fs.Sub(page, "page")
	if err != nil {
		panic("watch: " + err.Error()) // the folder is embedded
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/events", s.events)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		if name == "" {
			name = "index.html"
		}
		content, err := fs.ReadFile(files, name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", kinds[path.Ext(name)])
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
	})
	return mux
}

// policy is the content security policy of the page. The page may load only its own files, and no other page may show
// it in a frame.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// guarded returns a handler that passes a request to next only if it shows the token and names a known host.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, value := range map[string]string{"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
			"X-Frame-Options": "DENY", "Cache-Control": "no-store"} {
			h.Set(name, value)
		}
		asked := r.URL.Query().Get("token")
		switch {
		case !knownHost(r.Host, s.names):
			http.Error(w, "mt does not go by the name of this address here; open it by the machine's address, or give its name to --dashboard or --address", http.StatusForbidden)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "there is nothing here but pages to read", http.StatusMethodNotAllowed)
		case s.is(asked) && r.URL.Path == "/":
			http.SetCookie(w, &http.Cookie{Name: s.cookie, Value: s.token, Path: "/", MaxAge: 7 * 24 * 3600, HttpOnly: true, SameSite: http.SameSiteLaxMode})
			h.Set("Location", "/") // keeps the token out of copied URLs
			w.WriteHeader(http.StatusSeeOther)
		case s.is(asked) || s.is(s.shown(r)):
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "open the address that mt printed, with its token: each start of mt has another", http.StatusUnauthorized)
		}
	})
}

// shown returns the token in the cookie that the request r has; "" if it has none.
func (s *Server) shown(r *http.Request) string {
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return ""
	}
	return c.Value
}

// is reports whether text is the server's token. The comparison takes the same time for any text, so that nobody can
// guess the token piece by piece.
func (s *Server) is(text string) bool {
	return subtle.ConstantTimeCompare([]byte(text), []byte(s.token)) == 1
}
