package mlflow

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"mt/internal/board"
)

// timeout is how long a request may take.
const timeout = 20 * time.Second

// client makes requests of a server.
type client struct {
	base           string // the server's address, without a password
	token          string
	user, password string
	http           *http.Client
}

// newClient reads MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME,
// MLFLOW_TRACKING_PASSWORD and MLFLOW_TRACKING_INSECURE_TLS, as MLflow's own client does.
func newClient() (*client, error) {
	uri := os.Getenv("MLFLOW_TRACKING_URI")
	if uri == "" {
		return nil, errors.New("MLFLOW_TRACKING_URI names no server: set it, as to http://127.0.0.1:5000 for one started with `mlflow server`")
	}
	at, err := url.Parse(uri)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("MLFLOW_TRACKING_URI is %q, and mt talks to a server only: start one with `mlflow server`, and name it as http://HOST:PORT", redacted(uri))
	}
	c := &client{token: os.Getenv("MLFLOW_TRACKING_TOKEN"), user: os.Getenv("MLFLOW_TRACKING_USERNAME"), password: os.Getenv("MLFLOW_TRACKING_PASSWORD")}
	if at.User != nil {
		c.user = at.User.Username()
		c.password, _ = at.User.Password()
		at.User = nil
	}
	c.base = strings.TrimRight(at.String(), "/")
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if os.Getenv("MLFLOW_TRACKING_INSECURE_TLS") == "true" {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // what the variable asks for
	}
	c.http = &http.Client{Transport: transport, Timeout: timeout}
	return c, nil
}

// redacted is uri without a password.
func redacted(uri string) string {
	if at, err := url.Parse(uri); err == nil {
		return at.Redacted()
	}
	return "not an address"
}

// refused is an answer of a server that is not the one that was wanted.
type refused struct {
	status int
	Code   string `json:"error_code"`
	Text   string `json:"message"`
}

func (r *refused) Error() string {
	text := strings.TrimSpace(r.Code + " " + r.Text)
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…" // the last character may be cut
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text = strings.TrimSpace(text + " (set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN)")
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", r.status, http.StatusText(r.status), text))
}

// call makes a request of the API's path with in as its JSON, or, with GET, as its query,
// and reads the answer into out, which may be nil. An answer that the same request will
// always get is a board.Refusal.
func (c *client) call(ctx context.Context, method, path string, in, out any) error {
	address := c.base + "/api/2.0/mlflow/" + path
	var body io.Reader
	if query, ok := in.(url.Values); ok {
		address += "?" + query.Encode()
	} else {
		raw, err := json.Marshal(in)
		if err != nil {
			return &board.Refusal{Err: err}
		}
		body = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return &board.Refusal{Err: err}
	}
	r.Header.Set("Content-Type", "application/json")
	switch {
	case c.user != "":
		r.SetBasicAuth(c.user, c.password)
	case c.token != "":
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	answer, err := c.http.Do(r)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the address, which the caller names
		}
		return fmt.Errorf("%s: %w", c.base, err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", c.base, err)
	}
	if answer.StatusCode != http.StatusOK {
		bad := &refused{status: answer.StatusCode}
		_ = json.Unmarshal(raw, bad) // a proxy's answer may be no JSON; the status says enough
		err := fmt.Errorf("%s: %s: %w", c.base, path, bad)
		if s := answer.StatusCode; s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusTooManyRequests {
			return &board.Refusal{Err: err}
		}
		return err
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return fmt.Errorf("%s: %s: this is no MLflow server: %w", c.base, path, err)
	}
	return nil
}
