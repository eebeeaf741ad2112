// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"slices"
	"strings"
)

// take believes an untagged answer, or finds what is wrong with it.
func (s *session) take(text string) error {
	v := values(text)
	if len(v) < 2 {
		return nil
	}
	if s.resync != nil && s.resync.take(v) {
		return nil
	}
	switch {
	case v[1].text == "EXISTS":
		return s.exists(int(number(v[0].text)))
	case v[1].text == "EXPUNGE":
		return s.expunge(int(number(v[0].text)))
	case v[0].text == "VANISHED" && len(v) == 3:
		s.vanished = append(s.vanished, set(v[2].text)...)
		return nil
	case v[0].text == "VANISHED":
		return s.vanish(set(v[1].text))
	case v[1].text == "FETCH":
		return s.fetched(int(number(v[0].text)), v[2].list)
	case v[0].text == "SEARCH":
		for _, n := range v[1:] {
			s.found = append(s.found, uint32(number(n.text)))
		}
		return nil
	case v[0].text == "OK":
		return s.codes(text)
	case v[0].text == "BYE":
		return contradiction("the server ends the session")
	}
	return nil
}

func (s *session) exists(n int) error {
	if n < len(s.known) {
		return contradiction("there were %d", len(s.known))
	}
	for len(s.known) < n {
		s.known = append(s.known, message{after: s.top})
	}
	return nil
}

func (s *session) expunge(n int) error {
	switch {
	case s.kind == qresync:
		return contradiction("EXPUNGE after ENABLE QRESYNC")
	case s.numbered():
		return contradiction("EXPUNGE in the answer to FETCH, STORE or SEARCH")
	case n < 1 || n > len(s.known):
		return contradiction("there are %d", len(s.known))
	}
	return s.remove(n)
}

func (s *session) vanish(uids []uint32) error {
	if s.kind != qresync || s.numbered() {
		return contradiction("VANISHED where it may not be")
	}
	for _, uid := range uids {
		at := slices.IndexFunc(s.known, func(m message) bool { return m.uid == uid })
		if at < 0 {
			at = s.untold(uid)
		}
		if at < 0 {
			return contradiction("UID %d is not there", uid)
		}
		if err := s.remove(at + 1); err != nil {
			return err
		}
	}
	return nil
}

// untold returns which of the new messages has a UID that was not told yet: the
// last that can, between those whose UIDs were; -1 if none can.
func (s *session) untold(uid uint32) int {
	at := -1
	for i, m := range s.known {
		switch {
		case m.uid > uid:
			return at
		case m.uid != 0:
			at = -1
		case m.after < uid && (i < s.initially) == (uid < s.first):
			at = i
		}
	}
	return at
}

// remove takes out what is gone for good.
func (s *session) remove(n int) error {
	uid := s.known[n-1].uid
	s.known = slices.Delete(s.known, n-1, n)
	if n <= s.initially {
		s.initially--
	}
	return s.ledger.with(s.folder, func(b *book, now int) error {
		if b.gone[uid] == 0 && uid != 0 {
			b.gone[uid] = now
		}
		return nil
	})
}

// fetched takes the data of one message.
func (s *session) fetched(n int, data []value) error {
	if n < 1 || n > len(s.known) {
		return contradiction("there are %d", len(s.known))
	}
	m := s.known[n-1]
	was := m
	subject, recent, flagged := "", false, false
	for i := 0; i+1 < len(data); i += 2 {
		switch name := data[i].text; {
		case name == "UID":
			m.uid = uint32(number(data[i+1].text))
		case name == "MODSEQ":
			m.modseq = number(data[i+1].list[0].text)
		case name == "FLAGS":
			var flags []string
			for _, f := range data[i+1].list {
				recent = recent || f.text == `\Recent`
				if f.text != `\Recent` {
					flags = append(flags, f.text)
				}
			}
			slices.Sort(flags)
			m.flags, flagged, m.unsure = strings.Join(flags, " "), true, false
		case strings.HasPrefix(name, "BODY["):
			_, subject, _ = strings.Cut(data[i+1].text, "Subject: ")
			subject, _, _ = strings.Cut(subject, "\r\n")
		}
	}
	switch {
	case was.uid == 0 && !flagged: // learn asks for all of it
		return s.place(n, was, m)
	case was.modseq > m.modseq:
		return contradiction("mod-sequence %d was %d", m.modseq, was.modseq)
	case !flagged:
		m.unsure = m.modseq != was.modseq
	case s.kind != plain && was.uid != 0 && !was.unsure && was.flags != m.flags && was.modseq == m.modseq:
		return contradiction("other flags than %v, but the same mod-sequence", was)
	}
	_, again := s.rows[m.uid]
	if s.strict && !again && was.uid != 0 && (was.flags != m.flags || was.modseq != m.modseq) {
		return contradiction("QRESYNC did not tell of it: it was known as %v", was)
	}
	if !again {
		s.rows[m.uid] = m.modseq
	}
	if err := s.place(n, was, m); err != nil {
		return err
	}
	s.known[n-1] = m
	s.top, s.told = max(s.top, m.uid), max(s.told, m.modseq)
	return s.ledger.with(s.folder, func(b *book, _ int) error {
		if subject != "" {
			if err := b.subject(m.uid, subject); err != nil {
				return err
			}
		}
		if at := b.gone[m.uid]; was.uid == 0 && at != 0 && at < s.selected {
			return contradiction("UID %d was gone before the folder was selected", m.uid)
		}
		if recent && s.ledger.oneRecent {
			if b.recent[m.uid] == 0 {
				b.recent[m.uid] = s.selected
			}
			if b.recent[m.uid] != s.selected {
				return contradiction("UID %d is recent to two sessions", m.uid)
			}
		}
		if m.unsure {
			return nil
		}
		return b.state(m)
	})
}

// place checks that a message has the UID that belongs to its number.
func (s *session) place(n int, was, m message) error {
	if m.uid == 0 || was.uid != 0 && was.uid != m.uid {
		return contradiction("the message was %v", was)
	}
	if was.uid != 0 {
		return nil
	}
	if n > 1 && s.known[n-2].uid >= m.uid || n < len(s.known) && s.known[n].uid != 0 && s.known[n].uid <= m.uid {
		return contradiction("UID %d stands among %v", m.uid, s.known)
	}
	if n > s.initially && (m.uid < s.first || m.uid <= m.after) {
		return contradiction("a new message has UID %d after UIDNEXT %d and UID %d", m.uid, s.first, m.after)
	}
	if n <= s.initially && m.uid >= s.first {
		return contradiction("UID %d was there when UIDNEXT was %d", m.uid, s.first)
	}
	return nil
}

// codes takes the response codes of a status.
func (s *session) codes(text string) error {
	if code, ok := codeOf(text, "UIDVALIDITY"); ok {
		s.validity = uint32(number(code))
	}
	if code, ok := codeOf(text, "UIDNEXT"); ok {
		s.first = uint32(number(code))
	}
	if code, ok := codeOf(text, "HIGHESTMODSEQ"); ok {
		n := number(code)
		if n < s.code {
			return contradiction("HIGHESTMODSEQ was %d", s.code)
		}
		s.code, s.highest = n, max(s.highest, n)
	}
	if code, ok := codeOf(text, "COPYUID"); ok {
		return s.copied(strings.Fields(code))
	}
	return nil
}

// copied notes which messages are now where.
func (s *session) copied(code []string) error {
	from, to := set(code[1]), set(code[2])
	if len(from) != len(to) || !slices.IsSorted(to) {
		return contradiction("%d UIDs became %d", len(from), len(to))
	}
	s.pairs = len(from)
	dest := s.command[strings.LastIndexByte(s.command, ' ')+1:]
	var subjects []string
	_ = s.ledger.with(s.folder, func(b *book, _ int) error {
		for _, uid := range from {
			subjects = append(subjects, b.subjects[uid])
		}
		return nil
	})
	return s.ledger.with(dest, func(b *book, _ int) error {
		for i, uid := range to {
			if subjects[i] == "" {
				continue
			}
			if err := b.subject(uid, subjects[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
