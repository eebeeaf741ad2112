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
	// probeTimeout is the limit for probing a source.
	probeTimeout = 45 * time.Second
	// maxProbes is the maximum number of sources probed at once.
	maxProbes = 8
	// MaxSourceFolders is the maximum number of folders that Probe returns.
	MaxSourceFolders = maxFolders
)

// SourceFolder is a folder at a source.
type SourceFolder struct {
	Name     string // at the source
	Messages int64
	Bytes    int64 // -1: the source doesn't say
	// CopiedByDefault reports whether it is copied when no folders are chosen: not if it is another
	// user's folder or a view of other folders.
	CopiedByDefault bool
}

// Probe connects to a source, signs in and returns the folders that can be copied, at most
// MaxSourceFolders. It stores nothing. Errors of the source are a fault.Invalid by API field. An
// account may probe one source at a time; otherwise it returns a fault.RateLimited.
func (m *Service) Probe(ctx context.Context, account db.ID, from Source) ([]SourceFolder, error) {
	if err := from.Check().Err(); err != nil {
		return nil, err
	}
	if db.IsReadOnly(ctx) { // only validation is requested
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
	var tasks []*folderTask
	var offered []SourceFolder
	for i := range all {
		l := &all[i]
		if len(offered) == MaxSourceFolders || !c.includes(l, []string{l.name}) {
			continue
		}
		tasks = append(tasks, &folderTask{name: l.name, bytes: -1})
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

// sourceError returns why a source can't be copied, under the API field at fault.
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
