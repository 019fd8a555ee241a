package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"mt/base/files"
	"mt/data"
	"mt/model"
)

var hubID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$`)

// ModelDir returns the local directory of a model path: the directory itself, or the snapshot of a Hub id
// ("ORG/NAME") in the local Hugging Face cache. It downloads nothing. If there is no snapshot, it returns a
// UsageError with the command that fetches the model.
func ModelDir(path string) (string, error) {
	expanded, err := expand(path)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(expanded)
	switch {
	case err == nil && st.IsDir():
		return expanded, nil
	case err == nil:
		return "", Usagef("%s: %s", path, model.Foreign(expanded))
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrInvalid):
		return "", Usagef("%v", err)
	case !hubID.MatchString(path):
		return "", Usagef("%s: no such directory, and not a Hub id such as ORG/NAME", path)
	}
	return snapshot(path)
}

// maxRef is the largest accepted size, in bytes, of a file such as refs/main in the Hugging Face cache, which holds a
// commit hash.
const maxRef = 4096

// snapshot returns the cached directory of a model with the Hub id id. It takes the commit that the cache's file
// refs/main names.
func snapshot(id string) (string, error) {
	fetch := "fetch it with: hf download " + id
	dir, hub, err := cached("models", id)
	switch {
	case err != nil:
		return "", err
	case dir == "":
		return "", Usagef("%s: no such directory, and no model of that name in the Hugging Face cache %s; %s", id, hub, fetch)
	}
	switch _, err := os.Stat(filepath.Join(dir, "config.json")); {
	case errors.Is(err, fs.ErrNotExist):
		return "", Usagef("%s: its snapshot %s has no config.json; %s", id, dir, fetch)
	case err != nil:
		return "", unreadable(id, err)
	}
	return dir, nil
}

// unreadable returns the UsageError for a model or data set (id) whose entry in the Hugging Face cache cannot be read.
func unreadable(id string, err error) error {
	return Usagef("%s: its place in the Hugging Face cache cannot be read: %w", id, err)
}

// cached returns the cached snapshot of refs/main for a repository, "" if there is none. kind is "models" or
// "datasets". hub is the cache's folder.
func cached(kind, id string) (dir, hub string, err error) {
	if hub, err = hubCache(); err != nil {
		return "", "", err
	}
	repo := filepath.Join(hub, kind+"--"+strings.ReplaceAll(id, "/", "--"))
	ref, err := files.Read(filepath.Join(repo, "refs", "main"), maxRef)
	if errors.Is(err, fs.ErrNotExist) {
		return "", hub, nil
	}
	if err != nil {
		return "", hub, unreadable(id, err)
	}
	return filepath.Join(repo, "snapshots", filepath.Base(strings.TrimSpace(string(ref)))), hub, nil
}

// DatasetDir returns the snapshot of a Hub data set in the local Hugging Face cache; "" if id cannot be a Hub name.
// It downloads nothing. If there is no snapshot, the error has the command that fetches the data set.
func DatasetDir(id string) (string, error) {
	if !hubID.MatchString(id) || data.NamesFile(id) {
		return "", nil
	}
	dir, hub, err := cached("datasets", id)
	if err != nil {
		return "", err
	}
	st, err := os.Stat(dir)
	switch {
	case dir == "" || errors.Is(err, fs.ErrNotExist) || err == nil && !st.IsDir():
		return "", fmt.Errorf("no data set of that name is in the Hugging Face cache %s; if it is one of the Hub, fetch it with: hf download --repo-type dataset %s", hub, id)
	case err != nil:
		return "", unreadable(id, err)
	}
	return dir, nil
}

// hubCache returns the folder where huggingface_hub keeps its repositories.
func hubCache() (string, error) {
	for _, v := range []string{"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"} {
		if dir := os.Getenv(v); dir != "" {
			return expand(dir)
		}
	}
	if dir := os.Getenv("HF_HOME"); dir != "" {
		home, err := expand(dir)
		return filepath.Join(home, "hub"), err
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface", "hub"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", Usagef("the Hugging Face cache is not found: %v; set HF_HOME", err)
	}
	return filepath.Join(home, ".cache", "huggingface", "hub"), nil
}

// expand replaces ${NAME} in a path by the environment variable NAME, and a leading "~/" by the home folder.
func expand(path string) (string, error) {
	out, err := data.ExpandVars(path)
	if err != nil {
		return "", Usagef("%w", err)
	}
	if rest, ok := strings.CutPrefix(out, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", Usagef("%s: %w", path, err)
		}
		return filepath.Join(home, rest), nil
	}
	return out, nil
}
