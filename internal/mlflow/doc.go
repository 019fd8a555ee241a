// Package mlflow tells an MLflow server of a run, by its REST API 2.0
// (mlflow.org/docs/latest/api_reference/rest-api.html).
//
// It imports board; whoever reports a run imports it.
//
// Invariant: a request is bounded in time and in size, and no error shows a password or a
// token.
package mlflow
