// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/signal"
)

// loginCommand is LOGIN, which is refused before TLS (LOGINDISABLED, RFC 3501
// §6.2.3).
func (s *session) loginCommand(cmd *wire.Login) (wire.Code, error) {
	if !s.secure {
		return "", no(wire.CodePrivacyRequired, "Encrypt the connection first, with STARTTLS.")
	}
	return s.signIn(cmd.Username, cmd.Password)
}

// signIn enters the authenticated state by a password. A wrong one is delayed by
// mailbox.Authenticate.
func (s *session) signIn(user, password string) (wire.Code, error) {
	box, err := s.Mailboxes.Authenticate(s.ctx(), mailbox.IMAP, user, password, s.remote)
	if err != nil {
		return "", s.refused(err)
	}
	return s.signedIn(box), nil
}

// refused is the answer to a log-in that failed.
func (s *session) refused(err error) error {
	if kind := fault.KindOf(err); kind != fault.Internal {
		s.logger().Info("imap: login refused", "err", err)
	}
	if fault.Is(err, fault.Limited) {
		_ = signal.Sleep(s.ctx(), mailbox.RefusalPause) // at shutdown it is refused at once
	}
	return loginRefusal(err)
}

// signedIn enters the authenticated state.
func (s *session) signedIn(box mailbox.Mailbox) wire.Code {
	s.box, s.login = box.ID, box
	s.listed = s.Mailboxes.Opened(box, mailbox.IMAP, s.remote)
	s.Mailboxes.Named(s.listed, s.program)
	s.user.Store(&user{box.ID, box.Account, box.Domain})
	s.doubted.Store(true) // the log-in may have ended before Revoked could find the session
	s.mistakes = 0
	s.stream.until = time.Time{}
	s.r.Limits = wire.LimitsAfterLogin(MaxMessage)
	s.logger().Info("imap: login")
	return wire.Capabilities(s.capabilities()...)
}
