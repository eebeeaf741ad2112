// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The sizes of a transcript in bytes. Its beginning and its end are kept; lines in between are left
// out and counted. The transcripts of a connection and a message together stay within 8 KiB.
const (
	transcriptHead = 3 << 10
	transcriptTail = 1 << 10
	transcriptLine = 512
)

// transcript records a session for later diagnosis. Each line has the seconds since the start, and
// "C:" for the client, "S:" for the server or "*" for a note. It contains neither the message's
// bytes nor secrets.
type transcript struct {
	now     func() time.Time
	start   time.Time
	head    []byte
	tail    []byte
	omitted int // lines left out between head and tail
	line    []byte
}

func newTranscript(now func() time.Time) *transcript {
	return &transcript{now: now, start: now(), head: make([]byte, 0, 768)}
}

func (t *transcript) addClientLine(line string) { t.add("C: ", line, "") }

func (t *transcript) note(format string, args ...any) {
	t.add("* ", fmt.Sprintf(format, args...), "")
}

func (t *transcript) addServerReply(r Reply) {
	for i, text := range r.Lines {
		code := strconv.Itoa(r.Code)
		switch {
		case i < len(r.Lines)-1:
			code += "-"
		case text != "" || r.Enhanced != "":
			code += " "
		}
		if r.Enhanced != "" {
			code += r.Enhanced + " "
		}
		t.add("S: ", code, text)
	}
}

func (t *transcript) add(mark, a, b string) {
	ms := max(t.now().Sub(t.start).Milliseconds(), 0)
	l := strconv.AppendInt(t.line[:0], ms/1000, 10)
	l = append(l, '.', byte('0'+ms/100%10), byte('0'+ms/10%10), byte('0'+ms%10), ' ')
	l = append(append(append(l, mark...), a...), b...)
	if len(l) > transcriptLine {
		l = append(l[:transcriptLine-3], "..."...)
	}
	l = append(l, '\n')
	t.line = l
	if t.omitted == 0 && len(t.tail) == 0 && len(t.head)+len(l) <= transcriptHead {
		t.head = append(t.head, l...)
		return
	}
	t.tail = append(t.tail, l...)
	for len(t.tail) > transcriptTail {
		first := bytes.IndexByte(t.tail, '\n') + 1
		t.tail = append(t.tail[:0], t.tail[first:]...)
		t.omitted++
	}
}

// text returns the transcript as valid UTF-8, at most about 4 KiB.
func (t *transcript) text() string {
	if t == nil {
		return ""
	}
	s := string(t.head)
	if t.omitted > 0 {
		s += fmt.Sprintf("* %d lines left out\n", t.omitted)
	}
	return strings.ToValidUTF8(s+string(t.tail), "\uFFFD")
}
