// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-sasl"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/egress"
)

const (
	// connectTimeout is the limit for connecting, including TLS.
	connectTimeout = 30 * time.Second
	// maxBeforeTLS is the limit for a source's data before STARTTLS, in bytes. smallResponse is the
	// limit for the response to a command with a short response.
	maxBeforeTLS  = 16 << 10
	smallResponse = 1 << 20
)

// permanentError is an error that a retry won't fix. Its text is shown to users.
type permanentError struct{ text string }

func (f permanentError) Error() string { return f.text }

// fieldError is a permanent error caused by one field of the source, by its name in the API.
type fieldError struct {
	permanentError
	field string
}

func (a fieldError) Unwrap() error { return a.permanentError }

// protocolError is a response that can't be parsed. A later one may be valid.
type protocolError struct{ error }

func (g protocolError) Unwrap() error { return g.error }

// session is an authenticated connection to a source.
type session struct {
	*imapclient.Client
	conn *sourceConn
	caps imap.CapSet
	rev2 bool // IMAP4rev2 is offered
	stop func() bool

	uidOrderKnown, lateUIDs bool // see detectLateUIDs
}

// connect connects and signs in. The end of ctx also ends the connection.
func (m *Service) connect(ctx context.Context, from *Source) (*session, error) {
	short, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := m.dial(short, from)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, explainDial(err)
	}
	l := &sourceConn{Conn: conn, idleTimeout: m.options.IdleTimeout, hideRev2: true}
	if from.TLS == StartTLS {
		l.readBuf = []byte("* OK\r\n") // the real greeting came before TLS
	}
	l.beginCommand(smallResponse)
	s := &session{conn: l, Client: imapclient.New(l, nil)}
	s.stop = context.AfterFunc(ctx, func() { _ = l.Close() })
	if err := s.login(from); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// dial connects to one of the permitted addresses, with TLS unless the source has none.
func (m *Service) dial(ctx context.Context, from *Source) (net.Conn, error) {
	conn, err := m.options.Dialer.Dial(ctx, from.Host, strconv.Itoa(from.Port))
	if err != nil || from.TLS == NoTLS {
		return conn, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if from.TLS == StartTLS {
		if err := startTLS(conn); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	secured := tls.Client(conn, &tls.Config{
		ServerName: from.Host, RootCAs: m.options.Roots, MinVersion: tls.VersionTLS12,
		InsecureSkipVerify: from.Insecure, //nolint:gosec // the customer has asked for it
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return secured, nil
}

// startTLS runs the cleartext part of the connection. It rejects data after the response and before
// TLS: an attacker may have injected it.
func startTLS(conn net.Conn) error {
	var text []byte
	next := func(enough func(line string) bool) error {
		for {
			if line, rest, ok := bytes.Cut(text, []byte("\n")); ok {
				text = rest
				if enough(strings.TrimRight(string(line), "\r")) {
					return nil
				}
				continue
			}
			if len(text) > maxBeforeTLS {
				return errTooMuchData
			}
			var chunk [1024]byte
			n, err := conn.Read(chunk[:])
			if text = append(text, chunk[:n]...); err != nil && n == 0 {
				return err
			}
		}
	}
	var said string
	if err := next(func(line string) bool { said = line; return true }); err != nil {
		return err
	}
	if word := strings.ToUpper(said); !strings.HasPrefix(word, "* OK") {
		if strings.HasPrefix(word, "* PREAUTH") {
			return fieldError{permanentError{"The source signs us in before TLS; that can't be trusted."}, "source.tls"}
		}
		return protocolError{errors.New("no IMAP greeting")}
	}
	if _, err := io.WriteString(conn, "t STARTTLS\r\n"); err != nil {
		return err
	}
	err := next(func(line string) bool { said = line; return strings.HasPrefix(line, "t ") })
	if err != nil {
		return err
	}
	if !strings.HasPrefix(strings.ToUpper(said), "T OK") {
		return fieldError{permanentError{"The source does not offer STARTTLS. Use TLS from the start (implicit, mostly on port 993)."}, "source.tls"}
	}
	if len(text) > 0 {
		return fieldError{permanentError{"The source said something between STARTTLS and TLS; that can't be trusted."}, "source.tls"}
	}
	return nil
}

// explainDial returns a readable reason why a host was not reached.
func explainDial(err error) error {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	switch {
	case errors.Is(err, egress.ErrNoAllowedAddr):
		return fieldError{permanentError{"The host of the source has no address on the public Internet."}, "source.host"}
	case errors.Is(err, dns.ErrNotFound), errors.Is(err, dns.ErrNoData):
		return fieldError{permanentError{"There is no host with the name of the source."}, "source.host"}
	case errors.As(err, &unknown):
		return fieldError{permanentError{"The certificate of the source comes from an authority that is not trusted. insecure_skip_verify accepts it nevertheless."}, "source.insecure_skip_verify"}
	case errors.As(err, &name):
		return fieldError{permanentError{"The certificate of the source is for another host. insecure_skip_verify accepts it nevertheless."}, "source.insecure_skip_verify"}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fieldError{permanentError{"The certificate of the source has expired, or is not yet valid. insecure_skip_verify accepts it nevertheless."}, "source.insecure_skip_verify"}
	case errors.As(err, &verify):
		return fieldError{permanentError{"The certificate of the source is not valid. insecure_skip_verify accepts it nevertheless."}, "source.insecure_skip_verify"}
	case errors.As(err, &record):
		return fieldError{permanentError{"The source does not speak TLS from the start on this port. Use starttls, or another port."}, "source.tls"}
	}
	return err
}

// login reads the greeting and signs in.
func (s *session) login(from *Source) error {
	if err := s.wrapError(s.WaitGreeting()); err != nil {
		return err
	}
	if s.State() == imap.ConnStateAuthenticated {
		return s.loadCapabilities()
	}
	caps, err := s.fetchCapabilities()
	if err != nil {
		return err
	}
	if caps.Has(imap.CapLoginDisabled) || len(from.Username) > 0 && !isASCII(from.Username+from.Password) && caps.Has("AUTH=PLAIN") {
		if !caps.Has("AUTH=PLAIN") {
			return fieldError{permanentError{"The source allows no sign-in on this connection. It may want TLS."}, "source.tls"}
		}
		err = s.Authenticate(sasl.NewPlainClient("", from.Username, from.Password))
	} else {
		err = s.Login(from.Username, from.Password).Wait()
	}
	if err := s.wrapError(err); err != nil {
		return explainLogin(err)
	}
	return s.loadCapabilities()
}

// fetchCapabilities requests the source's capabilities. The client library's own way waits half a
// minute if a source doesn't send them.
func (s *session) fetchCapabilities() (imap.CapSet, error) {
	s.conn.beginCommand(smallResponse)
	caps, err := s.Capability().Wait()
	if err == nil && caps == nil {
		err = protocolError{errors.New("no capabilities")}
	}
	return caps, s.wrapError(err)
}

// loadCapabilities loads the source's capabilities.
func (s *session) loadCapabilities() (err error) {
	s.caps, err = s.fetchCapabilities()
	s.rev2 = s.conn.stopHidingRev2()
	s.conn.endCommand()
	return err
}

// supports reports whether a source supports an extension, possibly as part of IMAP4rev2.
func (s *session) supports(c imap.Cap) bool { return s.rev2 || s.caps.Has(c) }

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII })
}

// explainLogin distinguishes wrong credentials from a busy source.
func explainLogin(err error) error {
	var said *imap.Error
	if !errors.As(err, &said) || isTemporary(said) {
		return err
	}
	return fieldError{permanentError{"The source refuses the user name and the password" + quoteReply(said.Text)}, "source.password"}
}

// isTemporary reports whether a refusal is temporary.
func isTemporary(said *imap.Error) bool {
	switch said.Code {
	case imap.ResponseCodeUnavailable, imap.ResponseCodeLimit, imap.ResponseCodeInUse, imap.ResponseCodeServerBug:
		return true
	}
	text := strings.ToLower(said.Text)
	return said.Type == imap.StatusResponseTypeBye || slices.ContainsFunc([]string{
		"throttl", "too many", "try again", "try later", "temporar", "unavailable", "rate limit", "busy", "bandwidth",
	}, func(word string) bool { return strings.Contains(text, word) })
}

// quoteReply returns a source's text in printable form, as the end of a sentence.
func quoteReply(text string) string {
	if text = printable(text); text == "" {
		return "."
	}
	return ": " + text
}

// printable returns a source's text in printable form.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, ""))
	if r := []rune(text); len(r) > 200 {
		text = string(r[:200]) + "…"
	}
	return text
}

// wrapError returns the result of a command: nil, an *imap.Error if the source refused it, why the
// connection broke, or that the response was malformed.
func (s *session) wrapError(err error) error {
	if err == nil {
		return nil
	}
	var said *imap.Error
	var last permanentError
	if errors.As(err, &said) || errors.As(err, &last) {
		return err
	}
	if cause := s.conn.err(); cause != nil {
		// The client library closes the connection when it can't parse a response.
		if errors.Is(cause, errTooMuchData) || errors.Is(cause, errBadSearchResult) || errors.Is(cause, errBadResponse) || errors.Is(cause, net.ErrClosed) {
			return protocolError{cause}
		}
		return cause
	}
	return protocolError{err}
}

// refusal returns a reason with the source's text if the source permanently refused a command.
func refusal(err error) (string, bool) {
	var said *imap.Error
	if !errors.As(err, &said) || isTemporary(said) {
		return "", false
	}
	return "The source refuses it" + quoteReply(said.Text), true
}

// retryReason returns a readable reason for a retry.
func retryReason(err error) string {
	var said *imap.Error
	var strange protocolError
	var op *net.OpError
	switch {
	case errors.Is(err, errPreempted):
		return "The source has brought nothing for long, and others wait."
	case errors.As(err, &said):
		return "The source is busy" + quoteReply(said.Text)
	case errors.As(err, &strange):
		return "The source's answers can't be understood."
	case errors.Is(err, errTimeout), errors.Is(err, context.DeadlineExceeded):
		return "The source has not answered in time."
	case errors.As(err, &op) && op.Op == "dial":
		return "The source could not be reached."
	case errors.Is(err, dns.ErrTemporary):
		return "The name of the source could not be looked up."
	}
	return "The connection to the source broke off."
}

// close ends the connection.
func (s *session) close() {
	if s.stop != nil {
		s.stop()
	}
	_ = s.conn.Close()
	_ = s.Close()
}

// logout sends LOGOUT and closes the connection.
func (s *session) logout() {
	s.conn.limitIdle(finishTimeout)
	s.conn.beginCommand(smallResponse)
	_ = s.Logout().Wait()
	s.close()
}

// String returns host and port, for logs.
func (f *Source) String() string { return fmt.Sprintf("%s:%d", f.Host, f.Port) }
