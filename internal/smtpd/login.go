// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// apiUser is the user name of programs, which use an API key as their password.
const apiUser = "api"

// sendScope is the scope that a key needs.
const sendScope = "outbound.send"

// login is the client's login: a mailbox, or a program with an API key.
type login struct {
	mailbox   mailbox.Mailbox
	token     string // API key; "" for a mailbox
	principal account.Principal
}

// logAttr returns the log attributes that identify it.
func (l *login) logAttr() []any {
	if l.token != "" {
		return []any{"key", l.principal.Key}
	}
	return []any{"mailbox", l.mailbox.ID}
}

// authenticate checks a user and password; see Mailboxes.Authenticate for the errors.
func (c *conn) authenticate(ctx context.Context, user, password string) (*login, error) {
	if strings.EqualFold(user, apiUser) && c.srv.Accounts != nil {
		return c.authenticateKey(ctx, password)
	}
	box, err := c.srv.Mailboxes.Authenticate(ctx, mailbox.SMTP, user, password, c.ip)
	return &login{mailbox: box}, err
}

// authenticateKey checks an API key. Wrong keys slow down the network that tries them, as wrong
// passwords do. Each key counts as a credential of its own, since many clients can't guess at one
// key as they can at one address.
func (c *conn) authenticateKey(ctx context.Context, token string) (*login, error) {
	logins := c.srv.Mailboxes.Logins
	var key account.Principal
	var wrong error
	who := logins.HashedCredential(apiUser, token)
	right, err := logins.Try(ctx, c.ip, token, []ratelimit.Credential{who}, func([]ratelimit.Credential) (ratelimit.Credential, error) {
		var err error
		if key, err = c.srv.Accounts.Authenticate(ctx, token, c.ip); fault.Is(err, fault.Unauthenticated) {
			wrong = err
			return "", nil
		}
		return who, err
	})
	if err == nil && right == "" {
		err = wrong
	}
	if err != nil {
		return nil, err
	}
	return &login{token: token, principal: key}, key.RequireScope(sendScope)
}

// setLogin sets the session's login, and returns the reply.
func (c *conn) setLogin(who *login) reply {
	c.user = who
	if who.token == "" {
		c.revocations = c.srv.Hub.Subscribe(notify.Key{Kind: notify.Credential, ID: int64(who.mailbox.ID)})
		c.recheckLogin = true // it may have been revoked before the subscription began
	}
	c.log.Info("signed in", who.logAttr()...)
	return reply{235, "2.7.0", "Welcome"}
}

// checkLogin ends a long session whose login is no longer valid.
func (c *conn) checkLogin(ctx context.Context) reply {
	switch err := c.verifyLogin(ctx); {
	case fault.Is(err, fault.Unauthenticated), fault.Is(err, fault.Denied):
		c.closing = true
		return reply{421, "4.7.0", "Your log-in has ended; sign in again"}
	case err != nil:
		return c.errorReply(err)
	}
	return reply{}
}

// verifyLogin returns the error if the login is no longer valid.
func (c *conn) verifyLogin(ctx context.Context) error {
	if c.user.token != "" { // keys are cheap to check: their data is cached
		key, err := c.srv.Accounts.Authenticate(ctx, c.user.token, c.ip)
		if err == nil {
			c.user.principal = key
			err = key.RequireScope(sendScope)
		}
		return err
	}
	select {
	case <-c.revocations.C:
		c.recheckLogin = true
	default:
	}
	if err := c.srv.Mailboxes.CheckActive(ctx, c.user.mailbox); err != nil || !c.recheckLogin {
		return err
	}
	err := c.srv.Mailboxes.CheckLogin(ctx, c.user.mailbox)
	c.recheckLogin = err != nil
	return err
}
