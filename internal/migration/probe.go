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
	// probeTime bounds trying a source.
	probeTime = 45 * time.Second
	// maxProbes is how many sources are tried at once.
	maxProbes = 8
	// MaxOffered is how many folders Probe names.
	MaxOffered = maxChosen
)

// Offered is a folder that a source has.
type Offered struct {
	Name     string // there
	Messages int64
	Bytes    int64 // -1: the source does not tell
	// Copied tells whether it is copied when no folders are chosen: not if it
	// only shows mail of others.
	Copied bool
}

// Probe connects to a source, signs in and lists the folders that can be
// copied, the first MaxOffered; nothing is kept. All that is wrong is told as
// a fault.Invalid, under the fields of the API. An account tries one source at a
// time: else it is a fault.Limited.
func (m *Migrations) Probe(ctx context.Context, account db.ID, from Source) ([]Offered, error) {
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
	whole, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	offered, err := m.probe(whole, &from)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, blame(err)
	}
	return offered, nil
}

func (m *Migrations) beginProbe(account db.ID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.probing[account] || len(m.probing) >= maxProbes {
		return fault.New(fault.Limited, "probing", "A source is being tried just now. Wait until that has ended.")
	}
	m.probing[account] = true
	return nil
}

func (m *Migrations) endProbe(account db.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.probing, account)
}

func (m *Migrations) probe(ctx context.Context, from *Source) ([]Offered, error) {
	src, err := m.connect(ctx, from)
	if err != nil {
		return nil, err
	}
	defer src.leave()
	all, spaces, _, err := src.folders()
	if err != nil {
		return nil, err
	}
	arrange(all)
	all = slices.CompactFunc(all, func(a, b listed) bool { return a.name == b.name })
	c := newChart(all, spaces, nil)
	var tasks []*task
	var offered []Offered
	for i := range all {
		l := &all[i]
		if len(offered) == MaxOffered || !c.wanted(l, []string{l.name}) {
			continue
		}
		tasks = append(tasks, &task{name: l.name, bytes: -1})
		offered = append(offered, Offered{Name: l.name, Copied: c.wanted(l, nil)})
	}
	if err := src.measure(tasks); err != nil {
		return nil, err
	}
	for i, t := range tasks {
		offered[i].Messages, offered[i].Bytes = t.messages, t.bytes
	}
	return offered, nil
}

// blame tells why a source can't be copied from, under the field that is to
// blame.
func blame(err error) error {
	field, words := "source.host", ""
	var last final
	var at about
	switch {
	case errors.As(err, &at):
		field, words = at.field, at.words
	case errors.As(err, &last):
		words = last.words
	default:
		words = trouble(err)
	}
	var bad fault.Fields
	bad.Add(field, "source_failed", "%s", words)
	return bad.Err()
}
