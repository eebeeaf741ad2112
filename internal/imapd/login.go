// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

// loginCommand handles LOGIN, which is rejected before TLS (LOGINDISABLED, RFC 3501 §6.2.3).
func (s *session) loginCommand(cmd *wire.Login) (wire.Code, error) {
	if !s.isTLS {
		return "", no(wire.CodePrivacyRequired, "Encrypt the connection first, with STARTTLS.")
	}
	return s.loginPassword(cmd.Username, cmd.Password)
}

// loginPassword logs in with a password. mailbox.Authenticate delays wrong ones.
func (s *session) loginPassword(user, password string) (wire.Code, error) {
	box, err := s.Mailboxes.Authenticate(s.ctx(), mailbox.IMAP, user, password, s.remote)
	if err != nil {
		return "", s.loginFailed(err)
	}
	return s.loginSucceeded(box), nil
}

// loginFailed returns the response to a failed login.
func (s *session) loginFailed(err error) error {
	if kind := fault.KindOf(err); kind != fault.Internal {
		s.logger().Info("imap: login refused", "err", err)
	}
	if fault.Is(err, fault.RateLimited) {
		_ = notify.Sleep(s.ctx(), mailbox.TooManyLoginsDelay) // at shutdown the login is rejected at once
	}
	return suspendedLoginError(err)
}

// loginSucceeded enters the authenticated state.
func (s *session) loginSucceeded(box mailbox.Mailbox) wire.Code {
	s.mailboxID, s.mailbox = box.ID, box
	s.sessionID = s.Mailboxes.OpenSession(box, mailbox.IMAP, s.remote)
	s.Mailboxes.SetSessionProgram(s.sessionID, s.clientName)
	s.user.Store(&sessionOwner{box.ID, box.Account, box.Domain})
	s.needsLoginCheck.Store(true) // the login may have ended before RecheckLogins could find the session
	s.errorCount = 0
	s.stream.readDeadline = time.Time{}
	s.r.Limits = wire.LimitsAfterLogin(MaxMessageBytes)
	s.logger().Info("imap: login")
	return wire.CodeCapability(s.capabilities()...)
}
