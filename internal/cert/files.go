// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// checkInterval is how often files in use are checked for changes.
const checkInterval = 10 * time.Second

// FilePair holds the paths of a certificate chain and its key (PEM).
type FilePair struct {
	CertFile, KeyFile string
}

// FileOptions configure NewFiles.
type FileOptions struct {
	Pairs []FilePair       // the first one is for clients that ask for any other name
	Log   *slog.Logger     // logs changed files that can't be used
	Now   func() time.Time // the clock; time.Now if nil
}

// NewFiles returns a source of certificates from files that others maintain. It rereads changed
// files within 10 seconds of use. While they don't match, the previous certificate stays in use.
func NewFiles(g FileOptions) (*Source, error) {
	if len(g.Pairs) == 0 {
		return nil, errors.New("certificate files: none given")
	}
	if g.Now == nil {
		g.Now = time.Now
	}
	f := &fileSource{FileOptions: g, loaded: make([]loadedPair, len(g.Pairs)), checkedAt: g.Now()}
	for i := range f.loaded {
		if err := f.load(i); err != nil {
			return nil, err
		}
	}
	return &Source{getCertificate: f.getCertificate}, nil
}

type fileSource struct {
	FileOptions

	mu        sync.Mutex
	checkedAt time.Time
	loaded    []loadedPair
}

// loadedPair is a pair in use, with the state of its files at the last attempt to load them.
type loadedPair struct {
	cert  *tls.Certificate
	state [2]fileState
}

type fileState struct {
	modTime time.Time
	size    int64
}

func (f *fileSource) getCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.Now(); now.Sub(f.checkedAt) >= checkInterval {
		f.checkedAt = now
		for i, pair := range f.Pairs {
			if err := f.load(i); err != nil {
				f.Log.Error("changed certificate cannot be used, the one before stays", "file", pair.CertFile, "err", err)
			}
		}
	}
	if name := serverName(hello); name != "" {
		for _, l := range f.loaded {
			if l.cert.Leaf.VerifyHostname(name) == nil {
				return l.cert, nil
			}
		}
	}
	return f.loaded[0].cert, nil
}

// load reads a pair if its files have changed since the last attempt.
func (f *fileSource) load(i int) error {
	pair := f.Pairs[i]
	var state [2]fileState
	for n, path := range []string{pair.CertFile, pair.KeyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("certificate files: %w", err)
		}
		state[n] = fileState{info.ModTime(), info.Size()}
	}
	if state == f.loaded[i].state {
		return nil
	}
	f.loaded[i].state = state
	c, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		return fmt.Errorf("certificate files %s and %s: %w", pair.CertFile, pair.KeyFile, err)
	}
	f.loaded[i].cert = &c
	return nil
}
