// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
)

// hello handles EHLO and HELO. Both end a transaction (RFC 5321 §4.1.4).
func (c *conn) hello(name string, extended bool) reply {
	if !validHelo(name) {
		return reply{501, "5.5.4", "Tell your host name"}
	}
	c.resetTransaction()
	c.idleCommands++
	c.helo, c.esmtp = name, extended
	if !extended {
		return reply{250, "", c.srv.Host}
	}
	var b strings.Builder
	b.WriteString(c.srv.Host)
	b.WriteString("\nPIPELINING\nSIZE ")
	b.WriteString(strconv.FormatInt(c.srv.maxSize(), 10))
	b.WriteString("\n8BITMIME\nSMTPUTF8\nENHANCEDSTATUSCODES\nCHUNKING\nLIMITS RCPTMAX=")
	b.WriteString(strconv.Itoa(c.srv.maxRecipients()))
	if c.offersDSN() {
		b.WriteString("\nDSN")
	}
	if c.offersRequireTLS() {
		b.WriteString("\nREQUIRETLS")
	}
	if c.tls == nil && c.srv.TLS != nil {
		b.WriteString("\nSTARTTLS")
	}
	if c.offersAuth() {
		b.WriteString("\nAUTH " + c.mechanisms())
	}
	return reply{250, "", b.String()}
}

// validHelo accepts the names that real clients send, if they can be used in a Received field. It
// does not verify names (RFC 5321 §4.1.4).
func validHelo(name string) bool {
	if name == "" || len(name) > address.MaxDomain+2 {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c <= ' ', c >= 0x7f, c == '(', c == ')', c == ';', c == '\\', c == '"', c == '<', c == '>':
			return false
		}
	}
	return true
}
