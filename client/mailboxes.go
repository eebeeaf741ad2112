// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Mailbox is an address with a password, for mail programs.
type Mailbox struct {
	ID          string     `json:"id"`
	DomainID    string     `json:"domain_id"`
	Address     string     `json:"address"` // the user name, too
	LocalPart   string     `json:"local_part"`
	DisplayName string     `json:"display_name"`
	Password    string     `json:"password"`    // if it was generated, in the answer that made it
	QuotaMB     int64      `json:"quota_mb"`    // megabytes of 1,048,576 bytes
	UsedBytes   int64      `json:"used_bytes"`  // how much it holds
	Messages    int64      `json:"messages"`    // how many it holds
	Status      string     `json:"status"`      // active or suspended
	SpamFilter  string     `json:"spam_filter"` // off, lenient, normal or strict
	ForwardTo   []string   `json:"forward_to"`  // where its mail goes as well
	KeepCopy    bool       `json:"keep_copy"`   // what is forwarded is kept here too
	CreatedAt   time.Time  `json:"created_at"`
	DeletedAt   *time.Time `json:"deleted_at"` // of one that can be restored
}

// NewMailbox describes a mailbox to be made.
type NewMailbox struct {
	DomainID    string `json:"domain_id"` // its ownership is verified
	LocalPart   string `json:"local_part"`
	Password    string `json:"password,omitempty"` // one is generated if it is empty
	DisplayName string `json:"display_name,omitempty"`
	QuotaMB     int    `json:"quota_mb,omitempty"` // 1024 if 0
}

// MailboxChange says what to change; what is nil stays.
type MailboxChange struct {
	DisplayName *string `json:"display_name,omitempty"`
	QuotaMB     *int    `json:"quota_mb,omitempty"`
	Status      *string `json:"status,omitempty"` // active or suspended
	// ForwardTo are at most 10 addresses that its mail goes to as well; an empty
	// list ends that.
	ForwardTo *[]string `json:"forward_to,omitempty"`
	KeepCopy  *bool     `json:"keep_copy,omitempty"` // what is forwarded is kept here too
	// SpamFilter is how much the spam filter may say about mail to it: off,
	// lenient (it takes about twice the score to be spam, and nothing is refused),
	// normal, or strict (half of the score is enough).
	SpamFilter *string `json:"spam_filter,omitempty"`
}

// MailboxFilter says which mailboxes are wanted; the zero value is all that
// live.
type MailboxFilter struct {
	DomainID string // only those of this domain
	Deleted  bool   // those that can be restored, instead of those that live
}

func (f MailboxFilter) query() url.Values {
	q := url.Values{}
	set(q, "domain_id", f.DomainID)
	if f.Deleted {
		q.Set("deleted", "true")
	}
	return q
}

// CreateMailbox makes a mailbox.
func (c *Client) CreateMailbox(ctx context.Context, m NewMailbox) (*Mailbox, error) {
	return post[Mailbox](ctx, c, "/mailboxes", "", m, false)
}

// ListMailboxes returns a page of mailboxes, newest first.
func (c *Client) ListMailboxes(ctx context.Context, f MailboxFilter, p Paging) (*Page[Mailbox], error) {
	return list[Mailbox](ctx, c, "/mailboxes", f.query(), p)
}

// Mailboxes walks through all mailboxes that fit, newest first. After an error
// it ends.
func (c *Client) Mailboxes(ctx context.Context, f MailboxFilter) iter.Seq2[Mailbox, error] {
	return walk(func(p Paging) (*Page[Mailbox], error) { return c.ListMailboxes(ctx, f, p) })
}

// GetMailbox shows a mailbox.
func (c *Client) GetMailbox(ctx context.Context, id string) (*Mailbox, error) {
	return do[Mailbox](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}", id: id})
}

// UpdateMailbox changes a mailbox.
func (c *Client) UpdateMailbox(ctx context.Context, id string, change MailboxChange) (*Mailbox, error) {
	b, err := jsonBody(change)
	if err != nil {
		return nil, err
	}
	return do[Mailbox](ctx, c, call{method: http.MethodPatch, path: "/mailboxes/{id}", id: id, body: b, again: true})
}

// DeleteMailbox deletes a mailbox; for 30 days it can be restored.
func (c *Client) DeleteMailbox(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/mailboxes/{id}", id: id})
}

// RestoreMailbox restores a deleted mailbox with all its mail, unless its
// address was given to another meanwhile (ErrConflict).
func (c *Client) RestoreMailbox(ctx context.Context, id string) (*Mailbox, error) {
	return do[Mailbox](ctx, c, call{method: http.MethodPost, path: "/mailboxes/{id}/restore", id: id})
}

// SetMailboxPassword sets a mailbox's password; sessions with the old one end.
// If it is empty one is generated and returned.
func (c *Client) SetMailboxPassword(ctx context.Context, id, password string) (generated string, err error) {
	in := call{method: http.MethodPost, path: "/mailboxes/{id}/password", id: id}
	if password != "" {
		in.again = true // a generated one would be another each time
		if in.body, err = jsonBody(map[string]string{"password": password}); err != nil {
			return "", err
		}
	}
	out, err := do[struct{ Password string }](ctx, c, in)
	if err != nil {
		return "", err
	}
	return out.Password, nil
}

// Endpoint is a server that mail programs connect to.
type Endpoint struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Security string `json:"security"` // tls from the first byte, or starttls
}

// ClientSetup is how a mail program reaches a mailbox. Of the servers the first
// is to be preferred.
type ClientSetup struct {
	Email           string     `json:"email"`
	DisplayName     string     `json:"display_name"`
	Username        string     `json:"username"`
	IMAP            []Endpoint `json:"imap"`
	SMTP            []Endpoint `json:"smtp"`
	AutoconfigURL   string     `json:"autoconfig_url"`
	AutodiscoverURL string     `json:"autodiscover_url"`
	AppleProfileURL string     `json:"apple_profile_url"` // needs an API key
}

// GetClientSetup shows how a mail program reaches a mailbox.
func (c *Client) GetClientSetup(ctx context.Context, id string) (*ClientSetup, error) {
	return do[ClientSetup](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/client-setup", id: id})
}

// SetupCheck is what became of an attempt to reach the servers of mail programs.
type SetupCheck struct {
	OK    bool        `json:"ok"` // all is well
	Doors []DoorCheck `json:"doors"`
}

// DoorCheck is what became of a connection to one server.
type DoorCheck struct {
	Protocol string `json:"protocol"` // imap or smtp
	Endpoint
	OK         bool        `json:"ok"`
	DurationMS float64     `json:"duration_ms"`
	Steps      []SetupStep `json:"steps"` // the last one alone may have failed
}

// SetupStep is a part of a DoorCheck.
type SetupStep struct {
	Name   string `json:"name"` // connect, encrypt, offer
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // in words
}

// CheckClientSetup has the service connect to its own servers as a mail program
// does, for at most 30 seconds. That they can't be reached is no error but told.
func (c *Client) CheckClientSetup(ctx context.Context, id string) (*SetupCheck, error) {
	return do[SetupCheck](ctx, c, call{method: http.MethodPost, path: "/mailboxes/{id}/client-setup/check", id: id, again: true})
}

// GetAppleProfile returns a .mobileconfig, which sets up a mailbox on an iPhone,
// iPad or Mac. The device asks for the password.
func (c *Client) GetAppleProfile(ctx context.Context, id string) ([]byte, error) {
	var profile bytes.Buffer
	err := c.run(ctx, call{method: http.MethodGet, path: "/mailboxes/{id}/apple-profile", id: id, into: &profile})
	return profile.Bytes(), err
}

// CreateAppleProfile returns a .mobileconfig with an app password that is made
// for a device: it asks for nothing. The password ends when it is revoked.
func (c *Client) CreateAppleProfile(ctx context.Context, id, device string) ([]byte, error) {
	body, err := jsonBody(struct {
		Name string `json:"name"`
	}{device})
	if err != nil {
		return nil, err
	}
	var profile bytes.Buffer
	err = c.run(ctx, call{method: http.MethodPost, path: "/mailboxes/{id}/apple-profile", id: id, body: body, into: &profile})
	return profile.Bytes(), err
}
