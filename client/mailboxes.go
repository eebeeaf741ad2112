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
	Address     string     `json:"address"` // also the user name
	LocalPart   string     `json:"local_part"`
	DisplayName string     `json:"display_name"`
	Password    string     `json:"password"`    // if generated, only in the response that created it
	QuotaMB     int64      `json:"quota_mb"`    // MB of 1,048,576 bytes
	UsedBytes   int64      `json:"used_bytes"`  // size of its messages
	Messages    int64      `json:"messages"`    // number of messages
	Status      string     `json:"status"`      // active or suspended
	SpamFilter  string     `json:"spam_filter"` // off, lenient, normal or strict
	ForwardTo   []string   `json:"forward_to"`  // addresses that its mail is forwarded to
	KeepCopy    bool       `json:"keep_copy"`   // forwarded mail also stays here
	CreatedAt   time.Time  `json:"created_at"`
	DeletedAt   *time.Time `json:"deleted_at"` // of a mailbox that can be restored
}

// NewMailbox is a mailbox to create.
type NewMailbox struct {
	DomainID    string `json:"domain_id"` // must have verified ownership
	LocalPart   string `json:"local_part"`
	Password    string `json:"password,omitempty"` // generated if empty
	DisplayName string `json:"display_name,omitempty"`
	QuotaMB     int    `json:"quota_mb,omitempty"` // 1024 if 0
}

// MailboxChange are changes to a mailbox; nil leaves a field unchanged.
type MailboxChange struct {
	DisplayName *string `json:"display_name,omitempty"`
	QuotaMB     *int    `json:"quota_mb,omitempty"`
	Status      *string `json:"status,omitempty"` // active or suspended
	// ForwardTo are at most 10 addresses that its mail is also forwarded to; an empty list ends
	// forwarding.
	ForwardTo *[]string `json:"forward_to,omitempty"`
	KeepCopy  *bool     `json:"keep_copy,omitempty"` // forwarded mail also stays here
	// SpamFilter is the strength of the spam filter for mail to it: off, lenient (about twice the
	// score counts as spam, and nothing is rejected), normal, or strict (half of the score is
	// enough).
	SpamFilter *string `json:"spam_filter,omitempty"`
}

// MailboxFilter selects mailboxes; the zero value selects all that are not deleted.
type MailboxFilter struct {
	DomainIDs []string // only in one of these domains, at most 10
	Deleted   bool     // deleted ones that can be restored, instead of the others
}

func (f MailboxFilter) query() url.Values {
	q := url.Values{}
	setList(q, "domain_id", f.DomainIDs)
	if f.Deleted {
		q.Set("deleted", "true")
	}
	return q
}

// CreateMailbox creates a mailbox.
func (c *Client) CreateMailbox(ctx context.Context, m NewMailbox) (*Mailbox, error) {
	return post[Mailbox](ctx, c, "/mailboxes", "", m, false)
}

// ListMailboxes returns a page of mailboxes, newest first.
func (c *Client) ListMailboxes(ctx context.Context, f MailboxFilter, p Paging) (*Page[Mailbox], error) {
	return list[Mailbox](ctx, c, "/mailboxes", f.query(), p)
}

// Mailboxes iterates over all matching mailboxes, newest first. It stops after an error.
func (c *Client) Mailboxes(ctx context.Context, f MailboxFilter) iter.Seq2[Mailbox, error] {
	return walk(func(p Paging) (*Page[Mailbox], error) { return c.ListMailboxes(ctx, f, p) })
}

// GetMailbox returns a mailbox.
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

// DeleteMailbox deletes a mailbox; it can be restored for 30 days.
func (c *Client) DeleteMailbox(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/mailboxes/{id}", id: id})
}

// RestoreMailbox restores a deleted mailbox with all its mail. It returns ErrConflict if the
// address was reused meanwhile.
func (c *Client) RestoreMailbox(ctx context.Context, id string) (*Mailbox, error) {
	return do[Mailbox](ctx, c, call{method: http.MethodPost, path: "/mailboxes/{id}/restore", id: id})
}

// SetMailboxPassword sets a mailbox's password and ends sessions with the old one. If password is
// empty, it is generated and returned.
func (c *Client) SetMailboxPassword(ctx context.Context, id, password string) (generated string, err error) {
	in := call{method: http.MethodPost, path: "/mailboxes/{id}/password", id: id}
	if password != "" {
		in.again = true // a generated one would differ each time
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
	Security string `json:"security"` // tls (implicit) or starttls
}

// ClientSetup has the settings for mail programs. Prefer the first server of each list.
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

// GetClientSetup returns the settings for mail programs.
func (c *Client) GetClientSetup(ctx context.Context, id string) (*ClientSetup, error) {
	return do[ClientSetup](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/client-setup", id: id})
}

// SetupCheck is the result of a check of the servers for mail programs.
type SetupCheck struct {
	OK        bool            `json:"ok"` // whether all checks passed
	Listeners []ListenerCheck `json:"listeners"`
}

// ListenerCheck is the result for one server.
type ListenerCheck struct {
	Protocol string `json:"protocol"` // imap or smtp
	Endpoint
	OK         bool        `json:"ok"`
	DurationMS float64     `json:"duration_ms"`
	Steps      []SetupStep `json:"steps"` // only the last may have failed
}

// SetupStep is a step of a ListenerCheck.
type SetupStep struct {
	Name   string `json:"name"` // connect, encrypt, offer
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // for people
}

// CheckClientSetup makes the service connect to its own servers like a mail program, for at most 30
// seconds. An unreachable server is not an error but in the result.
func (c *Client) CheckClientSetup(ctx context.Context, id string) (*SetupCheck, error) {
	return do[SetupCheck](ctx, c, call{method: http.MethodPost, path: "/mailboxes/{id}/client-setup/check", id: id, again: true})
}

// GetAppleProfile returns a .mobileconfig that sets up a mailbox on an iPhone, iPad or Mac. The
// device asks for the password.
func (c *Client) GetAppleProfile(ctx context.Context, id string) ([]byte, error) {
	var profile bytes.Buffer
	err := c.run(ctx, call{method: http.MethodGet, path: "/mailboxes/{id}/apple-profile", id: id, into: &profile})
	return profile.Bytes(), err
}

// CreateAppleProfile returns a .mobileconfig with a new app password for a device, which asks for
// nothing. Revoke the password to end its access.
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
