// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"encoding/json"
	"io"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// MessageInfo is the event data of a message.
type MessageInfo struct {
	Account   db.ID
	Domain    db.ID           // domain of From; 0 if the message was deleted
	API       bool            // sent by the API, so that failures may suppress the recipient; not by a mailbox
	Forwarded bool            // received from elsewhere and forwarded
	Private   bool            // written by the service; of a local copy only the mailbox protocols return the text
	MessageID string          // with angle brackets
	ThreadID  string          // "" if it has none
	Metadata  json.RawMessage // an object; nil for none
	Tags      string          // as tag.Join returns them
}

// OutboundMessage is a message ready to be sent. All deliveries of the message share it, and it
// never changes.
type OutboundMessage struct {
	MessageInfo
	ID     db.ID
	Domain string // domain of From, for logs

	// ReturnDomain, if set, is the domain of API mail's signed return paths. Each delivery then has
	// its own MAIL FROM and its own transaction. Otherwise Sender is the MAIL FROM of all
	// deliveries, "" for the null sender.
	ReturnDomain string
	Sender       string

	// Head is sent before Body: the DKIM-Signature fields, with CRLF.
	Head []byte
	// Body opens the message itself, with CRLF line ends.
	Body func(ctx context.Context) (io.ReadCloser, error)
	// Size is the length of Head and Body together, in octets.
	Size int64

	UTF8     bool // the headers need SMTPUTF8
	EightBit bool // the body has octets above 127
	// SevenBit, if set, returns the message in the form for a host without 8BITMIME: its parts are
	// re-encoded, and it is signed or sealed in that form (RFC 6152 §3). It returns a fault.Denied
	// if a part can't be encoded. Without SevenBit, an EightBit message must stay unchanged.
	SevenBit   func(ctx context.Context) (*OutboundMessage, error)
	RequireTLS bool // RFC 8689
	// OptionalTLS reports whether the message may be sent regardless of the recipient domain's TLS
	// policy ("TLS-Required: No", RFC 8689 §3).
	OptionalTLS bool
	// Notify, if not 0, overrides the NOTIFY of every recipient.
	Notify smtpclient.Notify
	Ret    string // RET of RFC 3461: "HDRS", "FULL" or ""
	EnvID  string // ENVID, not encoded
}
