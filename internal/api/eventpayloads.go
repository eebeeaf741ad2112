// SPDX-License-Identifier: Apache-2.0

package api

import (
	"fmt"
	"reflect"
	"strings"

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
	kind, name  string
	description string // its first sentence is the summary
	data        reflect.Type
}

func eventPayloads() []eventPayload {
	return []eventPayload{
		{event.InboundEmail, "InboundEmailEvent", "A message has arrived in a mailbox. A message for several mailboxes, such as one to an alias, causes one event for each, with the same `message_id` and `thread_id` and another `id` and `mailbox`.", reflect.TypeFor[inbound.EmailEvent]()},
		{event.DeliveryStatus, "DeliveryStatusEvent", "The state of a delivery has changed.", reflect.TypeFor[queue.StatusEvent]()},
		{event.Bounce, "BounceEvent", "A delivery has failed for good. It comes once per delivery, beside delivery_status.", reflect.TypeFor[queue.BounceEvent]()},
		{event.Complaint, "ComplaintEvent", "A recipient has called a message spam.", reflect.TypeFor[queue.ComplaintEvent]()},
		{event.Unsubscribe, "UnsubscribeEvent", "A recipient has unsubscribed by the hosted link or by mail. The delivery keeps its state.", reflect.TypeFor[queue.UnsubscribeEvent]()},
		{event.DomainVerified, "DomainVerifiedEvent", "The DNS records of a domain are all there.", reflect.TypeFor[domain.VerifiedEvent]()},
		{event.MailboxCreated, "MailboxCreatedEvent", "There is a new mailbox.", reflect.TypeFor[mailbox.CreatedEvent]()},
		{event.RateLimitWarning, "RateLimitWarningEvent", "80 % of a limit for an hour or a day is used.", reflect.TypeFor[quota.Warning]()},
		{event.MigrationComplete, "MigrationCompleteEvent", "A migration of mail has ended.", reflect.TypeFor[migration.CompleteEvent]()},
	}
}

// addWebhooks describes the webhook payloads, and Event as one of them.
func (d *document) addWebhooks() {
	d.schemas.ref(reflect.TypeFor[eventResponse]()) // the operations refer to it
	union := &schema{
		Description:   "An event. Its `type` tells which members `data` has. A key or webhook may get types that are added later: ignore those that you don't know.",
		Discriminator: &discriminator{PropertyName: "type", Mapping: map[string]string{}},
	}
	d.schemas.byName[schemaName(reflect.TypeFor[eventResponse]())] = union
	d.Webhooks = map[string]map[string]*operationObject{}
	header := func(name, what string) *parameter {
		return &parameter{Name: name, In: "header", Required: true, Description: what, Schema: &schema{Type: "string"}}
	}
	for _, p := range eventPayloads() {
		data, body := d.schemas.ofStruct(p.data), d.schemas.ofStruct(reflect.TypeFor[eventResponse]())
		body.Properties["type"] = &schema{Type: "string", Enum: []any{p.kind}, Description: "The kind of event."}
		body.Properties["data"] = &schema{Ref: schemaRefPrefix + p.name, Description: "What happened."}
		data.Properties["test"] = &schema{Type: "boolean", Enum: []any{true}, Description: "Only in the test event of a webhook: true. It didn't happen, and no list has it."}
		ref := &schema{Ref: schemaRefPrefix + p.name + "Body"}
		union.OneOf, union.Discriminator.Mapping[p.kind] = append(union.OneOf, ref), ref.Ref
		d.schemas.byName[p.name], d.schemas.byName[p.name+"Body"] = data, body
		media := &mediaType{Schema: ref, Example: webhook.Example(p.kind)}
		summary, more, _ := strings.Cut(p.description, ". ")
		if more != "" {
			more += "\n\n"
		}
		d.Webhooks[p.kind] = map[string]*operationObject{"post": {
			OperationID: "on_" + p.kind, Summary: strings.TrimSuffix(summary, ".") + ".", Tags: []string{"Events"}, Security: []map[string][]string{},
			Description: more + "Sent to the webhooks that subscribe to `" + p.kind + "` or `all`. Answer with a status of 200 to 299 within 15 seconds; anything else, and it comes again. A test that you asked for is made of an example, with `\"test\": true` in its data.",
			Parameters: []*parameter{
				header("X-Service-Signature", "sha256= and the HMAC-SHA256 of the raw body in hexadecimal, lower case; the key is the webhook's secret as it was shown."),
				header("X-Service-Event", "The kind: "+p.kind+"."), header("X-Event-ID", "The event's id, the same each time that it comes."),
				header("X-Service-Timestamp", "When it was sent, in seconds since 1970."),
				header("webhook-id", "The event's id (Standard Webhooks)."), header("webhook-timestamp", "When it was sent, in seconds since 1970 (Standard Webhooks)."),
				header("webhook-signature", "v1, and the HMAC-SHA256 of id, time and body in base64; two of them, separated by a space, for a day after the secret was changed (Standard Webhooks)."),
			},
			RequestBody: &requestBody{Required: true, Content: map[string]*mediaType{"application/json": media}},
			Responses:   map[string]*responseObject{"2XX": {Description: fmt.Sprintf("Received. A status of %d means that there is no receiver any more, and disables the webhook.", 410)}},
		}}
	}
}
