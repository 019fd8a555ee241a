package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// index is where Python packages come from: a package index on the network, and a cache folder in front of it.
type index struct {
	url     string // address of the index, as for pip's --index-url
	cache   string // the cache folder; its files are named SHA256-NAME
	offline bool   // fetch nothing from the network
}

// pypi is the default index. The environment variable PIP_INDEX_URL names another.
const pypi = "https://pypi.org/simple"

// fetchTimeout bounds the time of one request. The largest package has 16 MB.
const fetchTimeout = 5 * time.Minute

// maxPackageBytes is the largest size of a response that is accepted.
const maxPackageBytes = 256 << 20

// newIndex returns the index that the environment names, or pypi, with a cache in the user's cache folder.
func newIndex(offline bool) (index, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return index{}, err
	}
	x := index{url: os.Getenv("PIP_INDEX_URL"), cache: filepath.Join(cache, "mt", "packages"), offline: offline}
	if x.url == "" {
		x.url = pypi
	}
	return x, nil
}

// packageLine matches a line of packages.txt, which has the format of sha256sum: a SHA-256 and a file name.
var packageLine = regexp.MustCompile(`^([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._+-]*)$`)

// fetch returns the files in list, the text of packages.txt. Each comes from the cache or from the index and has the
// SHA-256 in its line.
func (x index) fetch(ctx context.Context, list string) (out []file, err error) {
	at := 0
	for line := range strings.Lines(list) {
		at++
		part := packageLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if part == nil {
			return nil, fmt.Errorf("packages.txt:%d: %q: want a SHA-256, two spaces and a file's name", at, strings.TrimRight(line, "\n"))
		}
		data, err := x.one(ctx, part[2], part[1])
		if err != nil {
			return nil, fmt.Errorf("packages.txt:%d: %w", at, err)
		}
		out = append(out, file{name: part[2], data: data})
	}
	return out, nil
}

// one returns the file name with the SHA-256 sum. If the cache does not have it, one fetches it from the index and adds
// it to the cache.
func (x index) one(ctx context.Context, name, sum string) ([]byte, error) {
	kept := filepath.Join(x.cache, sum+"-"+name)
	if data, err := os.ReadFile(kept); err == nil && fmt.Sprintf("%x", sha256.Sum256(data)) == sum {
		return data, nil
	}
	if x.offline {
		return nil, fmt.Errorf("%s is not in %s, and -offline fetches nothing: run once without -offline, or put the file there as %s",
			name, x.cache, filepath.Base(kept))
	}
	from, err := x.find(ctx, name)
	if err != nil {
		return nil, err
	}
	data, err := get(ctx, from, "")
	if err != nil {
		return nil, err
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(data)); got != sum {
		return nil, fmt.Errorf("%s has SHA-256 %s and packages.txt says %s: another file has been served in its place", from, got, sum)
	}
	return data, keep(kept, data)
}

// find returns the address of the file name, as the page of the file's project in the index gives it
// (packaging.python.org/specifications/simple-repository-api).
func (x index) find(ctx context.Context, name string) (string, error) {
	page := strings.TrimRight(x.url, "/") + "/" + project(name) + "/"
	text, err := get(ctx, page, "application/vnd.pypi.simple.v1+json")
	if err != nil {
		return "", err
	}
	var listed struct {
		Files []struct {
			Name string `json:"filename"`
			URL  string `json:"url"`
		} `json:"files"`
	}
	if err := json.Unmarshal(text, &listed); err != nil {
		return "", fmt.Errorf("%s: %w (the index must serve JSON; PIP_INDEX_URL names another)", page, err)
	}
	for _, f := range listed.Files {
		if f.Name == name {
			base, err := url.Parse(page)
			if err != nil {
				return "", err
			}
			at, err := base.Parse(f.URL)
			if err != nil {
				return "", fmt.Errorf("%s: %s: %w", page, name, err)
			}
			return at.String(), nil
		}
	}
	return "", fmt.Errorf("%s has no %s among %d files", page, name, len(listed.Files))
}

var separators = regexp.MustCompile(`[-_.]+`)

// project returns the normalised project name of a file name or of a project name.
func project(name string) string {
	if strings.HasSuffix(name, ".whl") || strings.HasSuffix(name, ".tar.gz") {
		name, _, _ = strings.Cut(name, "-")
	}
	return strings.ToLower(separators.ReplaceAllString(name, "-"))
}

// get requests address and returns the body of the response. accept is the media type to ask for; "": any.
func get(ctx context.Context, address, accept string) (data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if accept != "" {
		q.Header.Set("Accept", accept)
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, fmt.Errorf("%w (with every package in the cache, -offline needs no network)", err)
	}
	defer func() { err = errors.Join(err, answer.Body.Close()) }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, answer.Status)
	}
	data, err = io.ReadAll(io.LimitReader(answer.Body, maxPackageBytes))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return data, nil
}

// keep writes data to the file name in the cache. It renames the complete file to that name, so the cache never has a
// partial file.
func keep(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	part, err := os.CreateTemp(filepath.Dir(name), "part-*")
	if err != nil {
		return err
	}
	_, err = part.Write(data)
	if err = errors.Join(err, part.Close()); err == nil {
		err = os.Rename(part.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}
