// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"slices"
	"strings"
)

// handleUntagged applies an untagged response, or returns an error if it is wrong.
func (s *session) handleUntagged(text string) error {
	v := parseValues(text)
	if len(v) < 2 {
		return nil
	}
	if s.pendingResync != nil && s.pendingResync.add(v) {
		return nil
	}
	switch {
	case v[1].text == "EXISTS":
		return s.handleExists(int(parseNumber(v[0].text)))
	case v[1].text == "EXPUNGE":
		return s.handleExpunge(int(parseNumber(v[0].text)))
	case v[0].text == "VANISHED" && len(v) == 3:
		s.vanishedEarlier = append(s.vanishedEarlier, parseUIDSet(v[2].text)...)
		return nil
	case v[0].text == "VANISHED":
		return s.handleVanished(parseUIDSet(v[1].text))
	case v[1].text == "FETCH":
		return s.handleFetch(int(parseNumber(v[0].text)), v[2].list)
	case v[0].text == "SEARCH":
		for _, n := range v[1:] {
			s.searchResult = append(s.searchResult, uint32(parseNumber(n.text)))
		}
		return nil
	case v[0].text == "OK":
		return s.handleCodes(text)
	case v[0].text == "BYE":
		return contradictionError("the server ends the session")
	}
	return nil
}

func (s *session) handleExists(n int) error {
	if n < len(s.messages) {
		return contradictionError("there were %d", len(s.messages))
	}
	for len(s.messages) < n {
		s.messages = append(s.messages, message{afterUID: s.maxUID})
	}
	return nil
}

func (s *session) handleExpunge(n int) error {
	switch {
	case s.extension == qresync:
		return contradictionError("EXPUNGE after ENABLE QRESYNC")
	case s.forbidsExpunge():
		return contradictionError("EXPUNGE in the answer to FETCH, STORE or SEARCH")
	case n < 1 || n > len(s.messages):
		return contradictionError("there are %d", len(s.messages))
	}
	return s.removeMessage(n)
}

func (s *session) handleVanished(uids []uint32) error {
	if s.extension != qresync || s.forbidsExpunge() {
		return contradictionError("VANISHED where it may not be")
	}
	for _, uid := range uids {
		at := slices.IndexFunc(s.messages, func(m message) bool { return m.uid == uid })
		if at < 0 {
			at = s.newMessageWithUID(uid)
		}
		if at < 0 {
			return contradictionError("UID %d is not there", uid)
		}
		if err := s.removeMessage(at + 1); err != nil {
			return err
		}
	}
	return nil
}

// newMessageWithUID returns the index of the new message that has an unknown UID: the last possible
// one between those with known UIDs; -1 for none.
func (s *session) newMessageWithUID(uid uint32) int {
	at := -1
	for i, m := range s.messages {
		switch {
		case m.uid > uid:
			return at
		case m.uid != 0:
			at = -1
		case m.afterUID < uid && (i < s.initialCount) == (uid < s.uidNext):
			at = i
		}
	}
	return at
}

// removeMessage removes an expunged message.
func (s *session) removeMessage(n int) error {
	uid := s.messages[n-1].uid
	s.messages = slices.Delete(s.messages, n-1, n)
	if n <= s.initialCount {
		s.initialCount--
	}
	return s.history.update(s.folder, func(b *folderHistory, now int) error {
		if b.expungedAt[uid] == 0 && uid != 0 {
			b.expungedAt[uid] = now
		}
		return nil
	})
}

// handleFetch handles the data of one message.
func (s *session) handleFetch(n int, data []value) error {
	if n < 1 || n > len(s.messages) {
		return contradictionError("there are %d", len(s.messages))
	}
	m := s.messages[n-1]
	was := m
	subject, recent, flagged := "", false, false
	for i := 0; i+1 < len(data); i += 2 {
		switch name := data[i].text; {
		case name == "UID":
			m.uid = uint32(parseNumber(data[i+1].text))
		case name == "MODSEQ":
			m.modseq = parseNumber(data[i+1].list[0].text)
		case name == "FLAGS":
			var flags []string
			for _, f := range data[i+1].list {
				recent = recent || f.text == `\Recent`
				if f.text != `\Recent` {
					flags = append(flags, f.text)
				}
			}
			slices.Sort(flags)
			m.flags, flagged, m.flagsStale = strings.Join(flags, " "), true, false
		case strings.HasPrefix(name, "BODY["):
			_, subject, _ = strings.Cut(data[i+1].text, "Subject: ")
			subject, _, _ = strings.Cut(subject, "\r\n")
		}
	}
	switch {
	case was.uid == 0 && !flagged: // fetchUnknown requests all of it
		return s.checkUID(n, was, m)
	case was.modseq > m.modseq:
		return contradictionError("mod-sequence %d was %d", m.modseq, was.modseq)
	case !flagged:
		m.flagsStale = m.modseq != was.modseq
	case s.extension != noExtension && was.uid != 0 && !was.flagsStale && was.flags != m.flags && was.modseq == m.modseq:
		return contradictionError("other flags than %v, but the same mod-sequence", was)
	}
	_, again := s.fetchedModSeqs[m.uid]
	if s.expectNoNews && !again && was.uid != 0 && (was.flags != m.flags || was.modseq != m.modseq) {
		return contradictionError("QRESYNC did not tell of it: it was known as %v", was)
	}
	if !again {
		s.fetchedModSeqs[m.uid] = m.modseq
	}
	if err := s.checkUID(n, was, m); err != nil {
		return err
	}
	s.messages[n-1] = m
	s.maxUID, s.maxModSeq = max(s.maxUID, m.uid), max(s.maxModSeq, m.modseq)
	return s.history.update(s.folder, func(b *folderHistory, _ int) error {
		if subject != "" {
			if err := b.recordSubject(m.uid, subject); err != nil {
				return err
			}
		}
		if at := b.expungedAt[m.uid]; was.uid == 0 && at != 0 && at < s.selectedAt {
			return contradictionError("UID %d was gone before the folder was selected", m.uid)
		}
		if recent && s.history.exclusiveRecent {
			if b.recentTo[m.uid] == 0 {
				b.recentTo[m.uid] = s.selectedAt
			}
			if b.recentTo[m.uid] != s.selectedAt {
				return contradictionError("UID %d is recent to two sessions", m.uid)
			}
		}
		if m.flagsStale {
			return nil
		}
		return b.recordState(m)
	})
}

// checkUID checks that a message has the UID that belongs to its sequence number.
func (s *session) checkUID(n int, was, m message) error {
	if m.uid == 0 || was.uid != 0 && was.uid != m.uid {
		return contradictionError("the message was %v", was)
	}
	if was.uid != 0 {
		return nil
	}
	if n > 1 && s.messages[n-2].uid >= m.uid || n < len(s.messages) && s.messages[n].uid != 0 && s.messages[n].uid <= m.uid {
		return contradictionError("UID %d stands among %v", m.uid, s.messages)
	}
	if n > s.initialCount && (m.uid < s.uidNext || m.uid <= m.afterUID) {
		return contradictionError("a new message has UID %d after UIDNEXT %d and UID %d", m.uid, s.uidNext, m.afterUID)
	}
	if n <= s.initialCount && m.uid >= s.uidNext {
		return contradictionError("UID %d was there when UIDNEXT was %d", m.uid, s.uidNext)
	}
	return nil
}

// handleCodes handles the response codes of a status response.
func (s *session) handleCodes(text string) error {
	if code, ok := responseCode(text, "UIDVALIDITY"); ok {
		s.uidValidity = uint32(parseNumber(code))
	}
	if code, ok := responseCode(text, "UIDNEXT"); ok {
		s.uidNext = uint32(parseNumber(code))
	}
	if code, ok := responseCode(text, "HIGHESTMODSEQ"); ok {
		n := parseNumber(code)
		if n < s.highestModSeq {
			return contradictionError("HIGHESTMODSEQ was %d", s.highestModSeq)
		}
		s.highestModSeq, s.syncedModSeq = n, max(s.syncedModSeq, n)
	}
	if code, ok := responseCode(text, "COPYUID"); ok {
		return s.recordCopies(strings.Fields(code))
	}
	return nil
}

// recordCopies records the copies of messages.
func (s *session) recordCopies(code []string) error {
	from, to := parseUIDSet(code[1]), parseUIDSet(code[2])
	if len(from) != len(to) || !slices.IsSorted(to) {
		return contradictionError("%d UIDs became %d", len(from), len(to))
	}
	s.copyCount = len(from)
	dest := s.command[strings.LastIndexByte(s.command, ' ')+1:]
	var subjects []string
	_ = s.history.update(s.folder, func(b *folderHistory, _ int) error {
		for _, uid := range from {
			subjects = append(subjects, b.subjects[uid])
		}
		return nil
	})
	return s.history.update(dest, func(b *folderHistory, _ int) error {
		for i, uid := range to {
			if subjects[i] == "" {
				continue
			}
			if err := b.recordSubject(uid, subjects[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
