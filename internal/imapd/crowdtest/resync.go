// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"fmt"
	"slices"
	"strings"
)

// memory is what a client keeps of a folder while it is away.
type memory struct {
	folder   string
	validity uint32
	modseq   uint64
	known    []message
}

// remember keeps what is known now, up to where everything was told.
func (s *session) remember() error {
	if err := s.must("NOOP"); err != nil {
		return err
	}
	upTo := s.highest
	if err := s.learn(); err != nil {
		return err
	}
	m := memory{s.folder, s.validity, upTo, slices.Clone(s.known)}
	if len(s.memories) < 4 {
		s.memories = append(s.memories, m)
	} else {
		s.memories[s.rnd.IntN(len(s.memories))] = m
	}
	return nil
}

// resync is what a SELECT with QRESYNC tells, which is taken in at its end.
type resync struct {
	exists   int
	vanished []uint32
	rows     [][]value
}

func (r *resync) take(v []value) bool {
	switch {
	case v[1].text == "EXISTS":
		r.exists = int(number(v[0].text))
	case v[0].text == "VANISHED":
		r.vanished = append(r.vanished, set(v[2].text)...)
	case v[1].text == "FETCH":
		r.rows = append(r.rows, v)
	default:
		return false
	}
	return true
}

// resume connects and goes on from a memory. What it then knows must be what a
// FETCH of everything tells.
func (s *session) resume(m memory) error {
	if err := s.login(); err != nil {
		return err
	}
	s.reset(m.folder)
	s.resync = &resync{}
	known := ""
	if s.rnd.IntN(2) == 0 && len(m.known) > 0 {
		known = " " + uidSet(m.known)
	}
	if err := s.must(fmt.Sprintf("SELECT %s (QRESYNC (%d %d%s))", m.folder, m.validity, m.modseq, known)); err != nil {
		return err
	}
	r := s.resync
	s.resync = nil
	if s.validity != m.validity {
		return contradiction("UIDVALIDITY %d was %d", s.validity, m.validity)
	}
	for _, old := range m.known {
		if !slices.Contains(r.vanished, old.uid) {
			old.after = 0
			s.known, s.top = append(s.known, old), old.uid
		}
	}
	if r.exists < len(s.known) {
		return contradiction("of %d messages %d vanished, and %d are there", len(m.known), len(r.vanished), r.exists)
	}
	if err := s.exists(r.exists); err != nil {
		return err
	}
	if err := s.chosen(); err != nil {
		return err
	}
	for _, v := range r.rows {
		if err := s.fetched(int(number(v[0].text)), v[2].list); err != nil {
			return fmt.Errorf("FETCH of message %s while selecting: %w", v[0].text, err)
		}
	}
	if len(s.known) == 0 {
		return nil
	}
	s.strict = true
	defer func() { s.strict = false }()
	return s.must("FETCH 1:* (UID FLAGS MODSEQ)")
}

// uidSet names messages by ranges of UIDs.
func uidSet(known []message) string {
	var all []string
	for i := 0; i < len(known); {
		from := i
		for i++; i < len(known) && known[i].uid == known[i-1].uid+1; i++ {
		}
		all = append(all, fmt.Sprintf("%d:%d", known[from].uid, known[i-1].uid))
	}
	return strings.Join(all, ",")
}
