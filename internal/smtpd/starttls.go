// SPDX-License-Identifier: Apache-2.0

package smtpd

import "context"

// starttls handles STARTTLS (RFC 3207).
func (c *conn) starttls(ctx context.Context, arg string) reply {
	switch {
	case arg != "":
		return reply{501, "5.5.4", "STARTTLS has no argument"}
	case c.tls != nil:
		return reply{503, "5.5.1", "TLS is on already"}
	case c.srv.TLS == nil:
		return reply{454, "4.7.0", "TLS is not available"}
	case c.tx != nil:
		return reply{503, "5.5.1", "Not within a transaction"}
	case c.br.Buffered() > 0:
		// An attacker in between may have injected commands into the clear text, to be executed as
		// if they had come inside TLS.
		c.log.Warn("commands were sent after STARTTLS in clear")
		c.closing = true
		return reply{554, "5.5.1", "Nothing may follow STARTTLS before TLS"}
	}
	c.writeReply(reply{220, "2.0.0", "Begin TLS"})
	if c.flush() != nil || !c.startTLS(ctx) {
		c.closing = true
		return reply{}
	}
	// Forget what the client sent in clear (RFC 3207 §4.2).
	c.helo, c.esmtp = "", false
	return reply{}
}
