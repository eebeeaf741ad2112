// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// AppPassword is a mailbox password for one application or device.
type AppPassword struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Protocols  []string   `json:"protocols"` // imap, smtp
	Password   string     `json:"password"`  // only in the response that created it
	CreatedAt  time.Time  `json:"created_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the hour; nil: never
}

// SignIn is an attempt to sign in to a mailbox, or several similar ones within an hour.
type SignIn struct {
	ID          string    `json:"id"`
	Protocol    string    `json:"protocol"` // imap, smtp or web
	IP          string    `json:"ip"`       // client address, or its network
	Result      string    `json:"result"`   // ok, wrong_password, no_verifier, suspended or wrong_protocol
	AppPassword string    `json:"app_password"`
	Count       int64     `json:"count"`
	FirstAt     time.Time `json:"first_at"`
	LastAt      time.Time `json:"last_at"`
}

// MailboxSession is an authenticated connection of a mail program to a mailbox.
type MailboxSession struct {
	ID          string    `json:"id"`
	Protocol    string    `json:"protocol"` // imap
	IP          string    `json:"ip"`
	AppPassword string    `json:"app_password"` // its name; "" for the mailbox's own password
	Program     string    `json:"program"`      // client's own name; "" if it gives none
	StartedAt   time.Time `json:"started_at"`
}

// CreateAppPassword creates a password for an application of a mailbox's user. It is valid for the
// given protocols, imap and smtp, or for both if there are none.
func (c *Client) CreateAppPassword(ctx context.Context, mailbox, name string, protocols ...string) (*AppPassword, error) {
	return post[AppPassword](ctx, c, "/mailboxes/{id}/app-passwords", mailbox, struct {
		Name      string   `json:"name"`
		Protocols []string `json:"protocols,omitempty"`
	}{name, protocols}, false)
}

// ListAppPasswords returns a page of a mailbox's app passwords, newest first.
func (c *Client) ListAppPasswords(ctx context.Context, mailbox string, p Paging) (*Page[AppPassword], error) {
	return do[Page[AppPassword]](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/app-passwords", id: mailbox, query: p.into(nil)})
}

// RevokeAppPassword revokes an app password and ends its sessions.
func (c *Client) RevokeAppPassword(ctx context.Context, mailbox, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/mailboxes/{id}/app-passwords/" + url.PathEscape(id), id: mailbox})
}

// ListMailboxSessions returns a page of a mailbox's IMAP sessions on all nodes, newest first.
func (c *Client) ListMailboxSessions(ctx context.Context, mailbox string, p Paging) (*Page[MailboxSession], error) {
	return do[Page[MailboxSession]](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/sessions", id: mailbox, query: p.into(nil)})
}

// ListSignIns returns a page of attempts to sign in to a mailbox, newest first.
func (c *Client) ListSignIns(ctx context.Context, mailbox string, p Paging) (*Page[SignIn], error) {
	return do[Page[SignIn]](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/sign-ins", id: mailbox, query: p.into(nil)})
}
