// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/summary"
)

// operatorRoutes registers the endpoints for operators: the queue of all accounts, and the
// accounts' limits. Only the server's command line creates operator keys.
func (a *API) operatorRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/operator/queue/destinations", id: "listQueueDestinations", scope: account.ScopeOperator,
		summary: "List the destinations that mail waits for", description: "By name, with what waits for each, what is held and what is being tried, and the last answer that made it wait. " +
			"Counts end at 10,000."}, a.listQueueDestinations)
	handle(r, operation{method: "GET", path: "/operator/queue/deliveries", id: "listQueueDeliveries", scope: account.ScopeOperator,
		summary: "List queued deliveries", description: "Those of all accounts that have not reached an end: what waits, by destination and the time of the next try; what is held; what is being tried. " +
			"All that is asked for must fit. A page may be short, or empty, although `has_more` is true: go on with the cursor."}, a.listQueueDeliveries)
	handle(r, operation{method: "GET", path: "/operator/queue/messages/{id}", id: "getQueueMessage", scope: account.ScopeOperator,
		summary: "Show a message of any account", description: "With each recipient's timeline: every attempt, and the SMTP conversation. What the message says is not shown."}, a.getQueueMessage)
	handle(r, operation{method: "GET", path: "/operator/queue/holds", id: "listQueueHolds", scope: account.ScopeOperator,
		summary: "List active holds", description: "The destinations and accounts whose mail is held, also what is still to come, the oldest first; at most 1,000."}, a.listQueueHolds)
	handle(r, operation{method: "GET", path: "/operator/dns", id: "getHostDNS", scope: account.ScopeOperator,
		summary: "Show the DNS records of the service", description: "The records of the service's own names, which customers' records lead to, with what the DNS says of each. " +
			"Each request asks the DNS, for at most 20 seconds; a result is up to 3 seconds old. `mailstead dns --json` prints the same."}, a.getHostDNS)
	a.queueCommandRoutes(r)
	a.operatorAccountRoutes(r)
	a.operatorLimitRoutes(r)
}

// forwardPageParams are the parameters of lists with forward paging only.
type forwardPageParams struct {
	Limit int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	After string `query:"after" doc:"Only what comes after this cursor."`
}

// QueueHoldResponse is an active hold. The command line prints it, too.
type QueueHoldResponse struct {
	ID          db.ID     `json:"id" doc:"The hold's id."`
	Kind        string    `json:"kind" enum:"destination,account" doc:"What is held." example:"destination"`
	Destination *string   `json:"destination" doc:"The domain whose mail is held; null for an account's." example:"example.net"`
	AccountID   *db.ID    `json:"account_id" doc:"The account whose mail is held; null for a destination's."`
	Detail      *string   `json:"detail" doc:"Why, in the operator's words; null if none was given." example:"they asked us to wait"`
	CreatedAt   time.Time `json:"created_at" doc:"Since when."`
}

// NewQueueHoldResponse returns the JSON form.
func NewQueueHoldResponse(h queue.Hold) QueueHoldResponse {
	out := QueueHoldResponse{ID: h.ID, Kind: string(h.Kind), Detail: optionalString(h.Reason), CreatedAt: utcTime(h.CreatedAt)}
	if account, ok := h.Account(); ok {
		out.AccountID = &account
	} else {
		out.Destination = &h.Target
	}
	return out
}

type queueHoldsResponse struct {
	Data []QueueHoldResponse `json:"data" doc:"All of them, the oldest first."`
}

func (a *API) listQueueHolds(ctx context.Context, _ account.Principal, _ *struct{}) (queueHoldsResponse, error) {
	holds, err := a.QueueAdmin.Holds(ctx)
	out := queueHoldsResponse{Data: make([]QueueHoldResponse, len(holds))}
	for i, h := range holds {
		out.Data[i] = NewQueueHoldResponse(h)
	}
	return out, err
}

// QueueDestinationResponse is the queue for a destination. The command line prints it, too.
type QueueDestinationResponse struct {
	Destination   string             `json:"destination" doc:"The domain that the mail goes to." example:"example.net"`
	Waiting       int                `json:"waiting" doc:"Deliveries that wait for a try, due or not." example:"1200"`
	MoreWaiting   bool               `json:"more_waiting" doc:"Whether more wait than were counted."`
	Held          int                `json:"held" doc:"Deliveries that an operator holds." example:"0"`
	MoreHeld      bool               `json:"more_held" doc:"Whether more are held than were counted."`
	Leased        int                `json:"leased" doc:"Deliveries that nodes are attempting now." example:"5"`
	OldestAt      *time.Time         `json:"oldest_at" doc:"When the oldest of these was accepted; null if there are none."`
	NextAttemptAt *time.Time         `json:"next_attempt_at" doc:"When the next of what waits is due, which may be past; null if nothing waits."`
	AllDeferred   bool               `json:"all_deferred" doc:"Whether all that waits was tried or put off, and waits for a later time."`
	SMTPCode      apijson.NullInt    `json:"smtp_code" doc:"Of the last answer that made something wait." example:"451"`
	EnhancedCode  apijson.NullString `json:"enhanced_code" doc:"Of that answer (RFC 3463)." example:"4.7.1"`
	Diagnostic    apijson.NullString `json:"diagnostic" doc:"That answer, or what the trouble was." example:"try again later"`
	RemoteMTA     apijson.NullString `json:"remote_mta" doc:"Who gave it." example:"mx.example.net"`
	AnsweredAt    *time.Time         `json:"answered_at" doc:"When that was; null if there was none."`
	Hold          *QueueHoldResponse `json:"hold" doc:"The active hold on the destination; null for none."`
}

// NewQueueDestinationResponse returns the JSON form.
func NewQueueDestinationResponse(d admin.DestinationStatus) QueueDestinationResponse {
	out := QueueDestinationResponse{
		Destination: d.Destination, Waiting: d.Waiting, MoreWaiting: d.MoreWaiting, Held: d.Held, MoreHeld: d.MoreHeld, Leased: d.Leased,
		OldestAt: optionalTime(d.OldestAt), NextAttemptAt: optionalTime(d.NextAttemptAt), AllDeferred: d.Deferred,
		SMTPCode: apijson.NullInt(d.Code), EnhancedCode: apijson.NullString(d.Enhanced), Diagnostic: apijson.NullString(d.Reply), RemoteMTA: apijson.NullString(d.Remote), AnsweredAt: optionalTime(d.RepliedAt),
	}
	if d.Hold != nil {
		hold := NewQueueHoldResponse(*d.Hold)
		out.Hold = &hold
	}
	return out
}

type queueDestinationsResponse struct {
	Data       []QueueDestinationResponse `json:"data" doc:"The page, by name."`
	HasMore    bool                       `json:"has_more" doc:"Whether the list goes on."`
	NextCursor *string                    `json:"next_cursor" doc:"Give it as after to go on; null at the end."`
}

type listQueueDestinationsInput struct {
	forwardPageParams
	Destination string `query:"destination" doc:"Only this one." example:"example.net"`
}

func (a *API) listQueueDestinations(ctx context.Context, _ account.Principal, in *listQueueDestinationsInput) (queueDestinationsResponse, error) {
	only, after := admin.Filter{Destination: in.Destination}, admin.Filter{Destination: in.After}
	if err := only.Normalize(); err != nil {
		return queueDestinationsResponse{}, err
	}
	if after.Normalize() != nil {
		var bad fault.FieldErrors
		addCursorFault(&bad, "after")
		return queueDestinationsResponse{}, bad.Err()
	}
	found, next, err := a.QueueAdmin.Destinations(ctx, only.Destination, in.After, in.Limit)
	out := queueDestinationsResponse{Data: make([]QueueDestinationResponse, len(found)), HasMore: next != "", NextCursor: optionalString(next)}
	for i, d := range found {
		out.Data[i] = NewQueueDestinationResponse(d)
	}
	return out, err
}

// QueueDeliveryResponse is a delivery that is not final. The command line prints it, too.
type QueueDeliveryResponse struct {
	Message       db.ID              `json:"message" doc:"The message's id."`
	AccountID     db.ID              `json:"account_id" doc:"Whose mail it is."`
	Recipient     string             `json:"recipient" doc:"Whom it goes to." example:"bob@example.net"`
	Destination   string             `json:"destination" doc:"The domain that it goes to." example:"example.net"`
	Status        queue.State        `json:"status" doc:"scheduled, queued or deferred; sending while a node attempts it."`
	Held          bool               `json:"held" doc:"Whether an operator holds it."`
	Attempts      int                `json:"attempts" doc:"How often delivery was tried." example:"3"`
	NextAttemptAt *time.Time         `json:"next_attempt_at" doc:"When it is due, which may be past; null while it is held or being attempted."`
	ExpiresAt     time.Time          `json:"expires_at" doc:"Until when it is tried; the time that it is held is added when it is released."`
	SMTPCode      apijson.NullInt    `json:"smtp_code" doc:"Of the last answer." example:"451"`
	EnhancedCode  apijson.NullString `json:"enhanced_code" doc:"Of the last answer (RFC 3463)." example:"4.7.1"`
	Diagnostic    apijson.NullString `json:"diagnostic" doc:"The last answer, or what the trouble was." example:"try again later"`
	RemoteMTA     apijson.NullString `json:"remote_mta" doc:"Who gave it." example:"mx.example.net"`
	From          []summary.Address  `json:"from" doc:"The author in the message's header; empty if the message is gone."`
	Sender        *string            `json:"sender" doc:"MAIL FROM of a submission; null for API mail and for the null sender." example:"you@example.com"`
	Subject       string             `json:"subject" doc:"The subject line." example:"Your order"`
	MessageID     string             `json:"message_id" doc:"The Message-ID header field."`
	Size          int                `json:"size" doc:"Of the whole message, in bytes."`
	CreatedAt     time.Time          `json:"created_at" doc:"When it was accepted."`
}

// NewQueueDeliveryResponse returns the JSON form.
func NewQueueDeliveryResponse(e admin.Entry) QueueDeliveryResponse {
	out := QueueDeliveryResponse{
		Message: e.Message, AccountID: e.Account, Recipient: e.Recipient, Destination: e.Destination, Status: e.State, Held: e.Held,
		Attempts: e.Attempts, ExpiresAt: utcTime(e.ExpiresAt), SMTPCode: apijson.NullInt(e.Code), EnhancedCode: apijson.NullString(e.Enhanced), Diagnostic: apijson.NullString(e.Reply), RemoteMTA: apijson.NullString(e.Remote),
		From: summary.ParseAddresses(e.View.From), Sender: optionalString(e.View.Sender), Subject: e.View.Subject, MessageID: e.View.MessageID, Size: int(e.View.Size),
		CreatedAt: utcTime(e.AcceptedAt),
	}
	if !e.Held && e.State != queue.Sending {
		out.NextAttemptAt = optionalTime(e.DueAt)
	}
	return out
}

type queueDeliveriesResponse struct {
	Data       []QueueDeliveryResponse `json:"data" doc:"The page."`
	HasMore    bool                    `json:"has_more" doc:"Whether the list goes on."`
	NextCursor *string                 `json:"next_cursor" doc:"Give it as after to go on; null at the end."`
}

type listQueueDeliveriesInput struct {
	forwardPageParams
	Message     string `query:"message" format:"uuid" doc:"Only those of this message."`
	Destination string `query:"destination" doc:"Only those to this domain." example:"example.net"`
	Account     string `query:"account" doc:"Only those of this account: its id, or its e-mail address." example:"you@example.com"`
	Status      string `query:"status" enum:"scheduled,queued,deferred,sending" doc:"Only those in this state."`
	Sender      string `query:"sender" doc:"Only those from this address, or from any of this domain; in From or MAIL FROM." example:"you@example.com"`
	OlderThan   int    `query:"older_than" minimum:"0" maximum:"315360000" doc:"Only those that were accepted so many seconds ago at least." example:"14400"`
	Held        string `query:"held" enum:"true,false" doc:"Only those that are held, or those that are not."`
}

func (a *API) listQueueDeliveries(ctx context.Context, _ account.Principal, in *listQueueDeliveriesInput) (queueDeliveriesResponse, error) {
	var bad fault.FieldErrors
	c := QueueSelection{Message: in.Message, Destination: in.Destination, Account: in.Account, Status: in.Status, Sender: in.Sender, OlderThan: in.OlderThan}
	switch in.Held {
	case "":
	case "true", "false":
		held := in.Held == "true"
		c.Held = &held
	default:
		bad.Add("held", "wrong_type", "Give true or false.")
	}
	f, err := a.queueFilter(ctx, &bad, c)
	if err != nil {
		return queueDeliveriesResponse{}, err
	}
	if err := bad.Err(); err != nil {
		return queueDeliveriesResponse{}, err
	}
	found, next, err := a.QueueAdmin.List(ctx, f, in.After, in.Limit)
	out := queueDeliveriesResponse{Data: make([]QueueDeliveryResponse, len(found)), HasMore: next != "", NextCursor: optionalString(next)}
	for i, e := range found {
		out.Data[i] = NewQueueDeliveryResponse(e)
	}
	return out, err
}

// queueFilter converts a selection to a filter and adds its faults to bad.
func (a *API) queueFilter(ctx context.Context, bad *fault.FieldErrors, c QueueSelection) (f admin.Filter, err error) {
	f = admin.Filter{Destination: c.Destination, State: queue.State(c.Status), Sender: c.Sender, OlderThan: time.Duration(c.OlderThan) * time.Second, Held: c.Held}
	if c.OlderThan > 10*365*24*3600 {
		f.OlderThan = -1 // an invalid value for any filter
	}
	if c.Message != "" {
		if f.Message, err = db.ParseID(c.Message); err != nil {
			bad.Add("message", "invalid_id", "This is not the id of a message.")
		}
	}
	if c.Account != "" {
		var acc account.Account
		if strings.ContainsRune(c.Account, '@') {
			acc, err = a.Accounts.ByEmail(ctx, c.Account)
		} else if acc.ID, err = db.ParseID(c.Account); err == nil {
			acc, err = a.Accounts.Get(ctx, acc.ID)
		}
		if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) {
			return f, err
		}
		if f.Account = acc.ID; err != nil {
			bad.Add("account", "unknown_account", "There is no such account. Give its id, or its e-mail address.")
		}
	}
	return f, mergeFaults(bad, f.Normalize())
}

// QueueMessageResponse is a message of any account. The command line prints it, too.
type QueueMessageResponse struct {
	ID         db.ID                     `json:"id" doc:"The message's id."`
	AccountID  db.ID                     `json:"account_id" doc:"Whose mail it is."`
	Status     queue.State               `json:"status" doc:"Derived from the recipients: the first that is open, else the worst."`
	From       []summary.Address         `json:"from" doc:"The author in the header; empty if the message is gone."`
	Sender     *string                   `json:"sender" doc:"MAIL FROM of a submission; null for API mail and for the null sender." example:"you@example.com"`
	Subject    string                    `json:"subject" doc:"The subject line." example:"Your order"`
	MessageID  string                    `json:"message_id" doc:"The Message-ID header field."`
	Size       int                       `json:"size" doc:"Of the whole message, in bytes."`
	Recipients []recipientDetailResponse `json:"recipients" doc:"Where it goes, blind copies included."`
	CreatedAt  time.Time                 `json:"created_at" doc:"When it was accepted."`
}

func (a *API) getQueueMessage(ctx context.Context, _ account.Principal, in *idParams) (QueueMessageResponse, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return QueueMessageResponse{}, err
	}
	m, err := a.QueueAdmin.Show(ctx, id)
	if err != nil {
		return QueueMessageResponse{}, err
	}
	return NewQueueMessageResponse(m), nil
}

// NewQueueMessageResponse returns the JSON form.
func NewQueueMessageResponse(m admin.MessageDetails) QueueMessageResponse {
	out := QueueMessageResponse{
		ID: m.ID, AccountID: m.Account, Status: m.Status, From: summary.ParseAddresses(m.View.From), Sender: optionalString(m.View.Sender), Subject: m.View.Subject,
		MessageID: m.View.MessageID, Size: int(m.View.Size), Recipients: newRecipientDetailResponses(m.Deliveries, m.Attempts), CreatedAt: utcTime(m.ID.Time()),
	}
	return out
}

type hostDNSResponse struct {
	Host    string           `json:"host" doc:"The service's own host name." example:"mail.example.net"`
	Records []recordResponse `json:"records" doc:"The DNS records to publish, required ones first."`
	Failed  int              `json:"failed" doc:"How many required records are missing or wrong; those that could not be checked (temporary_failure) don't count." example:"0"`
}

func (a *API) getHostDNS(ctx context.Context, _ account.Principal, _ *struct{}) (hostDNSResponse, error) {
	c, err := a.Domains.CheckHost(ctx)
	if err != nil {
		return hostDNSResponse{}, err
	}
	out := hostDNSResponse{Host: c.Host.Name, Records: make([]recordResponse, len(c.Records)), Failed: c.FailedCount()}
	for i, r := range c.Records {
		out.Records[i] = newRecordResponse(r)
	}
	return out, nil
}
