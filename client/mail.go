// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Address is an entry in an address field.
type Address struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// HeaderField is a field of a message's header.
type HeaderField struct {
	Name  string `json:"name"`
	Value string `json:"value"` // on one line, decoded
}

// MessageFile is a file in a message.
type MessageFile struct {
	Number      int    `json:"number"`   // number in the message, from 0
	Filename    string `json:"filename"` // without directories; "" if it has none
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`       // bytes, decoded
	ContentID   string `json:"content_id"` // the HTML refers to it as cid:…
	Disposition string `json:"disposition"`
	URL         string `json:"url"` // "" in the sandbox's outbox
}

// CheckResults are the verification results of a received message: pass, fail, none and so on (RFC
// 8601); Spam is none, ham or spam.
type CheckResults struct {
	SPF   string `json:"spf,omitempty"`
	DKIM  string `json:"dkim,omitempty"`
	DMARC string `json:"dmarc,omitempty"`
	Spam  string `json:"spam,omitempty"`
	// Author is why the message has no unambiguous author, such as no_from or other_name; "" if it
	// has one. It is the service's own check.
	Author string `json:"author,omitempty"`
	// SpamScore is the spam filter's score, SpamReasons its reasons, separated by spaces.
	SpamScore   float64 `json:"spam_score,omitempty"`
	SpamReasons string  `json:"spam_reasons,omitempty"`
}

// MessageSummary is the part of a message that lists return.
type MessageSummary struct {
	MessageID string     `json:"message_id"` // header field; "" if it has none
	From      []Address  `json:"from"`       // at most 50 of each
	To        []Address  `json:"to"`
	Cc        []Address  `json:"cc"`
	Subject   string     `json:"subject"`
	Date      *time.Time `json:"date"` // from the header; nil if it can't be parsed
}

// MessageContent is the content of a message. Each Truncated reports whether there is more than is
// returned.
type MessageContent struct {
	ReplyTo    []Address `json:"reply_to"`
	InReplyTo  string    `json:"in_reply_to"` // "" if it is no reply
	References []string  `json:"references"`  // nearest last

	Headers          []HeaderField `json:"headers"` // in order
	HeadersTruncated bool          `json:"headers_truncated"`

	Text          *string `json:"text"` // UTF-8, with LF line endings; nil if it has none
	TextTruncated bool    `json:"text_truncated"`
	HTML          *string `json:"html"` // as the sender wrote it: sanitize it before you show it
	HTMLTruncated bool    `json:"html_truncated"`

	Attachments          []MessageFile `json:"attachments"`
	AttachmentsTruncated bool          `json:"attachments_truncated"`
}

// Envelope is the SMTP envelope, which may differ from the header.
type Envelope struct {
	MailFrom string   `json:"mail_from"` // "" is the null sender
	RcptTo   []string `json:"rcpt_to"`
}

// InboundData is the data of an event inbound_email.
type InboundData struct {
	ID       string   `json:"id"` // message id, for GetMailboxMessage
	ThreadID string   `json:"thread_id"`
	Metadata struct{} `json:"metadata"` // always empty
	DomainID string   `json:"domain_id"`
	Mailbox  struct {
		ID      string `json:"id"`
		Address string `json:"address"`
	} `json:"mailbox"`
	Envelope     Envelope     `json:"envelope"`
	Subaddress   string       `json:"subaddress"` // part of the address after the plus
	Size         int64        `json:"size"`       // bytes of the whole message
	CheckResults CheckResults `json:"check_results"`
	RawURL       string       `json:"raw_url"`
	MessageSummary
	MessageContent
	Gone    bool `json:"gone"`            // deleted before the event was first read
	Omitted bool `json:"content_omitted"` // the reader may not read mail: the content is omitted
	Private bool `json:"private"`         // written by the service for the mailbox's owner: only mail programs show its text
	Test    bool `json:"test"`            // test event of a webhook
}

// MailboxMessage is a message in a mailbox.
type MailboxMessage struct {
	ID           string          `json:"id"` // the same in all folders
	MailboxID    string          `json:"mailbox_id"`
	ThreadID     string          `json:"thread_id"`   // "" if a mail program stored it
	OutboundID   string          `json:"outbound_id"` // sent message that it is a copy of, if it came from here
	Size         int64           `json:"size"`        // bytes of the whole message
	Folders      []MessageFolder `json:"folders"`     // folders that contain it
	CheckResults CheckResults    `json:"check_results"`
	ReceivedAt   time.Time       `json:"received_at"`
	RawURL       string          `json:"raw_url"`
	MessageSummary
	MessageContent // only from GetMailboxMessage
}

// MessageFolder is a folder that contains a message.
type MessageFolder struct {
	Folder string   `json:"folder"`
	UID    uint32   `json:"uid"`
	Flags  []string `json:"flags"` // as in IMAP: \Seen
}

// MailFilter selects messages of a mailbox; the zero value selects all.
type MailFilter struct {
	Folder        string    // only in this folder
	ReceivedAfter time.Time // only received at or after this time
	From          string    // only by this author, or by any author in this domain
	Subject       string    // only if the subject contains this
}

func (f MailFilter) query() url.Values {
	q := url.Values{}
	set(q, "folder", f.Folder)
	set(q, "from", f.From)
	set(q, "subject", f.Subject)
	if !f.ReceivedAfter.IsZero() {
		q.Set("received_after", f.ReceivedAfter.Format(time.RFC3339Nano))
	}
	return q
}

// ListMailboxMessages returns a page of the messages in a mailbox, last received first, without
// content. A page may be short although the list continues.
func (c *Client) ListMailboxMessages(ctx context.Context, mailbox string, f MailFilter, p Paging) (*Page[MailboxMessage], error) {
	return do[Page[MailboxMessage]](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/messages", id: mailbox, query: p.into(f.query())})
}

// MailboxMessages iterates over all matching messages, last received first. It stops after an
// error.
func (c *Client) MailboxMessages(ctx context.Context, mailbox string, f MailFilter) iter.Seq2[MailboxMessage, error] {
	return walk(func(p Paging) (*Page[MailboxMessage], error) { return c.ListMailboxMessages(ctx, mailbox, f, p) })
}

// GetMailboxMessage returns a message in a mailbox. It doesn't mark the message as read.
func (c *Client) GetMailboxMessage(ctx context.Context, mailbox, id string) (*MailboxMessage, error) {
	path, err := messagePath(id)
	if err != nil {
		return nil, err
	}
	return do[MailboxMessage](ctx, c, call{method: http.MethodGet, path: path, id: mailbox})
}

// GetMailboxMessageRaw writes the bytes of a message. After an error they are incomplete.
func (c *Client) GetMailboxMessageRaw(ctx context.Context, mailbox, id string, to io.Writer) error {
	path, err := messagePath(id)
	if err != nil {
		return err
	}
	return c.run(ctx, call{method: http.MethodGet, path: path + "/raw", id: mailbox, into: to})
}

// GetMailboxMessageAttachment writes the n-th file of a message, decoded. After an error it is
// incomplete.
func (c *Client) GetMailboxMessageAttachment(ctx context.Context, mailbox, id string, n int, to io.Writer) error {
	path, err := messagePath(id)
	if err != nil {
		return err
	}
	return c.run(ctx, call{method: http.MethodGet, path: path + "/attachments/" + strconv.Itoa(n), id: mailbox, into: to})
}

func messagePath(id string) (string, error) {
	if id == "" || id == "." || id == ".." {
		return "", errors.New("mailstead: the id of the message is missing")
	}
	return "/mailboxes/{id}/messages/" + url.PathEscape(id), nil
}
