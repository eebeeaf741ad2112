// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxReply bounds one reply with all its lines, in bytes.
	maxReply = 64 << 10
	// maxReplyText is how much of a reply is kept, in bytes: each of a hundred recipients has its
	// own.
	maxReplyText = 4 << 10
)

var (
	errReplyTooLong = errors.New("the reply is longer than 64 KiB")
	errInvalidReply = errors.New("the answer is not an SMTP reply")
)

// Reply is a server's reply to one command (RFC 5321 section 4.2).
type Reply struct {
	Code     int      // 200 to 599; 0 if no server sent it
	Enhanced string   // such as "5.1.1" (RFC 3463); empty if there is none
	Lines    []string // text without codes, at most 4 KiB; valid UTF-8 without control characters
}

// Text returns the reply's text on one line.
func (r Reply) Text() string { return strings.Join(r.Lines, " ") }

// String returns the reply on one line, with its codes.
func (r Reply) String() string {
	parts := make([]string, 0, 3)
	if r.Code != 0 {
		parts = append(parts, strconv.Itoa(r.Code))
	}
	if r.Enhanced != "" {
		parts = append(parts, r.Enhanced)
	}
	if len(r.Lines) > 0 {
		parts = append(parts, r.Text())
	}
	return strings.Join(parts, " ")
}

func (r Reply) positive() bool { return r.Code/100 == 2 }

// readReply reads one reply. It accepts bare LF as a line end, and lines of any length within
// maxReply.
func readReply(br *bufio.Reader) (Reply, error) {
	var r Reply
	for left, keep := maxReply, maxReplyText; ; {
		line, err := readLine(br, left)
		if err != nil {
			return Reply{}, err
		}
		left -= len(line)
		code, more, text, ok := cutReplyLine(line)
		if !ok {
			return Reply{}, fmt.Errorf("%w: %q", errInvalidReply, sanitize(line[:min(len(line), 80)]))
		}
		r.Code = code
		enhanced, rest := cutEnhancedCode(code, text)
		if enhanced != "" {
			r.Enhanced = enhanced
		}
		if keep > 0 {
			r.Lines = append(r.Lines, sanitize(rest[:min(len(rest), keep)]))
			keep -= len(line)
		}
		if !more {
			return r, nil
		}
	}
}

// readLine returns the next line with its line end. The bytes are valid until
// the next read.
func readLine(br *bufio.Reader, limit int) ([]byte, error) {
	line, err := br.ReadSlice('\n')
	if err == nil && len(line) <= limit {
		return line, nil
	}
	var long []byte
	for errors.Is(err, bufio.ErrBufferFull) && len(long)+len(line) <= limit {
		long = append(long, line...)
		line, err = br.ReadSlice('\n')
	}
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	if len(long)+len(line) > limit {
		return nil, errReplyTooLong
	}
	return append(long, line...), nil
}

func cutReplyLine(line []byte) (code int, more bool, text []byte, ok bool) {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) < 3 {
		return 0, false, nil, false
	}
	for _, c := range line[:3] {
		if c < '0' || c > '9' {
			return 0, false, nil, false
		}
		code = code*10 + int(c-'0')
	}
	if code < 200 || code > 599 {
		return 0, false, nil, false
	}
	if len(line) == 3 {
		return code, false, nil, true
	}
	if line[3] != ' ' && line[3] != '-' {
		return 0, false, nil, false
	}
	return code, line[3] == '-', line[4:], true
}

// cutEnhancedCode splits an enhanced code off the text if its class matches the reply's (RFC 2034
// section 4).
func cutEnhancedCode(code int, text []byte) (string, []byte) {
	word, rest, _ := bytes.Cut(text, []byte{' '})
	if len(word) < 5 || len(word) > 9 || int(word[0]-'0') != code/100 {
		return "", text
	}
	digits, dots := 0, 0
	for _, c := range word {
		switch {
		case c >= '0' && c <= '9' && digits < 3:
			digits++
		case c == '.' && digits > 0:
			dots++
			digits = 0
		default:
			return "", text
		}
	}
	if dots != 2 || digits == 0 || word[1] != '.' {
		return "", text
	}
	return string(word), rest
}

var addressPattern = regexp.MustCompile(`(?:"[^"]*"|[^\s<>()\[\]",;:]*)(?:@|%40)[^\s<>()\[\]",;:]*`)

// RedactAddresses removes the addresses from a host's reply to one message, so that the text can be
// shown for other messages, even another customer's. Before MAIL the host knows no addresses of a
// message: an address there is a contact, and stays.
func RedactAddresses(stage Stage, text string) string {
	switch stage {
	case StageMail, StageRcpt, StageData, StageFinal:
		return addressPattern.ReplaceAllString(text, "***")
	}
	return text
}

// sanitize makes text from outside safe to store and show.
func sanitize(b []byte) string {
	for _, c := range b {
		if c < ' ' || c >= 0x7f {
			return strings.Map(func(r rune) rune {
				if r < ' ' || r >= 0x7f && r < 0xa0 {
					return ' '
				}
				return r
			}, strings.ToValidUTF8(string(b), "\uFFFD"))
		}
	}
	return string(b)
}
