// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// kind is which extensions a session has switched on.
type kind int

const (
	plain kind = iota
	condStore
	qresync
)

func (k kind) String() string { return [...]string{"plain", "CONDSTORE", "QRESYNC"}[k] }

// message is what a session knows of one.
type message struct {
	uid    uint32
	flags  string // sorted, without \Recent
	modseq uint64 // 0 if it was not told
	after  uint32 // the highest UID that was told before this message came
	unsure bool   // flags are as before the STORE that gave it its mod-sequence
}

// same compares as far as both know.
func (m message) same(o message) bool {
	return m.uid == o.uid && m.flags == o.flags && (m.modseq == o.modseq || m.modseq == 0 || o.modseq == 0)
}

func (m message) String() string {
	return fmt.Sprintf("UID %d [%s] at %d", m.uid, m.flags, m.modseq)
}

// session is one client.
type session struct {
	conn
	crowd  *Crowd
	ledger *ledger
	id     int
	kind   kind
	rnd    *rand.Rand
	serial int // of what it has appended

	folder    string
	selected  int       // when, by the ledger's clock
	validity  uint32    // UIDVALIDITY
	first     uint32    // UIDNEXT when it was selected
	known     []message // by sequence number; UID 0 if nothing was told yet
	initially int       // how many were there when it was selected
	top       uint32    // the highest UID that was told
	code      uint64    // HIGHESTMODSEQ as it was told last
	highest   uint64    // up to where everything was told
	told      uint64    // the highest mod-sequence of all
	vanished  []uint32  // VANISHED (EARLIER)
	found     []uint32  // SEARCH
	memories  []memory

	command string            // the one whose answers come
	status  string            // its tagged answer
	pairs   int               // how many messages COPYUID names
	rows    map[uint32]uint64 // the mod-sequences of its first FETCH for each UID
	strict  bool              // it must tell what is known already
	resync  *resync           // of SELECT with QRESYNC
}

// ownKeywords are one for each session; a crowd has no more.
var ownKeywords = func() (all [64]string) {
	for id := range all {
		all[id] = fmt.Sprintf("own%d", id)
	}
	return all
}()

// begin connects, to one node after the other, and opens a folder.
func (s *session) begin() error { return s.open(folders[s.id%len(folders)]) }

func (s *session) open(folder string) error {
	if err := s.login(); err != nil {
		return err
	}
	return s.choose(folder)
}

func (s *session) login() error {
	s.close()
	dial := s.crowd.Dial[(s.id+1+s.serial)%len(s.crowd.Dial)]
	s.serial++
	nc, err := dial()
	if err != nil {
		return err
	}
	s.nc, s.br = nc, bufio.NewReaderSize(nc, 16<<10)
	if _, err := s.answer(); err != nil { // the greeting
		return err
	}
	s.folder, s.known = "", nil
	if err := s.must("LOGIN " + s.crowd.User + " " + s.crowd.Password); err != nil {
		return err
	}
	switch s.kind {
	case condStore:
		return s.must("ENABLE CONDSTORE")
	case qresync:
		return s.must("ENABLE QRESYNC")
	}
	return nil
}

// choose selects a folder and learns what is in it.
func (s *session) choose(folder string) error {
	s.reset(folder)
	if err := s.must("SELECT " + folder); err != nil {
		return err
	}
	if err := s.chosen(); err != nil {
		return err
	}
	return s.learn()
}

// reset forgets the folder that was open.
func (s *session) reset(folder string) {
	s.folder, s.known, s.initially, s.first, s.top, s.told, s.code, s.highest = folder, nil, 0, 0, 0, 0, 0, 0
	_ = s.ledger.with(folder, func(b *book, now int) error {
		s.selected = now
		return nil
	})
}

// chosen checks what SELECT told.
func (s *session) chosen() error {
	s.initially = len(s.known)
	return s.ledger.with(s.folder, func(b *book, _ int) error {
		if b.validity == 0 {
			b.validity = s.validity
		}
		if b.validity != s.validity {
			return contradiction("UIDVALIDITY %d was %d", s.validity, b.validity)
		}
		if s.id < 0 && s.code < b.highest { // all is quiet
			return contradiction("HIGHESTMODSEQ is %d, and was %d for others", s.code, b.highest)
		}
		b.highest = max(b.highest, s.code)
		return nil
	})
}

// learn asks for what is not known yet.
func (s *session) learn() error {
	for {
		unknown := slices.IndexFunc(s.known, func(m message) bool { return m.uid == 0 })
		if unknown < 0 {
			return nil
		}
		items := "(UID FLAGS)"
		if s.kind != plain {
			items = "(UID FLAGS MODSEQ)"
		}
		if err := s.must(fmt.Sprintf("FETCH %d:* %s", unknown+1, items)); err != nil {
			return err
		}
		if unknown < len(s.known) && s.known[unknown].uid == 0 {
			return contradiction("nothing is told of message %d of %d", unknown+1, len(s.known))
		}
	}
}

// must does a command that is to succeed.
func (s *session) must(command string) error {
	if err := s.do(command); err != nil {
		return err
	}
	if !strings.HasPrefix(s.status, "OK") {
		return fmt.Errorf("%.80s: %s", command, s.status)
	}
	return nil
}

// do does a command, whose answer is then in status.
func (s *session) do(command string) error {
	s.tags++
	tag := fmt.Sprintf("a%d", s.tags)
	if err := s.send(tag + " " + command + "\r\n"); err != nil {
		return err
	}
	return s.finish(tag, command)
}

// pipeline does several commands without waiting; all may tell of expunges.
func (s *session) pipeline(commands ...string) error {
	var text strings.Builder
	for i, c := range commands {
		fmt.Fprintf(&text, "a%d %s\r\n", s.tags+1+i, c)
	}
	if err := s.send(text.String()); err != nil {
		return err
	}
	for _, c := range commands {
		s.tags++
		if err := s.finish(fmt.Sprintf("a%d", s.tags), c); err != nil {
			return err
		}
		if strings.HasPrefix(s.status, "BAD") {
			return fmt.Errorf("%.80s: %s", c, s.status)
		}
	}
	return nil
}

// finish takes in the answers to a command, up to the tagged one.
func (s *session) finish(tag, command string) error {
	s.command, s.found, s.vanished, s.rows = command, nil, nil, map[uint32]uint64{}
	for {
		a, err := s.answer()
		if err != nil {
			return fmt.Errorf("%.80s: %w", command, err)
		}
		s.ledger.answers.Add(1)
		if status, tagged := strings.CutPrefix(a, tag+" "); tagged {
			s.status = status
			if strings.HasPrefix(status, "BAD") {
				return fmt.Errorf("%.80s: %s", command, status)
			}
			if err := s.codes(status); err != nil {
				return fmt.Errorf("%.80s: %q: %w", command, status, err)
			}
			if !s.numbered() {
				s.highest = max(s.highest, s.told)
			}
			return nil
		}
		if strings.HasPrefix(a, "+ ") {
			if err := s.send("DONE\r\n"); err != nil {
				return err
			}
			continue
		}
		text, untagged := strings.CutPrefix(a, "* ")
		if !untagged {
			return fmt.Errorf("%.80s: an answer to nobody: %q", command, a)
		}
		if err := s.take(text); err != nil {
			return fmt.Errorf("%.80s: %.200q: %w", command, a, err)
		}
	}
}

// numbered reports whether the command forbids EXPUNGE in its answer.
func (s *session) numbered() bool {
	verb, _, _ := strings.Cut(s.command, " ")
	return verb == "FETCH" || verb == "STORE" || verb == "SEARCH"
}
