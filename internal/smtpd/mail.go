// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
)

// mail handles MAIL FROM (RFC 5321 §4.1.1.2).
func (c *conn) mail(ctx context.Context, arg string) reply {
	switch {
	case c.helo == "":
		return reply{503, "5.5.1", "Say EHLO first"}
	case c.srv.Mode != MX && c.user == nil:
		return reply{530, "5.7.0", "Sign in first"}
	case c.tx != nil:
		return reply{503, "5.5.1", "There is a transaction already"}
	}
	path, rest, good := cutPath(arg, "FROM:")
	if !good {
		return reply{501, "5.5.2", "The syntax is MAIL FROM:<address>"}
	}
	l := &currentTransaction{envelope: Envelope{ClientIP: c.ip, Helo: c.helo, TLS: c.tls != nil}}
	if r := l.parseParams(rest, mailParams{c.srv.maxSize(), c.offersDSN(), c.offersRequireTLS()}); r.code != 0 {
		return r
	}
	if path != "" {
		from, r := l.parseAddress(path)
		if r.code != 0 {
			return r
		}
		l.envelope.From = &from
	}
	if c.user != nil {
		if r := c.checkLogin(ctx); r.code != 0 {
			return r
		}
		l.envelope.Mailbox, l.envelope.Principal = c.user.mailbox, c.user.principal
	}
	if !c.srv.ClientLimiter.AllowMessage(c.ip) {
		c.log.Info("too many messages from a network")
		return reply{450, "4.7.1", "Too many messages from your network; try again later"}
	}
	var err error
	if l.Transaction, err = c.srv.Backend.Begin(ctx, l.envelope); err != nil {
		return c.errorReply(err)
	}
	c.tx = l
	return reply{250, "2.1.0", "Sender OK"}
}

// mailParams are the parameters of MAIL that a session accepts.
type mailParams struct {
	maxSize         int64 // maximum SIZE, in octets
	dsn, requireTLS bool
}

// parseParams parses the parameters of MAIL. It returns the zero reply if they are valid.
func (l *currentTransaction) parseParams(s string, o mailParams) reply {
	params, good := parseParams(s)
	if !good {
		return reply{501, "5.5.4", "A parameter is given twice"}
	}
	for _, p := range params {
		switch p.name {
		case "SIZE": // RFC 1870
			n, err := strconv.ParseInt(p.value, 10, 64)
			if err != nil || n < 0 {
				return reply{501, "5.5.4", "SIZE needs a number"}
			}
			if n > o.maxSize {
				return reply{552, "5.3.4", "The message is too large"}
			}
			l.envelope.Size = n
		case "BODY": // RFC 6152
			switch strings.ToUpper(p.value) {
			case "7BIT":
			case "8BITMIME":
				l.eightBit = true
			default:
				return reply{501, "5.5.4", "BODY is 7BIT or 8BITMIME"}
			}
		case "SMTPUTF8": // RFC 6531
			if p.value != "" {
				return reply{501, "5.5.4", "SMTPUTF8 has no value"}
			}
			l.utf8 = true
		case "AUTH": // RFC 4954 §5: the original submitter does not matter here
		default:
			r, known := reply{}, false
			if o.dsn {
				r, known = l.envelope.parseDSNParam(p)
			}
			if !known && o.requireTLS {
				r, known = l.envelope.parseRequireTLSParam(p)
			}
			if !known {
				return reply{555, "5.5.4", "There is no such parameter"}
			}
			if r.code != 0 {
				return r
			}
		}
	}
	return reply{}
}

// parseAddress parses an address of the envelope. It returns the zero reply if it is valid.
func (l *currentTransaction) parseAddress(path string) (address.Address, reply) {
	if !l.utf8 {
		for i := range len(path) {
			if path[i] >= utf8.RuneSelf {
				return address.Address{}, reply{553, "5.6.7", "Such an address needs SMTPUTF8"}
			}
		}
	}
	a, err := address.Parse(path)
	if err != nil {
		return a, reply{501, "5.1.3", "This is not a mail address that can be used here"}
	}
	return a, reply{}
}
