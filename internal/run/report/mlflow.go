package report

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Limits of the MLflow request runs/log-batch, and of a parameter's value in every MLflow version since 1.28.
const (
	mostMetrics = 1000
	mostParams  = 100
	mostValue   = 500 // characters
)

// MLflowRun describes the run to start or continue.
type MLflowRun struct {
	Name   string
	ID     string            // run to continue; empty: a new run
	Config map[string]string // parameters of a new run, by key
}

// MLflow is a run on an MLflow server.
type MLflow struct {
	c  *mlflowClient
	id string
	// Notes are messages for the user.
	Notes []string
}

type mlflowTag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type mlflowMetric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // milliseconds
	Step      int     `json:"step"`
}

// CheckMLflow checks that the server in the environment answers and accepts the credentials.
func CheckMLflow(ctx context.Context) error {
	c, err := newMLflowClient()
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "experiments/search", map[string]any{"max_results": 1}, &struct{}{})
}

// OpenMLflow starts a run, or continues r.ID or else MLFLOW_RUN_ID. A new run belongs to the experiment
// MLFLOW_EXPERIMENT_ID, or to the experiment named MLFLOW_EXPERIMENT_NAME, which is created if missing. With neither
// it belongs to the server's default experiment.
func OpenMLflow(ctx context.Context, r MLflowRun) (*MLflow, error) {
	c, err := newMLflowClient()
	if err != nil {
		return nil, err
	}
	s := &MLflow{c: c}
	if id := cmp.Or(r.ID, os.Getenv("MLFLOW_RUN_ID")); id != "" {
		err := c.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": id, "status": "RUNNING"}, nil)
		if err == nil {
			s.id = id
			return s, nil
		}
		if r.ID == "" || !isCode(err, "RESOURCE_DOES_NOT_EXIST") {
			return nil, err
		}
		s.Notes = append(s.Notes, fmt.Sprintf("mlflow: the server has run %s no more, and a new one begins", id))
	}
	experiment, err := c.experiment(ctx)
	if err != nil {
		return nil, err
	}
	var made struct {
		Run struct {
			Info struct {
				ID string `json:"run_id"`
			} `json:"info"`
		} `json:"run"`
	}
	err = c.call(ctx, http.MethodPost, "runs/create", map[string]any{"experiment_id": experiment, "run_name": r.Name,
		"start_time": time.Now().UnixMilli(), "tags": []mlflowTag{{"mlflow.source.name", "mt train"}, {"mlflow.source.type", "LOCAL"}}}, &made)
	if err == nil && made.Run.Info.ID == "" {
		err = fmt.Errorf("%s: runs/create: the answer names no run", c.base)
	}
	if err != nil {
		return nil, err
	}
	s.id = made.Run.Info.ID
	return s, s.params(ctx, r.Config)
}

// ID returns the run's id on its server.
func (s *MLflow) ID() string { return s.id }

// MLflowServer returns the address of the server in the environment, without a password; "" if there is none.
func MLflowServer() string {
	c, err := newMLflowClient()
	if err != nil {
		return ""
	}
	return c.base
}

// isCode reports whether err is an error answer of the MLflow server with the error_code code.
func isCode(err error, code string) bool {
	var bad *mlflowRefused
	return errors.As(err, &bad) && bad.Code == code
}

// experiment returns the id of a new run's experiment.
func (c *mlflowClient) experiment(ctx context.Context) (string, error) {
	name := os.Getenv("MLFLOW_EXPERIMENT_NAME")
	if id := os.Getenv("MLFLOW_EXPERIMENT_ID"); id != "" || name == "" {
		return cmp.Or(id, "0"), nil
	}
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		} `json:"experiment"`
	}
	get := func() error {
		return c.call(ctx, http.MethodGet, "experiments/get-by-name", url.Values{"experiment_name": {name}}, &found)
	}
	err := get()
	if isCode(err, "RESOURCE_DOES_NOT_EXIST") {
		err = c.call(ctx, http.MethodPost, "experiments/create", map[string]any{"name": name}, nil)
		if err == nil || isCode(err, "RESOURCE_ALREADY_EXISTS") { // another process has just created it
			err = get()
		}
	}
	return found.Experiment.ID, err
}

// params sends the configuration to the server as the run's parameters. Long values are truncated.
func (s *MLflow) params(ctx context.Context, config map[string]string) error {
	var all []mlflowTag
	for _, k := range slices.Sorted(maps.Keys(config)) {
		v := []rune(config[k])
		if len(v) > mostValue {
			v = append(v[:mostValue-1], '…')
		}
		all = append(all, mlflowTag{k, string(v)})
	}
	for part := range slices.Chunk(all, mostParams) {
		if err := s.c.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": s.id, "params": part}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Send implements Sink. Numbers get the names that Transformers' Trainer uses with MLflow: loss for train/loss,
// eval_loss for eval/loss.
func (s *MLflow) Send(ctx context.Context, points []Point) error {
	var all []mlflowMetric
	for _, p := range points {
		for _, v := range p.Values {
			if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
				continue // JSON has no NaN or Inf
			}
			all = append(all, mlflowMetric{mlflowName(v.Name), v.Value, p.Time.UnixMilli(), p.Step})
		}
	}
	for part := range slices.Chunk(all, mostMetrics) {
		if err := s.c.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": s.id, "metrics": part}, nil); err != nil {
			return err
		}
	}
	return nil
}

func mlflowName(of string) string {
	if rest, ok := strings.CutPrefix(of, "train/"); ok {
		return rest
	}
	return strings.ReplaceAll(of, "/", "_")
}

// Close implements Sink. It tells the server how the run ended.
func (s *MLflow) Close(ctx context.Context, status EndStatus) error {
	return s.c.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": s.id, "status": string(status), "end_time": time.Now().UnixMilli()}, nil)
}

// timeout is the longest duration of one request to the server.
const timeout = 20 * time.Second

// mlflowClient sends requests to a server.
type mlflowClient struct {
	base           string // the server's address, without a password
	token          string
	user, password string
	http           *http.Client
}

// newMLflowClient reads MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME,
// MLFLOW_TRACKING_PASSWORD and MLFLOW_TRACKING_INSECURE_TLS, as MLflow's own client does.
func newMLflowClient() (*mlflowClient, error) {
	uri := os.Getenv("MLFLOW_TRACKING_URI")
	if uri == "" {
		return nil, errors.New("MLFLOW_TRACKING_URI names no server: set it, as to http://127.0.0.1:5000 for one started with `mlflow server`")
	}
	at, err := url.Parse(uri)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
		return nil, fmt.Errorf("MLFLOW_TRACKING_URI is %q, and mt talks to a server only: start one with `mlflow server`, and name it as http://HOST:PORT", redacted(uri))
	}
	c := &mlflowClient{token: os.Getenv("MLFLOW_TRACKING_TOKEN"), user: os.Getenv("MLFLOW_TRACKING_USERNAME"), password: os.Getenv("MLFLOW_TRACKING_PASSWORD")}
	if at.User != nil {
		c.user = at.User.Username()
		c.password, _ = at.User.Password()
		at.User = nil
	}
	c.base = strings.TrimRight(at.String(), "/")
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if os.Getenv("MLFLOW_TRACKING_INSECURE_TLS") == "true" {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the variable demands it
	}
	c.http = &http.Client{Transport: transport, Timeout: timeout}
	return c, nil
}

// redacted returns uri without its password, for messages.
func redacted(uri string) string {
	if at, err := url.Parse(uri); err == nil {
		return at.Redacted()
	}
	return "not an address"
}

// mlflowRefused is an error answer from a server.
type mlflowRefused struct {
	status int
	Code   string `json:"error_code"`
	Text   string `json:"message"`
}

func (r *mlflowRefused) Error() string {
	text := strings.TrimSpace(r.Code + " " + r.Text)
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "") + "…" // the cut may split a character
	}
	switch r.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		text = strings.TrimSpace(text + " (set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN)")
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s: %s", r.status, http.StatusText(r.status), text))
}

// call sends a request to an API path. The argument in becomes the JSON body, or with GET the query. The answer is
// parsed into out, which may be nil. The error is a Refusal if repeating the request cannot help.
func (c *mlflowClient) call(ctx context.Context, method, path string, in, out any) error {
	address := c.base + "/api/2.0/mlflow/" + path
	var body io.Reader
	if query, ok := in.(url.Values); ok {
		address += "?" + query.Encode()
	} else {
		raw, err := json.Marshal(in)
		if err != nil {
			return &Refusal{Err: err}
		}
		body = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		return &Refusal{Err: err}
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
			err = u.Err // the caller's message names the address
		}
		return fmt.Errorf("%s: %w", c.base, err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("%s: %w", c.base, err)
	}
	if answer.StatusCode != http.StatusOK {
		bad := &mlflowRefused{status: answer.StatusCode}
		_ = json.Unmarshal(raw, bad) // a proxy's answer may not be JSON; the status is enough
		err := fmt.Errorf("%s: %s: %w", c.base, path, bad)
		if s := answer.StatusCode; s >= 400 && s < 500 && s != http.StatusRequestTimeout && s != http.StatusTooManyRequests {
			return &Refusal{Err: err}
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
