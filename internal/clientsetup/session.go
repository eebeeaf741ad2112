// SPDX-License-Identifier: Apache-2.0

package clientsetup

import (
	"bufio"
	"errors"
	"io"
	"slices"
	"strings"
)

// session runs the beginning of IMAP and SMTP sessions, like a mail client.
type session struct {
	r          *bufio.Reader
	w          io.Writer
	clientName string // name for EHLO
}

// Limits for a server's responses.
const (
	maxLine  = 8 << 10 // bytes; size of the read buffer
	maxLines = 100     // lines of one response
)

// userError is an error in words for people.
type userError string

func (a userError) Error() string { return string(a) }

func newSession(conn io.ReadWriter, name string) *session {
	return &session{r: bufio.NewReaderSize(conn, maxLine), w: conn, clientName: name}
}

func (d *session) readLine() (string, error) {
	text, err := d.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = userError("The server says what no mail server says.")
	}
	return strings.TrimRight(string(text), "\r\n"), err
}

func (d *session) writeLine(line string) error {
	_, err := io.WriteString(d.w, line+"\r\n")
	return err
}

// imapGreeting reads the greeting (RFC 9051 §7.1).
func (d *session) imapGreeting() error {
	text, err := d.readLine()
	if err == nil && !strings.HasPrefix(strings.ToUpper(text), "* OK") {
		err = userError("The server declines connections at the moment.")
	}
	return err
}

// imapCommand sends a command and returns the untagged lines before its OK.
func (d *session) imapCommand(command string) (untagged []string, err error) {
	if err := d.writeLine("a " + command); err != nil {
		return nil, err
	}
	for range maxLines {
		text, err := d.readLine()
		if err != nil {
			return nil, err
		}
		upper := strings.ToUpper(text)
		switch {
		case strings.HasPrefix(upper, "A OK"):
			return untagged, nil
		case strings.HasPrefix(upper, "A "), strings.HasPrefix(upper, "* BYE"):
			return nil, userError("The server refuses " + command + ".")
		}
		untagged = append(untagged, upper)
	}
	return nil, userError("The server says what no mail server says.")
}

// imapStartTLS sends STARTTLS; the TLS handshake follows (RFC 9051 §6.2.1).
func (d *session) imapStartTLS() error {
	if err := d.imapGreeting(); err != nil {
		return err
	}
	_, err := d.imapCommand("STARTTLS")
	return err
}

// imapCheckAuth checks whether clients can sign in; greeting reports whether to read the greeting
// first.
func (d *session) imapCheckAuth(greeting bool) error {
	if greeting {
		if err := d.imapGreeting(); err != nil {
			return err
		}
	}
	lines, err := d.imapCommand("CAPABILITY")
	if err != nil {
		return err
	}
	_ = d.writeLine("a LOGOUT") // the connection closes anyway
	return checkOffer(slices.ContainsFunc(lines, func(l string) bool { return slices.Contains(strings.Fields(l), "AUTH=PLAIN") }))
}

// checkOffer returns an error if the server doesn't offer signing in.
func checkOffer(offers bool) error {
	if !offers {
		return userError("The server does not offer signing in with a password.")
	}
	return nil
}

// smtpReply reads a reply and returns its lines without their codes (RFC 5321
// §4.2).
func (d *session) smtpReply(code string) (lines []string, err error) {
	for range maxLines {
		text, err := d.readLine()
		if err != nil {
			return nil, err
		}
		if len(text) < 3 || text[:3] != code {
			return nil, userError("The server declines connections at the moment.")
		}
		if len(text) == 3 || text[3] != '-' {
			return append(lines, strings.ToUpper(strings.TrimSpace(text[3:]))), nil
		}
		lines = append(lines, strings.ToUpper(text[4:]))
	}
	return nil, userError("The server says what no mail server says.")
}

func (d *session) smtpCommand(command, code string) ([]string, error) {
	if err := d.writeLine(command); err != nil {
		return nil, err
	}
	return d.smtpReply(code)
}

// smtpStartTLS sends STARTTLS; the TLS handshake follows (RFC 3207).
func (d *session) smtpStartTLS() error {
	if _, err := d.smtpReply("220"); err != nil {
		return err
	}
	if _, err := d.smtpCommand("EHLO "+d.clientName, "250"); err != nil {
		return err
	}
	_, err := d.smtpCommand("STARTTLS", "220")
	return err
}

func (d *session) smtpCheckAuth(greeting bool) error {
	if greeting {
		if _, err := d.smtpReply("220"); err != nil {
			return err
		}
	}
	lines, err := d.smtpCommand("EHLO "+d.clientName, "250")
	if err != nil {
		return err
	}
	_ = d.writeLine("QUIT") // the connection closes anyway
	return checkOffer(slices.ContainsFunc(lines, func(l string) bool {
		words := strings.Fields(l)
		return len(words) > 1 && words[0] == "AUTH" && slices.Contains(words, "PLAIN")
	}))
}
