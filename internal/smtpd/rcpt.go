// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// rcpt handles RCPT TO (RFC 5321 §4.1.1.3).
func (c *conn) rcpt(ctx context.Context, arg string) reply {
	l := c.tx
	if l == nil {
		return reply{503, "5.5.1", "Say MAIL first"}
	}
	path, rest, good := cutPath(arg, "TO:")
	if !good || path == "" {
		return reply{501, "5.5.2", "The syntax is RCPT TO:<address>"}
	}
	wants, r := c.parseRcptOptions(rest)
	if r.code != 0 {
		return r
	}
	if len(l.accepted) >= c.srv.maxRecipients() {
		return reply{452, "4.5.3", "Too many recipients; send them in another transaction"}
	}
	to := address.Address{Local: "postmaster"} // RFC 5321 §4.5.1
	if !strings.EqualFold(path, to.Local) || c.srv.Mode != MX {
		if to, r = l.parseAddress(path); r.code != 0 {
			c.rejectedRcpts++
			return r
		}
	}
	if err := l.AddRecipient(ctx, to, wants); err != nil {
		r := c.errorReply(err)
		c.rejectedRcpts++
		if fault.Is(err, fault.NotFound) {
			r = c.unknownRcptReply(ctx, r)
		}
		c.log.Info("recipient refused", "to", to.String(), "code", r.code, "enhanced", r.enhanced)
		return r
	}
	l.accepted = append(l.accepted, path)
	return reply{250, "2.1.5", "Recipient OK"}
}

// unknownRcptReply returns the reply for a recipient that does not exist. It delays a client that
// tries out names more and more, and in the end disconnects it.
func (c *conn) unknownRcptReply(ctx context.Context, r reply) reply {
	c.unknownRcpts++
	wait := c.srv.ClientLimiter.TarpitDelay(c.ip, c.unknownRcpts)
	if !c.srv.ClientLimiter.AllowUnknownRecipient(c.ip) {
		c.closing = true
		wait = c.srv.ClientLimiter.TarpitDelay(c.ip, maxRejectedRcpts)
		r = reply{421, "4.7.0", "Too many recipients that do not exist; try again later"}
	}
	if wait > 0 {
		_ = c.flush() // don't delay earlier replies; bw keeps an error
		_ = notify.Sleep(ctx, wait)
	}
	return r
}
