// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// extension is the extension that a session enables.
type extension int

const (
	noExtension extension = iota
	condStore
	qresync
)

func (k extension) String() string { return [...]string{"plain", "CONDSTORE", "QRESYNC"}[k] }

// message is what a session knows about a message.
type message struct {
	uid        uint32
	flags      string // sorted, without \Recent
	modseq     uint64 // 0 if unknown
	afterUID   uint32 // the highest UID known before this message came
	flagsStale bool   // whether flags are from before the STORE that gave it its mod-sequence
}

// equal compares the fields that both know.
func (m message) equal(o message) bool {
	return m.uid == o.uid && m.flags == o.flags && (m.modseq == o.modseq || m.modseq == 0 || o.modseq == 0)
}

func (m message) String() string {
	return fmt.Sprintf("UID %d [%s] at %d", m.uid, m.flags, m.modseq)
}

// session is one client.
type session struct {
	conn
	config      *Stress
	history     *history
	id          int
	extension   extension
	rnd         *rand.Rand
	appendCount int // number of messages that it has appended

	folder          string
	selectedAt      int       // when, by the history's clock
	uidValidity     uint32    // UIDVALIDITY
	uidNext         uint32    // UIDNEXT when it was selected
	messages        []message // by sequence number; UID 0 if unknown
	initialCount    int       // number of messages when it was selected
	maxUID          uint32    // the highest known UID
	highestModSeq   uint64    // last reported HIGHESTMODSEQ
	syncedModSeq    uint64    // mod-sequence up to which all changes are known
	maxModSeq       uint64    // the highest mod-sequence of all
	vanishedEarlier []uint32  // VANISHED (EARLIER)
	searchResult    []uint32  // SEARCH
	savedStates     []savedState

	command        string            // the current command
	status         string            // its tagged response
	copyCount      int               // number of messages in COPYUID
	fetchedModSeqs map[uint32]uint64 // by UID, the mod-sequences of its first FETCH
	expectNoNews   bool              // whether it must report only known information
	pendingResync  *resyncResponse   // of SELECT with QRESYNC
}

// ownKeywords has one keyword for each session, which limits the number of sessions.
var ownKeywords = func() (all [64]string) {
	for id := range all {
		all[id] = fmt.Sprintf("own%d", id)
	}
	return all
}()

// start connects, to one node after the other, and opens a folder.
func (s *session) start() error { return s.open(folders[s.id%len(folders)]) }

func (s *session) open(folder string) error {
	if err := s.login(); err != nil {
		return err
	}
	return s.selectFolder(folder)
}

func (s *session) login() error {
	s.close()
	dial := s.config.Dial[(s.id+1+s.appendCount)%len(s.config.Dial)]
	s.appendCount++
	nc, err := dial()
	if err != nil {
		return err
	}
	s.nc, s.br = nc, bufio.NewReaderSize(nc, 16<<10)
	if _, err := s.readResponse(); err != nil { // the greeting
		return err
	}
	s.folder, s.messages = "", nil
	if err := s.mustRun("LOGIN " + s.config.User + " " + s.config.Password); err != nil {
		return err
	}
	switch s.extension {
	case condStore:
		return s.mustRun("ENABLE CONDSTORE")
	case qresync:
		return s.mustRun("ENABLE QRESYNC")
	}
	return nil
}

// selectFolder selects a folder and fetches its messages.
func (s *session) selectFolder(folder string) error {
	s.reset(folder)
	if err := s.mustRun("SELECT " + folder); err != nil {
		return err
	}
	if err := s.checkSelect(); err != nil {
		return err
	}
	return s.fetchUnknown()
}

// reset clears the state of the previous folder.
func (s *session) reset(folder string) {
	s.folder, s.messages, s.initialCount, s.uidNext, s.maxUID, s.maxModSeq, s.highestModSeq, s.syncedModSeq = folder, nil, 0, 0, 0, 0, 0, 0
	_ = s.history.update(folder, func(b *folderHistory, now int) error {
		s.selectedAt = now
		return nil
	})
}

// checkSelect checks the responses to SELECT.
func (s *session) checkSelect() error {
	s.initialCount = len(s.messages)
	return s.history.update(s.folder, func(b *folderHistory, _ int) error {
		if b.uidValidity == 0 {
			b.uidValidity = s.uidValidity
		}
		if b.uidValidity != s.uidValidity {
			return contradictionError("UIDVALIDITY %d was %d", s.uidValidity, b.uidValidity)
		}
		if s.id < 0 && s.highestModSeq < b.highestModSeq { // nothing changes at that time
			return contradictionError("HIGHESTMODSEQ is %d, and was %d for others", s.highestModSeq, b.highestModSeq)
		}
		b.highestModSeq = max(b.highestModSeq, s.highestModSeq)
		return nil
	})
}

// fetchUnknown fetches what is not known yet.
func (s *session) fetchUnknown() error {
	for {
		unknown := slices.IndexFunc(s.messages, func(m message) bool { return m.uid == 0 })
		if unknown < 0 {
			return nil
		}
		items := "(UID FLAGS)"
		if s.extension != noExtension {
			items = "(UID FLAGS MODSEQ)"
		}
		if err := s.mustRun(fmt.Sprintf("FETCH %d:* %s", unknown+1, items)); err != nil {
			return err
		}
		if unknown < len(s.messages) && s.messages[unknown].uid == 0 {
			return contradictionError("nothing is told of message %d of %d", unknown+1, len(s.messages))
		}
	}
}

// mustRun runs a command that must succeed.
func (s *session) mustRun(command string) error {
	if err := s.run(command); err != nil {
		return err
	}
	if !strings.HasPrefix(s.status, "OK") {
		return fmt.Errorf("%.80s: %s", command, s.status)
	}
	return nil
}

// run runs a command and stores its tagged response in status.
func (s *session) run(command string) error {
	s.lastTag++
	tag := fmt.Sprintf("a%d", s.lastTag)
	if err := s.send(tag + " " + command + "\r\n"); err != nil {
		return err
	}
	return s.readResponses(tag, command)
}

// pipeline runs several commands without waiting; all may report expunges.
func (s *session) pipeline(commands ...string) error {
	var text strings.Builder
	for i, c := range commands {
		fmt.Fprintf(&text, "a%d %s\r\n", s.lastTag+1+i, c)
	}
	if err := s.send(text.String()); err != nil {
		return err
	}
	for _, c := range commands {
		s.lastTag++
		if err := s.readResponses(fmt.Sprintf("a%d", s.lastTag), c); err != nil {
			return err
		}
		if strings.HasPrefix(s.status, "BAD") {
			return fmt.Errorf("%.80s: %s", c, s.status)
		}
	}
	return nil
}

// readResponses handles the responses to a command, up to the tagged one.
func (s *session) readResponses(tag, command string) error {
	s.command, s.searchResult, s.vanishedEarlier, s.fetchedModSeqs = command, nil, nil, map[uint32]uint64{}
	for {
		a, err := s.readResponse()
		if err != nil {
			return fmt.Errorf("%.80s: %w", command, err)
		}
		s.history.responses.Add(1)
		if status, tagged := strings.CutPrefix(a, tag+" "); tagged {
			s.status = status
			if strings.HasPrefix(status, "BAD") {
				return fmt.Errorf("%.80s: %s", command, status)
			}
			if err := s.handleCodes(status); err != nil {
				return fmt.Errorf("%.80s: %q: %w", command, status, err)
			}
			if !s.forbidsExpunge() {
				s.syncedModSeq = max(s.syncedModSeq, s.maxModSeq)
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
		if err := s.handleUntagged(text); err != nil {
			return fmt.Errorf("%.80s: %.200q: %w", command, a, err)
		}
	}
}

// forbidsExpunge reports whether EXPUNGE is forbidden in the response to the command.
func (s *session) forbidsExpunge() bool {
	verb, _, _ := strings.Cut(s.command, " ")
	return verb == "FETCH" || verb == "STORE" || verb == "SEARCH"
}
