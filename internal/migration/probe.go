// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

const (
	// probeTimeout bounds trying a source.
	probeTimeout = 45 * time.Second
	// maxProbes is how many sources are tried at once.
	maxProbes = 8
	// MaxSourceFolders is how many folders Probe names.
	MaxSourceFolders = maxFolders
)

// SourceFolder is a folder that a source has.
type SourceFolder struct {
	Name     string // there
	Messages int64
	Bytes    int64 // -1: the source does not tell
	// CopiedByDefault tells whether it is copied when no folders are chosen: not if it
	// only shows mail of others.
	CopiedByDefault bool
}

// Probe connects to a source, signs in and lists the folders that can be
// copied, the first MaxSourceFolders; nothing is kept. All that is wrong is told as
// a fault.Invalid, under the fields of the API. An account tries one source at a
// time: else it is a fault.RateLimited.
func (m *Service) Probe(ctx context.Context, account db.ID, from Source) ([]SourceFolder, error) {
	if err := from.Check().Err(); err != nil {
		return nil, err
	}
	if db.IsReadOnly(ctx) { // only what is wrong with it is asked for
		return nil, nil
	}
	if err := m.beginProbe(account); err != nil {
		return nil, err
	}
	defer m.endProbe(account)
	whole, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	offered, err := m.probe(whole, &from)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, sourceError(err)
	}
	return offered, nil
}

func (m *Service) beginProbe(account db.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.probing[account] || len(m.probing) >= maxProbes {
		return fault.New(fault.RateLimited, "probing", "A source is being tried just now. Wait until that has ended.")
	}
	m.probing[account] = true
	return nil
}

func (m *Service) endProbe(account db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.probing, account)
}

func (m *Service) probe(ctx context.Context, from *Source) ([]SourceFolder, error) {
	src, err := m.connect(ctx, from)
	if err != nil {
		return nil, err
	}
	defer src.logout()
	all, spaces, _, err := src.listFolders()
	if err != nil {
		return nil, err
	}
	sortFolders(all)
	all = slices.CompactFunc(all, func(a, b listedFolder) bool { return a.name == b.name })
	c := newFolderMapper(all, spaces, nil)
	var tasks []*task
	var offered []SourceFolder
	for i := range all {
		l := &all[i]
		if len(offered) == MaxSourceFolders || !c.includes(l, []string{l.name}) {
			continue
		}
		tasks = append(tasks, &task{name: l.name, bytes: -1})
		offered = append(offered, SourceFolder{Name: l.name, CopiedByDefault: c.includes(l, nil)})
	}
	if err := src.fetchStatus(tasks); err != nil {
		return nil, err
	}
	for i, t := range tasks {
		offered[i].Messages, offered[i].Bytes = t.messages, t.bytes
	}
	return offered, nil
}

// sourceError tells why a source can't be copied from, under the field that is to
// blame.
func sourceError(err error) error {
	field, words := "source.host", ""
	var last permanentError
	var at fieldError
	switch {
	case errors.As(err, &at):
		field, words = at.field, at.text
	case errors.As(err, &last):
		words = last.text
	default:
		words = retryReason(err)
	}
	var bad fault.FieldErrors
	bad.Add(field, "source_failed", "%s", words)
	return bad.Err()
}
