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

// apiUser is the user name of programs, whose password is an API key.
const apiUser = "api"

// sendScope is what a key must be allowed to.
const sendScope = "outbound.send"

// login is who the client is: a mailbox, or a program with an API key.
type login struct {
	mailbox   mailbox.Mailbox
	token     string // of the key; "" for a mailbox
	principal account.Principal
}

// logAttr names it in the log.
func (l *login) logAttr() []any {
	if l.token != "" {
		return []any{"key", l.principal.Key}
	}
	return []any{"mailbox", l.mailbox.ID}
}

// authenticate finds out who signs in, as Mailboxes.Authenticate says.
func (c *conn) authenticate(ctx context.Context, user, password string) (*login, error) {
	if strings.EqualFold(user, apiUser) && c.srv.Accounts != nil {
		return c.authenticateKey(ctx, password)
	}
	box, err := c.srv.Mailboxes.Authenticate(ctx, mailbox.SMTP, user, password, c.ip)
	return &login{mailbox: box}, err
}

// authenticateKey signs a program in. Wrong keys slow the network that tries them as
// wrong passwords do; a key is no address at which many could guess, so each
// stands for itself.
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

// setLogin notes who the client is.
func (c *conn) setLogin(who *login) reply {
	c.user = who
	if who.token == "" {
		c.revocations = c.srv.Hub.Subscribe(notify.Key{Kind: notify.Credential, ID: int64(who.mailbox.ID)})
		c.recheckLogin = true // it may have ended before the subscription began
	}
	c.log.Info("signed in", who.logAttr()...)
	return reply{235, "2.7.0", "Welcome"}
}

// checkLogin makes sure that a long session ends with the log-in it stands on.
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

// verifyLogin returns the fault with which the log-in has ended.
func (c *conn) verifyLogin(ctx context.Context) error {
	if c.user.token != "" { // what is known of a key is at hand
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
