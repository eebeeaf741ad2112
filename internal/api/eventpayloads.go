// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/migration"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/webhook"
)

// eventPayload describes the data of an event type.
type eventPayload struct {
	kind, name, description string
	data                    reflect.Type
}

func eventPayloads() []eventPayload {
	return []eventPayload{
		{event.InboundEmail, "InboundEmailEvent", "A mailbox has got a message from outside.", reflect.TypeFor[inbound.EmailEvent]()},
		{event.DeliveryStatus, "DeliveryStatusEvent", "The state of a delivery has changed.", reflect.TypeFor[queue.StatusEvent]()},
		{event.Bounce, "BounceEvent", "A delivery has failed for good. It comes once per delivery, beside delivery_status.", reflect.TypeFor[queue.BounceEvent]()},
		{event.Complaint, "ComplaintEvent", "A recipient has called a message spam.", reflect.TypeFor[queue.ComplaintEvent]()},
		{event.DomainVerified, "DomainVerifiedEvent", "The DNS records of a domain are all there.", reflect.TypeFor[domain.VerifiedEvent]()},
		{event.MailboxCreated, "MailboxCreatedEvent", "There is a new mailbox.", reflect.TypeFor[mailbox.CreatedEvent]()},
		{event.RateLimitWarning, "RateLimitWarningEvent", "80 % of a limit for an hour or a day is used.", reflect.TypeFor[quota.Warning]()},
		{event.MigrationComplete, "MigrationCompleteEvent", "A migration of mail has ended.", reflect.TypeFor[migration.CompleteEvent]()},
	}
}

// relaxRequired makes the members optional that a reader without the scope mail.read does not get.
func relaxRequired(s *huma.Schema, kind string) {
	var example event.Event
	var left map[string]any
	if json.Unmarshal(webhook.Example(kind), &example) != nil {
		return
	}
	rest, err := inbound.RedactEvent(kind, example.Data)
	if err != nil || rest == nil {
		return
	}
	text, _ := json.Marshal(rest)
	_ = json.Unmarshal(text, &left)
	s.Required = slices.DeleteFunc(s.Required, func(name string) bool { _, ok := left[name]; return !ok })
}

// addWebhooks describes the webhook payloads.
func (d *document) addWebhooks() {
	d.Webhooks = map[string]*huma.PathItem{}
	header := func(name, what string) *huma.Param {
		return &huma.Param{Name: name, In: "header", Required: true, Description: what, Schema: &huma.Schema{Type: "string"}}
	}
	for _, p := range eventPayloads() {
		d.schemas.Map()[p.name] = huma.SchemaFromType(d.schemas, p.data)
		relaxRequired(d.schemas.Map()[p.name], p.kind)
		body := huma.SchemaFromType(d.schemas, reflect.TypeFor[eventResponse]())
		body.Properties["type"] = &huma.Schema{Type: "string", Enum: []any{p.kind}, Description: "The kind of event."}
		body.Properties["data"] = &huma.Schema{Ref: "#/components/schemas/" + p.name, Description: "What happened."}
		d.schemas.Map()[p.name+"Body"] = body
		media := &huma.MediaType{Schema: &huma.Schema{Ref: "#/components/schemas/" + p.name + "Body"}, Example: webhook.Example(p.kind)}
		d.Webhooks[p.kind] = &huma.PathItem{Post: &huma.Operation{
			OperationID: "on_" + p.kind, Summary: p.description, Tags: []string{"Events"}, Security: []map[string][]string{},
			Description: "Sent to the webhooks that subscribe to `" + p.kind + "` or `all`. Answer with a status of 200 to 299 within 15 seconds; anything else, and it comes again. A test that you asked for is made of an example, with `\"test\": true` in its data.",
			Parameters: []*huma.Param{
				header("X-Service-Signature", "sha256= and the HMAC-SHA256 of the raw body in hexadecimal, lower case; the key is the webhook's secret as it was shown."),
				header("X-Service-Event", "The kind: "+p.kind+"."), header("X-Event-ID", "The event's id, the same each time that it comes."),
				header("X-Service-Timestamp", "When it was sent, in seconds since 1970."),
				header("webhook-id", "The event's id (Standard Webhooks)."), header("webhook-timestamp", "When it was sent, in seconds since 1970 (Standard Webhooks)."),
				header("webhook-signature", "v1, and the HMAC-SHA256 of id, time and body in base64; two of them, separated by a space, for a day after the secret was changed (Standard Webhooks)."),
			},
			RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": media}},
			Responses:   map[string]*huma.Response{"2XX": {Description: fmt.Sprintf("Received. A status of %d means that there is no receiver any more, and disables the webhook.", 410)}},
		}}
	}
}
