// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"errors"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
)

// reply is an SMTP reply. The zero reply means that none is sent.
type reply struct {
	code     int
	enhanced string // RFC 3463; "": none
	text     string // one line, or several separated by \n (EHLO)
}

var replyOK = reply{250, "2.0.0", "OK"}

// append appends the reply in wire format.
func (r reply) append(b []byte) []byte {
	for rest := r.text; ; {
		line, more, cut := strings.Cut(rest, "\n")
		b = strconv.AppendInt(b, int64(r.code), 10)
		if cut {
			b = append(b, '-')
		} else {
			b = append(b, ' ')
		}
		if r.enhanced != "" {
			b = append(append(b, r.enhanced...), ' ')
		}
		for i := range len(line) {
			if c := line[i]; c >= ' ' && c < 0x7f {
				b = append(b, c)
			} else {
				b = append(b, '?')
			}
		}
		b = append(b, '\r', '\n')
		if !cut {
			return b
		}
		rest = more
	}
}

// replyError is an error with its own reply.
type replyError struct{ reply }

// Error returns the reply's text.
func (e replyError) Error() string { return e.text }

// codeLoop is the fault code for a mail loop, which has its own reply.
const codeLoop = inbound.CodeLoop

// errorReply returns the reply for an error of any command except AUTH, which has its own codes. It
// logs internal errors.
func (c *conn) errorReply(err error) reply {
	if made, ok := errors.AsType[replyError](err); ok {
		return made.reply
	}
	r, ours := inbound.ReplyFor(err)
	switch {
	case ours && fault.Is(err, fault.Unavailable):
		c.log.Warn("refused for now", "error", err)
	case ours:
		c.log.Error("a command failed", "error", err)
	}
	return reply{r.Code, r.Enhanced, r.Text}
}
