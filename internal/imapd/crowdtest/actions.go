// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"fmt"
	"slices"
	"strings"
)

// step changes or reads the folder, and learns what is new.
func (s *session) step() error {
	act := s.randomAction
	if s.folder == "" || len(s.messages) == 0 {
		act = s.appendMessages
	}
	if err := act(); err != nil {
		return err
	}
	return s.fetchUnknown()
}

func (s *session) randomAction() error {
	if len(s.messages) > 100 { // copies add up
		return s.pipeline(fmt.Sprintf(`UID STORE %d:%d +FLAGS (\Deleted)`, s.messages[0].uid, s.messages[60].uid), "EXPUNGE")
	}
	switch what := s.rnd.IntN(100); {
	case what < 18 && len(s.messages) < 60:
		return s.appendMessages()
	case what < 30:
		return s.storeFlags()
	case what < 38:
		return s.storeOwn()
	case what < 44:
		return s.storeConditional()
	case what < 50:
		return s.mustRun(fmt.Sprintf(`UID STORE %s +FLAGS (\Deleted)`, s.randomUIDs(3)))
	case what < 55:
		return s.run("EXPUNGE")
	case what < 58:
		return s.run("UID EXPUNGE " + s.randomUIDs(5))
	case what < 64:
		return s.copyOrMove()
	case what < 70:
		return s.fetchSome()
	case what < 75:
		return s.search()
	case what < 80:
		return s.pipeline("UID STORE "+s.randomUIDs(3)+` +FLAGS (\Answered)`, "UID FETCH "+s.randomUIDs(4)+" (FLAGS)", "NOOP", "UID STORE "+s.randomUIDs(3)+` -FLAGS (\Answered)`)
	case what < 86:
		return s.mustRun("IDLE") // it ends once it has begun
	case what < 90:
		return s.mustRun("NOOP")
	case what < 93:
		return s.selectFolder(folders[s.rnd.IntN(len(folders))])
	case what < 95 || s.extension != qresync:
		return s.open(folders[s.rnd.IntN(len(folders))])
	case what < 98 || len(s.savedStates) == 0:
		return s.saveState()
	}
	return s.resume(s.savedStates[s.rnd.IntN(len(s.savedStates))])
}

// randomUIDs returns a set of up to n UIDs of messages.
func (s *session) randomUIDs(n int) string {
	var uids []string
	for range 1 + s.rnd.IntN(n) {
		uids = append(uids, fmt.Sprint(s.randomMessage().uid))
	}
	return strings.Join(uids, ",")
}

func (s *session) randomMessage() message { return s.messages[s.rnd.IntN(len(s.messages))] }

// randomRange returns a range of sequence numbers.
func (s *session) randomRange() string {
	lo := 1 + s.rnd.IntN(len(s.messages))
	return fmt.Sprintf("%d:%d", lo, lo+s.rnd.IntN(len(s.messages)-lo+1))
}

// appendMessages appends a message, or two at once.
func (s *session) appendMessages() error {
	folder, command := folders[s.rnd.IntN(len(folders))], ""
	var subjects []string
	for range 1 + s.rnd.IntN(2) {
		s.appendCount++
		subject := fmt.Sprintf("message %d of session %d", s.appendCount, s.id)
		text := "From: <crowd@example.com>\r\nSubject: " + subject + "\r\n\r\nHello.\r\n"
		subjects = append(subjects, subject)
		command += fmt.Sprintf(" (\\Draft) {%d+}\r\n%s", len(text), text)
	}
	before := uint32(0)
	_ = s.history.update(folder, func(b *folderHistory, _ int) error { before = b.lastUID; return nil })
	if err := s.mustRun("APPEND " + folder + command); err != nil {
		return err
	}
	code, _ := responseCode(s.status, "APPENDUID")
	_, where, _ := strings.Cut(code, " ")
	uids := parseUIDSet(where)
	if len(uids) != len(subjects) {
		return contradictionError("%d messages appended: %s", len(subjects), s.status)
	}
	return s.history.update(folder, func(b *folderHistory, _ int) error {
		for i, uid := range uids {
			if uid <= before {
				return contradictionError("UID %d is given after UID %d", uid, before)
			}
			b.lastUID = max(b.lastUID, uid)
			if err := b.recordSubject(uid, subjects[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// storeFlags sets or removes flags that all sessions use, also by sequence number.
func (s *session) storeFlags() error {
	flag := []string{`\Flagged`, `\Seen`, `\Draft`, "everyone"}[s.rnd.IntN(4)]
	op := "+-"[s.rnd.IntN(2)]
	if s.rnd.IntN(2) == 0 {
		return s.mustRun(fmt.Sprintf("UID STORE %s %cFLAGS (%s)", s.randomUIDs(5), op, flag))
	}
	return s.allowExpungeIssued(fmt.Sprintf("STORE %s %cFLAGS (%s)", s.randomRange(), op, flag))
}

// allowExpungeIssued runs a command that may fail for messages that others have expunged.
func (s *session) allowExpungeIssued(command string) error {
	err := s.run(command)
	if err == nil && !strings.HasPrefix(s.status, "OK") && !strings.HasPrefix(s.status, "NO [EXPUNGEISSUED]") {
		err = fmt.Errorf("%s: %s", command, s.status)
	}
	return err
}

// storeOwn sets or removes the keyword that only this session uses.
func (s *session) storeOwn() error {
	if s.extension == noExtension {
		return s.storeFlags()
	}
	keyword, add, silent := ownKeywords[s.id], s.rnd.IntN(2) == 0, ""
	op := '-'
	if add {
		op = '+'
	}
	if s.rnd.IntN(2) == 0 {
		silent = ".SILENT"
	}
	which := s.randomUIDs(6)
	if err := s.mustRun(fmt.Sprintf("UID STORE %s %cFLAGS%s (%s)", which, op, silent, keyword)); err != nil {
		return err
	}
	return s.recordOwnStore(keyword, add, parseUIDSet(which)...)
}

// recordOwnStore records the effect of the session's own STORE. It completes the flags of the
// messages for which only the mod-sequence was reported.
func (s *session) recordOwnStore(keyword string, add bool, uids ...uint32) error {
	for i := range s.messages {
		if m := &s.messages[i]; m.flagsStale {
			flags := slices.DeleteFunc(strings.Fields(m.flags), func(f string) bool { return f == keyword })
			if add {
				flags = append(flags, keyword)
			}
			slices.Sort(flags)
			m.flags, m.flagsStale = strings.Join(flags, " "), false
		}
	}
	return s.history.update(s.folder, func(b *folderHistory, _ int) error {
		for _, uid := range uids {
			if modseq, there := s.fetchedModSeqs[uid]; there {
				b.ownStores[ownedKeyword{uid, keyword}] = append(b.ownStores[ownedKeyword{uid, keyword}], ownStore{modseq, add})
				b.unchecked[uid] = true
			}
		}
		for _, m := range s.messages {
			if err := b.recordState(m); err != nil {
				return err
			}
		}
		return nil
	})
}

// storeConditional sets the own keyword if nobody has changed the message.
func (s *session) storeConditional() error {
	if s.extension == noExtension {
		return s.storeFlags()
	}
	m, keyword, add := s.randomMessage(), ownKeywords[s.id], s.rnd.IntN(2) == 0
	op := '-'
	if add {
		op = '+'
	}
	if err := s.mustRun(fmt.Sprintf("UID STORE %d (UNCHANGEDSINCE %d) %cFLAGS (%s)", m.uid, m.modseq, op, keyword)); err != nil {
		return err
	}
	if _, modified := responseCode(s.status, "MODIFIED"); modified {
		at := slices.IndexFunc(s.messages, func(k message) bool { return k.uid == m.uid })
		if at >= 0 && s.messages[at].modseq <= m.modseq {
			return contradictionError("MODIFIED, but nothing is told since %v", m)
		}
		return nil
	}
	if made := s.fetchedModSeqs[m.uid]; made > m.modseq {
		_ = s.history.update(s.folder, func(b *folderHistory, _ int) error {
			b.conditionalStores = append(b.conditionalStores, conditionalStore{m.uid, m.modseq, made})
			return nil
		})
	}
	return s.recordOwnStore(keyword, add, m.uid)
}

// copyOrMove copies or moves messages to the other folder, or within this one; by sequence number
// all or none.
func (s *session) copyOrMove() error {
	verb := []string{"COPY", "MOVE"}[s.rnd.IntN(2)]
	to := folders[s.rnd.IntN(len(folders))]
	if s.rnd.IntN(2) == 0 {
		return s.run("UID " + verb + " " + s.randomUIDs(4) + " " + to)
	}
	span := s.randomRange()
	s.copyCount = 0
	err := s.run(verb + " " + span + " " + to)
	if want := len(parseUIDSet(span)); err == nil && strings.HasPrefix(s.status, "OK") && s.copyCount != want {
		err = contradictionError("%d of %d messages: %s", s.copyCount, want, s.status)
	}
	return err
}

// fetchSome fetches message contents, which sets \Seen for some.
func (s *session) fetchSome() error {
	switch s.rnd.IntN(4) {
	case 0:
		return s.mustRun("UID FETCH " + s.randomUIDs(5) + " BODY.PEEK[HEADER.FIELDS (SUBJECT)]")
	case 1:
		return s.allowExpungeIssued("FETCH " + s.randomRange() + " (UID BODY.PEEK[HEADER.FIELDS (SUBJECT)])")
	case 2:
		return s.mustRun("UID FETCH " + s.randomUIDs(3) + " (BODY[HEADER.FIELDS (SUBJECT)])")
	}
	if s.extension != qresync {
		return s.mustRun("FETCH 1:* (UID FLAGS)")
	}
	if err := s.mustRun(fmt.Sprintf("UID FETCH 1:* (FLAGS) (CHANGEDSINCE %d VANISHED)", s.rnd.Uint64N(s.syncedModSeq+1))); err != nil {
		return err
	}
	for _, uid := range s.vanishedEarlier {
		if slices.ContainsFunc(s.messages, func(m message) bool { return m.uid == uid }) {
			return contradictionError("UID %d vanished earlier, and was told of since", uid)
		}
	}
	return nil
}

// search checks that a search finds the messages that the session knows.
func (s *session) search() error {
	keyword := []string{ownKeywords[s.rnd.IntN(s.config.Sessions)], "everyone"}[s.rnd.IntN(2)]
	var want []uint32
	for i, m := range s.messages {
		if slices.Contains(strings.Fields(m.flags), keyword) {
			want = append(want, uint32(i+1))
		}
	}
	if err := s.mustRun("SEARCH KEYWORD " + keyword); err != nil {
		return err
	}
	if !slices.Equal(s.searchResult, want) {
		return contradictionError("SEARCH KEYWORD %s finds %v, but %v have it", keyword, s.searchResult, want)
	}
	return nil
}
