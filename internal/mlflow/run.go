package mlflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"mt/internal/board"
)

// Limits of runs/log-batch, and of a parameter's value in all versions since 1.28.
const (
	mostMetrics = 1000
	mostParams  = 100
	mostValue   = 500 // characters
)

// Run says which run the server is told of.
type Run struct {
	Name   string
	ID     string            // of a run to go on with; empty: a new one
	Config map[string]string // parameters, by key, of a new run
}

// Sink is a run on a server.
type Sink struct {
	c  *client
	id string
	// Notes are for the user.
	Notes []string
}

type tag struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type metric struct {
	Key       string  `json:"key"`
	Value     float64 `json:"value"`
	Timestamp int64   `json:"timestamp"` // milliseconds
	Step      int     `json:"step"`
}

// Check asks the server that the environment names whether it is there and lets us in.
func Check(ctx context.Context) error {
	c, err := newClient()
	if err != nil {
		return err
	}
	return c.call(ctx, http.MethodPost, "experiments/search", map[string]any{"max_results": 1}, &struct{}{})
}

// Open begins a run, or goes on with r.ID (else with MLFLOW_RUN_ID, if set). A new one
// belongs to the experiment MLFLOW_EXPERIMENT_ID or, by name, MLFLOW_EXPERIMENT_NAME, which
// is made if need be; with neither, to the server's default.
func Open(ctx context.Context, r Run) (*Sink, error) {
	c, err := newClient()
	if err != nil {
		return nil, err
	}
	s := &Sink{c: c}
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
		"start_time": time.Now().UnixMilli(), "tags": []tag{{"mlflow.source.name", "mt train"}, {"mlflow.source.type", "LOCAL"}}}, &made)
	if err == nil && made.Run.Info.ID == "" {
		err = fmt.Errorf("%s: runs/create: the answer names no run", c.base)
	}
	if err != nil {
		return nil, err
	}
	s.id = made.Run.Info.ID
	return s, s.params(ctx, r.Config)
}

// ID names the run on its server.
func (s *Sink) ID() string { return s.id }

// Server is the address of the server that the environment names, without a password;
// empty: it names none.
func Server() string {
	c, err := newClient()
	if err != nil {
		return ""
	}
	return c.base
}

// isCode tells whether err is a server's answer with that error code.
func isCode(err error, code string) bool {
	var bad *refused
	return errors.As(err, &bad) && bad.Code == code
}

// experiment is the id of the experiment that a new run belongs to.
func (c *client) experiment(ctx context.Context) (string, error) {
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
		if err == nil || isCode(err, "RESOURCE_ALREADY_EXISTS") { // another run was faster
			err = get()
		}
	}
	return found.Experiment.ID, err
}

// params logs the configuration. Long values are cut.
func (s *Sink) params(ctx context.Context, config map[string]string) error {
	var all []tag
	for _, k := range slices.Sorted(maps.Keys(config)) {
		v := []rune(config[k])
		if len(v) > mostValue {
			v = append(v[:mostValue-1], '…')
		}
		all = append(all, tag{k, string(v)})
	}
	for part := range slices.Chunk(all, mostParams) {
		if err := s.c.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": s.id, "params": part}, nil); err != nil {
			return err
		}
	}
	return nil
}

// Send implements board.Sink. Numbers have the names that the Trainer of Transformers gives
// MLflow: loss for train/loss, eval_loss for eval/loss.
func (s *Sink) Send(ctx context.Context, points []board.Point) error {
	var all []metric
	for _, p := range points {
		for _, v := range p.Values {
			if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
				continue // JSON has none
			}
			all = append(all, metric{name(v.Name), v.Value, p.Time.UnixMilli(), p.Step})
		}
	}
	for part := range slices.Chunk(all, mostMetrics) {
		if err := s.c.call(ctx, http.MethodPost, "runs/log-batch", map[string]any{"run_id": s.id, "metrics": part}, nil); err != nil {
			return err
		}
	}
	return nil
}

func name(of string) string {
	if rest, ok := strings.CutPrefix(of, "train/"); ok {
		return rest
	}
	return strings.ReplaceAll(of, "/", "_")
}

// Close implements board.Sink.
func (s *Sink) Close(ctx context.Context, status board.Status) error {
	return s.c.call(ctx, http.MethodPost, "runs/update", map[string]any{"run_id": s.id, "status": string(status), "end_time": time.Now().UnixMilli()}, nil)
}
