// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"fmt"
	"slices"
	"strings"
)

// savedState is what a client remembers of a folder while it is disconnected.
type savedState struct {
	folder      string
	uidValidity uint32
	modseq      uint64
	messages    []message
}

// saveState returns the session's state, up to the mod-sequence up to which it knows all changes.
func (s *session) saveState() error {
	if err := s.mustRun("NOOP"); err != nil {
		return err
	}
	upTo := s.syncedModSeq
	if err := s.fetchUnknown(); err != nil {
		return err
	}
	m := savedState{s.folder, s.uidValidity, upTo, slices.Clone(s.messages)}
	if len(s.savedStates) < 4 {
		s.savedStates = append(s.savedStates, m)
	} else {
		s.savedStates[s.rnd.IntN(len(s.savedStates))] = m
	}
	return nil
}

// resyncResponse is the response to a SELECT with QRESYNC, which is applied at its end.
type resyncResponse struct {
	exists   int
	vanished []uint32
	rows     [][]value
}

func (r *resyncResponse) add(v []value) bool {
	switch {
	case v[1].text == "EXISTS":
		r.exists = int(parseNumber(v[0].text))
	case v[0].text == "VANISHED":
		r.vanished = append(r.vanished, parseUIDSet(v[2].text)...)
	case v[1].text == "FETCH":
		r.rows = append(r.rows, v)
	default:
		return false
	}
	return true
}

// resume connects and resynchronizes from a saved state. The result must equal that of fetching
// everything.
func (s *session) resume(m savedState) error {
	if err := s.login(); err != nil {
		return err
	}
	s.reset(m.folder)
	s.pendingResync = &resyncResponse{}
	known := ""
	if s.rnd.IntN(2) == 0 && len(m.messages) > 0 {
		known = " " + formatUIDSet(m.messages)
	}
	if err := s.mustRun(fmt.Sprintf("SELECT %s (QRESYNC (%d %d%s))", m.folder, m.uidValidity, m.modseq, known)); err != nil {
		return err
	}
	r := s.pendingResync
	s.pendingResync = nil
	if s.uidValidity != m.uidValidity {
		return contradictionError("UIDVALIDITY %d was %d", s.uidValidity, m.uidValidity)
	}
	for _, old := range m.messages {
		if !slices.Contains(r.vanished, old.uid) {
			old.afterUID = 0
			s.messages, s.maxUID = append(s.messages, old), old.uid
		}
	}
	if r.exists < len(s.messages) {
		return contradictionError("of %d messages %d vanished, and %d are there", len(m.messages), len(r.vanished), r.exists)
	}
	if err := s.handleExists(r.exists); err != nil {
		return err
	}
	if err := s.checkSelect(); err != nil {
		return err
	}
	for _, v := range r.rows {
		if err := s.handleFetch(int(parseNumber(v[0].text)), v[2].list); err != nil {
			return fmt.Errorf("FETCH of message %s while selecting: %w", v[0].text, err)
		}
	}
	if len(s.messages) == 0 {
		return nil
	}
	s.expectNoNews = true
	defer func() { s.expectNoNews = false }()
	return s.mustRun("FETCH 1:* (UID FLAGS MODSEQ)")
}

// formatUIDSet returns the UIDs of messages as ranges.
func formatUIDSet(known []message) string {
	var all []string
	for i := 0; i < len(known); {
		from := i
		for i++; i < len(known) && known[i].uid == known[i-1].uid+1; i++ {
		}
		all = append(all, fmt.Sprintf("%d:%d", known[from].uid, known[i-1].uid))
	}
	return strings.Join(all, ",")
}
