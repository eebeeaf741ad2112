// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"fmt"
	"slices"
	"strings"
)

// step does something to the folder or looks at it, and learns what is new.
func (s *session) step() error {
	act := s.act
	if s.folder == "" || len(s.known) == 0 {
		act = s.add
	}
	if err := act(); err != nil {
		return err
	}
	return s.learn()
}

func (s *session) act() error {
	if len(s.known) > 100 { // copies add up
		return s.pipeline(fmt.Sprintf(`UID STORE %d:%d +FLAGS (\Deleted)`, s.known[0].uid, s.known[60].uid), "EXPUNGE")
	}
	switch what := s.rnd.IntN(100); {
	case what < 18 && len(s.known) < 60:
		return s.add()
	case what < 30:
		return s.flag()
	case what < 38:
		return s.own()
	case what < 44:
		return s.conditionally()
	case what < 50:
		return s.must(fmt.Sprintf(`UID STORE %s +FLAGS (\Deleted)`, s.some(3)))
	case what < 55:
		return s.do("EXPUNGE")
	case what < 58:
		return s.do("UID EXPUNGE " + s.some(5))
	case what < 64:
		return s.transfer()
	case what < 70:
		return s.look()
	case what < 75:
		return s.search()
	case what < 80:
		return s.pipeline("UID STORE "+s.some(3)+` +FLAGS (\Answered)`, "UID FETCH "+s.some(4)+" (FLAGS)", "NOOP", "UID STORE "+s.some(3)+` -FLAGS (\Answered)`)
	case what < 86:
		return s.must("IDLE") // which ends once it has begun
	case what < 90:
		return s.must("NOOP")
	case what < 93:
		return s.choose(folders[s.rnd.IntN(len(folders))])
	case what < 95 || s.kind != qresync:
		return s.open(folders[s.rnd.IntN(len(folders))])
	case what < 98 || len(s.memories) == 0:
		return s.remember()
	}
	return s.resume(s.memories[s.rnd.IntN(len(s.memories))])
}

// some names up to n messages by UID.
func (s *session) some(n int) string {
	var uids []string
	for range 1 + s.rnd.IntN(n) {
		uids = append(uids, fmt.Sprint(s.any().uid))
	}
	return strings.Join(uids, ",")
}

func (s *session) any() message { return s.known[s.rnd.IntN(len(s.known))] }

// span names messages by number.
func (s *session) span() string {
	lo := 1 + s.rnd.IntN(len(s.known))
	return fmt.Sprintf("%d:%d", lo, lo+s.rnd.IntN(len(s.known)-lo+1))
}

// add appends a message, or two at once.
func (s *session) add() error {
	folder, command := folders[s.rnd.IntN(len(folders))], ""
	var subjects []string
	for range 1 + s.rnd.IntN(2) {
		s.serial++
		subject := fmt.Sprintf("message %d of session %d", s.serial, s.id)
		text := "From: <crowd@example.com>\r\nSubject: " + subject + "\r\n\r\nHello.\r\n"
		subjects = append(subjects, subject)
		command += fmt.Sprintf(" (\\Draft) {%d+}\r\n%s", len(text), text)
	}
	before := uint32(0)
	_ = s.ledger.with(folder, func(b *book, _ int) error { before = b.lastUID; return nil })
	if err := s.must("APPEND " + folder + command); err != nil {
		return err
	}
	code, _ := codeOf(s.status, "APPENDUID")
	_, where, _ := strings.Cut(code, " ")
	uids := set(where)
	if len(uids) != len(subjects) {
		return contradiction("%d messages appended: %s", len(subjects), s.status)
	}
	return s.ledger.with(folder, func(b *book, _ int) error {
		for i, uid := range uids {
			if uid <= before {
				return contradiction("UID %d is given after UID %d", uid, before)
			}
			b.lastUID = max(b.lastUID, uid)
			if err := b.subject(uid, subjects[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// flag sets or removes flags that everybody uses, also by number.
func (s *session) flag() error {
	flag := []string{`\Flagged`, `\Seen`, `\Draft`, "everyone"}[s.rnd.IntN(4)]
	op := "+-"[s.rnd.IntN(2)]
	if s.rnd.IntN(2) == 0 {
		return s.must(fmt.Sprintf("UID STORE %s %cFLAGS (%s)", s.some(5), op, flag))
	}
	return s.unlessGone(fmt.Sprintf("STORE %s %cFLAGS (%s)", s.span(), op, flag))
}

// unlessGone does a command that may be refused for messages that others have
// expunged.
func (s *session) unlessGone(command string) error {
	err := s.do(command)
	if err == nil && !strings.HasPrefix(s.status, "OK") && !strings.HasPrefix(s.status, "NO [EXPUNGEISSUED]") {
		err = fmt.Errorf("%s: %s", command, s.status)
	}
	return err
}

// own sets or removes the keyword that nobody else does.
func (s *session) own() error {
	if s.kind == plain {
		return s.flag()
	}
	keyword, add, silent := ownKeywords[s.id], s.rnd.IntN(2) == 0, ""
	op := '-'
	if add {
		op = '+'
	}
	if s.rnd.IntN(2) == 0 {
		silent = ".SILENT"
	}
	which := s.some(6)
	if err := s.must(fmt.Sprintf("UID STORE %s %cFLAGS%s (%s)", which, op, silent, keyword)); err != nil {
		return err
	}
	return s.stored(keyword, add, set(which)...)
}

// stored notes what an own STORE has done, and what flags the messages have of
// which only the mod-sequence was told.
func (s *session) stored(keyword string, add bool, uids ...uint32) error {
	for i := range s.known {
		if m := &s.known[i]; m.unsure {
			flags := slices.DeleteFunc(strings.Fields(m.flags), func(f string) bool { return f == keyword })
			if add {
				flags = append(flags, keyword)
			}
			slices.Sort(flags)
			m.flags, m.unsure = strings.Join(flags, " "), false
		}
	}
	return s.ledger.with(s.folder, func(b *book, _ int) error {
		for _, uid := range uids {
			if modseq, there := s.rows[uid]; there {
				b.stores[owned{uid, keyword}] = append(b.stores[owned{uid, keyword}], stored{modseq, add})
				b.fresh[uid] = true
			}
		}
		for _, m := range s.known {
			if err := b.state(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// conditionally sets the own keyword, if nobody has changed the message.
func (s *session) conditionally() error {
	if s.kind == plain {
		return s.flag()
	}
	m, keyword, add := s.any(), ownKeywords[s.id], s.rnd.IntN(2) == 0
	op := '-'
	if add {
		op = '+'
	}
	if err := s.must(fmt.Sprintf("UID STORE %d (UNCHANGEDSINCE %d) %cFLAGS (%s)", m.uid, m.modseq, op, keyword)); err != nil {
		return err
	}
	if _, modified := codeOf(s.status, "MODIFIED"); modified {
		at := slices.IndexFunc(s.known, func(k message) bool { return k.uid == m.uid })
		if at >= 0 && s.known[at].modseq <= m.modseq {
			return contradiction("MODIFIED, but nothing is told since %v", m)
		}
		return nil
	}
	if made := s.rows[m.uid]; made > m.modseq {
		_ = s.ledger.with(s.folder, func(b *book, _ int) error {
			b.made = append(b.made, conditional{m.uid, m.modseq, made})
			return nil
		})
	}
	return s.stored(keyword, add, m.uid)
}

// transfer copies or moves to the other folder, or within this one; by number
// all or none.
func (s *session) transfer() error {
	verb := []string{"COPY", "MOVE"}[s.rnd.IntN(2)]
	to := folders[s.rnd.IntN(len(folders))]
	if s.rnd.IntN(2) == 0 {
		return s.do("UID " + verb + " " + s.some(4) + " " + to)
	}
	span := s.span()
	s.pairs = 0
	err := s.do(verb + " " + span + " " + to)
	if want := len(set(span)); err == nil && strings.HasPrefix(s.status, "OK") && s.pairs != want {
		err = contradiction("%d of %d messages: %s", s.pairs, want, s.status)
	}
	return err
}

// look fetches what is in messages; some become \Seen by it.
func (s *session) look() error {
	switch s.rnd.IntN(4) {
	case 0:
		return s.must("UID FETCH " + s.some(5) + " BODY.PEEK[HEADER.FIELDS (SUBJECT)]")
	case 1:
		return s.unlessGone("FETCH " + s.span() + " (UID BODY.PEEK[HEADER.FIELDS (SUBJECT)])")
	case 2:
		return s.must("UID FETCH " + s.some(3) + " (BODY[HEADER.FIELDS (SUBJECT)])")
	}
	if s.kind != qresync {
		return s.must("FETCH 1:* (UID FLAGS)")
	}
	if err := s.must(fmt.Sprintf("UID FETCH 1:* (FLAGS) (CHANGEDSINCE %d VANISHED)", s.rnd.Uint64N(s.highest+1))); err != nil {
		return err
	}
	for _, uid := range s.vanished {
		if slices.ContainsFunc(s.known, func(m message) bool { return m.uid == uid }) {
			return contradiction("UID %d vanished earlier, and was told of since", uid)
		}
	}
	return nil
}

// search finds what the session knows to be there.
func (s *session) search() error {
	keyword := []string{ownKeywords[s.rnd.IntN(s.crowd.Sessions)], "everyone"}[s.rnd.IntN(2)]
	var want []uint32
	for i, m := range s.known {
		if slices.Contains(strings.Fields(m.flags), keyword) {
			want = append(want, uint32(i+1))
		}
	}
	if err := s.must("SEARCH KEYWORD " + keyword); err != nil {
		return err
	}
	if !slices.Equal(s.found, want) {
		return contradiction("SEARCH KEYWORD %s finds %v, but %v have it", keyword, s.found, want)
	}
	return nil
}
