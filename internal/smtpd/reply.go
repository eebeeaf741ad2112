// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"errors"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// reply is an answer to the client. The zero reply is none.
type reply struct {
	code     int
	enhanced string // RFC 3463; "" for none
	text     string // one line, or several parted by \n; only EHLO and HELP have those
}

var ok = reply{250, "2.0.0", "OK"}

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

// Codes of faults that have a reply of their own.
const codeLoop = inbound.CodeLoop

// translate gives a fault the words of SMTP: the only place where that is done
// but for AUTH, whose replies have codes of their own. Any other error is ours:
// it is logged, and the client may try again.
func (c *conn) translate(err error) reply {
	var bare *message.LineEndError
	if errors.As(err, &bare) {
		return reply{550, "5.5.2", "The message has a CR or LF that is not a CR LF (RFC 5321, section 2.3.8)"}
	}
	var f *fault.Error
	if !errors.As(err, &f) {
		f = &fault.Error{}
	}
	switch f.Kind {
	case fault.Invalid:
		return reply{554, "5.6.0", f.Message}
	case fault.TooLarge:
		return reply{552, "5.3.4", f.Message}
	case fault.Limited:
		return reply{450, "4.7.1", f.Message}
	case fault.OverQuota:
		if f.Code == mailbox.CodeFullLong {
			return reply{552, "5.2.2", f.Message}
		}
		return reply{452, "4.2.2", f.Message}
	case fault.NotFound:
		if f.Code == mailbox.CodeNotHosted {
			return reply{550, "5.7.1", f.Message}
		}
		return reply{550, "5.1.1", f.Message}
	case fault.Denied, fault.Unknown, fault.Conflict:
		switch f.Code {
		case mailbox.CodeSuspended:
			return reply{550, "5.2.1", f.Message}
		case codeLoop:
			return reply{554, "5.4.6", f.Message}
		}
		return reply{550, "5.7.1", f.Message}
	case fault.Unavailable:
		c.log.Warn("refused for now", "error", err)
		return reply{451, "4.3.0", f.Message}
	}
	c.log.Error("a command failed", "error", err)
	return reply{451, "4.3.0", "Something went wrong here; try again later"}
}
