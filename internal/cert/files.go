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

// checkInterval is how often files are looked at for changes, when they are in use.
const checkInterval = 10 * time.Second

// FilePair is a certificate chain and its key, as paths of PEM files.
type FilePair struct {
	CertFile, KeyFile string
}

// FileOptions says what NewFiles needs.
type FileOptions struct {
	Pairs []FilePair       // the first one serves clients that ask for a name of none
	Log   *slog.Logger     // told of changed files that cannot be used
	Now   func() time.Time // the clock; time.Now if nil
}

// NewFiles returns a source of certificates that somebody else puts into files.
// Files that change are read again within 10 seconds of use; while they do not
// fit together, what was read before stays in use.
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

// loadedPair is a pair in use, with the state its files had when last tried.
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

// load reads a pair if its files changed since they were last tried.
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
