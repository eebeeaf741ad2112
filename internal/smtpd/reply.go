// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"errors"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
)

// reply is an answer to the client. The zero reply is none.
type reply struct {
	code     int
	enhanced string // RFC 3463; "" for none
	text     string // one line, or several parted by \n; only EHLO and HELP have those
}

var replyOK = reply{250, "2.0.0", "OK"}

// append appends the reply in wire form.
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

// replyError is an error that has its reply already.
type replyError struct{ reply }

// Error is the reply's text.
func (e replyError) Error() string { return e.text }

// Codes of faults that have a reply of their own.
const codeLoop = inbound.CodeLoop

// errorReply gives a fault the words of SMTP, as all doors do but for AUTH, whose
// replies have codes of their own. What is our own trouble is logged.
func (c *conn) errorReply(err error) reply {
	var made replyError
	if errors.As(err, &made) {
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
