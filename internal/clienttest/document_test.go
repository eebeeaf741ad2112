// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// document is the part of the OpenAPI document that the tests need.
type document struct {
	Paths map[string]map[string]struct {
		OperationID string `json:"operationId"`
	}
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
		}
	}
}

func readDocument(t testing.TB, s *servertest.Server) (d document) {
	t.Helper()
	s.APIWithKey("", "GET", "/openapi.json", nil).Decode(t, &d)
	if len(d.Paths) < 10 {
		t.Fatalf("the document has %d paths", len(d.Paths))
	}
	return d
}

// operations returns "METHOD /path" by operation id.
func (d document) operations() map[string]string {
	all := map[string]string{}
	for path, methods := range d.Paths {
		for method, op := range methods {
			all[op.OperationID] = strings.ToUpper(method) + " " + path
		}
	}
	return all
}

// Every operation of the document has a method of its name: a new route needs one here.
func TestEveryOperationHasAMethod(t *testing.T) {
	c := reflect.TypeFor[*client.Client]()
	for id, what := range readDocument(t, servertest.Start(t)).operations() {
		name := strings.ToUpper(id[:1]) + id[1:]
		if _, ok := c.MethodByName(name); !ok {
			t.Errorf("%s: the client has no method %s", what, name)
		}
	}
}

// types are the schemas of the document and their types here.
var types = map[string]reflect.Type{
	"AcceptedMessage":            reflect.TypeFor[client.AcceptedMessage](),
	"AddDKIMKeyRequest":          reflect.TypeFor[client.NewDKIMKey](),
	"AddSuppressionRequest":      nil, // arguments
	"AddSuppressionsRequest":     nil, // arguments
	"Suppressions":               nil, // a result
	"AttachmentRequest":          nil, // written while it is sent
	"Alias":                      reflect.TypeFor[client.Alias](),
	"AliasList":                  reflect.TypeFor[client.Page[client.Alias]](),
	"AppPassword":                reflect.TypeFor[client.AppPassword](),
	"AppPasswordList":            reflect.TypeFor[client.Page[client.AppPassword]](),
	"CreateAppPasswordRequest":   nil, // arguments
	"Vacation":                   reflect.TypeFor[client.Vacation](),
	"SetVacationRequest":         reflect.TypeFor[client.NewVacation](),
	"Session":                    reflect.TypeFor[client.MailboxSession](),
	"SessionList":                reflect.TypeFor[client.Page[client.MailboxSession]](),
	"SignIn":                     reflect.TypeFor[client.SignIn](),
	"SignInList":                 reflect.TypeFor[client.Page[client.SignIn]](),
	"CreateAliasRequest":         nil, // arguments
	"UpdateAliasRequest":         nil, // arguments
	"Activity":                   reflect.TypeFor[client.Activity](),
	"ActivityActor":              reflect.TypeFor[client.ActivityActor](),
	"ActivityList":               reflect.TypeFor[client.Page[client.Activity]](),
	"Attempt":                    reflect.TypeFor[client.Attempt](),
	"Batch":                      reflect.TypeFor[client.BatchAccepted](),
	"BatchRequest":               nil, // written while it is sent
	"CapturedMessage":            reflect.TypeFor[client.CapturedMessage](),
	"CapturedMessageSummary":     nil, // client.CapturedMessage without its content
	"CapturedMessageSummaryList": reflect.TypeFor[client.Page[client.CapturedMessage]](),
	"Envelope":                   reflect.TypeFor[client.Envelope](),
	"Attachment":                 reflect.TypeFor[client.MessageFile](),
	"HeaderField":                reflect.TypeFor[client.HeaderField](),
	"MailboxMessage":             reflect.TypeFor[client.MailboxMessage](),
	"MailboxMessageSummary":      nil, // client.MailboxMessage without its content
	"MailboxMessageSummaryList":  reflect.TypeFor[client.Page[client.MailboxMessage]](),
	"Address":                    reflect.TypeFor[client.Address](),
	"MessageFolder":              reflect.TypeFor[client.MessageFolder](),
	"SimulateRequest":            reflect.TypeFor[client.SimulatedMessage](),
	"Simulation":                 reflect.TypeFor[client.SimulationResult](),
	"SimulatedRecipient":         reflect.TypeFor[client.SimulatedRecipient](),
	"CheckResults":               reflect.TypeFor[client.CheckResults](),
	"CheckResultsRequest":        reflect.TypeFor[client.CheckResults](),
	"SetupCheck":                 reflect.TypeFor[client.SetupCheck](),
	"ClientSetup":                reflect.TypeFor[client.ClientSetup](),
	"CreateDomainRequest":        nil, // an argument
	"CreateKeyRequest":           reflect.TypeFor[client.NewAPIKey](),
	"CreateMailboxRequest":       reflect.TypeFor[client.NewMailbox](),
	"DkimKey":                    reflect.TypeFor[client.DKIMKey](),
	"DkimKeyList":                reflect.TypeFor[client.Page[client.DKIMKey]](),
	"Domain":                     reflect.TypeFor[client.Domain](),
	"DomainList":                 reflect.TypeFor[client.Page[client.Domain]](),
	"ListenerCheck":              reflect.TypeFor[client.ListenerCheck](),
	"SetupStep":                  reflect.TypeFor[client.SetupStep](),
	"Endpoint":                   reflect.TypeFor[client.Endpoint](),
	"Event":                      nil, // one of the bodies below
	"EventList":                  reflect.TypeFor[client.Page[client.Event]](),
	"FieldError":                 reflect.TypeFor[client.FieldError](),
	"SuppressionImport":          reflect.TypeFor[client.SuppressionImport](),
	"MailImport":                 reflect.TypeFor[client.MailImportResult](),
	"ImportFailure":              reflect.TypeFor[client.ImportFailure](),
	"StatsCounts":                reflect.TypeFor[client.StatsCounts](),
	"Key":                        reflect.TypeFor[client.APIKey](),
	"KeyList":                    reflect.TypeFor[client.Page[client.APIKey]](),
	"AccountList":                reflect.TypeFor[client.Page[client.Account]](),
	"CreateAccountRequest":       nil, // two arguments
	"UpdateAccountRequest":       nil, // an argument
	"Account":                    reflect.TypeFor[client.Account](),
	"HostDNS":                    reflect.TypeFor[client.HostDNS](),
	"OperatorDomain":             reflect.TypeFor[client.OperatorDomain](),
	"SuspendDomainRequest":       nil, // an argument
	"AccountLimits":              reflect.TypeFor[client.AccountLimits](),
	"KeyLimits":                  reflect.TypeFor[client.KeyLimits](),
	"KeyLimitsRequest":           reflect.TypeFor[client.KeyLimits](),
	"KeyUsage":                   reflect.TypeFor[client.KeyUsage](),
	"LimitSet":                   reflect.TypeFor[client.LimitSet](),
	"Limits":                     reflect.TypeFor[client.Limits](),
	"RequestLimit":               reflect.TypeFor[client.RequestLimit](),
	"SetLimitsRequest":           reflect.TypeFor[client.LimitSet](),
	"Storage":                    reflect.TypeFor[client.Storage](),
	"Blocker":                    reflect.TypeFor[client.Blocker](),
	"Usage":                      reflect.TypeFor[client.Usage](),
	"LineError":                  reflect.TypeFor[client.LineError](),
	"Mailbox":                    reflect.TypeFor[client.Mailbox](),
	"MailboxList":                reflect.TypeFor[client.Page[client.Mailbox]](),
	"Message":                    nil, // client.Message without the timelines
	"MessageDetail":              reflect.TypeFor[client.Message](),
	"MessageList":                reflect.TypeFor[client.Page[client.Message]](),
	"Ownership":                  reflect.TypeFor[client.Ownership](),
	"Password":                   nil, // a result
	"Problem":                    reflect.TypeFor[client.Problem](),
	"DropQueueRequest":           nil, // client.QueueRequest
	"HoldQueueRequest":           nil, // the same
	"ReleaseQueueRequest":        nil, // the same
	"RetryQueueRequest":          nil, // the same
	"QueueDeliveries":            reflect.TypeFor[client.Page[client.QueueDelivery]](),
	"QueueDelivery":              reflect.TypeFor[client.QueueDelivery](),
	"QueueDestination":           reflect.TypeFor[client.QueueDestination](),
	"QueueDestinations":          reflect.TypeFor[client.Page[client.QueueDestination]](),
	"QueueHold":                  reflect.TypeFor[client.QueueHold](),
	"QueueHolds":                 nil, // a result
	"QueueMessage":               reflect.TypeFor[client.QueueMessage](),
	"QueueCommand":               reflect.TypeFor[client.QueueResult](),
	"Recipient":                  nil, // client.Recipient without the timeline
	"RecipientDetail":            reflect.TypeFor[client.Recipient](),
	"Record":                     reflect.TypeFor[client.Record](),
	"BatchError":                 reflect.TypeFor[client.Problem](),
	"RejectedMessage":            nil, // client.BatchItem
	"RescheduleRequest":          nil, // an argument
	"RotateDKIMRequest":          nil, // an argument
	"SendRecipient":              reflect.TypeFor[client.AcceptedRecipient](),
	"SendRequest":                reflect.TypeFor[client.Send](),
	"SetPasswordRequest":         nil, // an argument
	"Stats":                      reflect.TypeFor[client.Stats](),
	"StatsPeriod":                reflect.TypeFor[client.StatsPeriod](),
	"Suppression":                reflect.TypeFor[client.Suppression](),
	"SuppressionList":            reflect.TypeFor[client.Page[client.Suppression]](),
	"Thread":                     reflect.TypeFor[client.Thread](),
	"ThreadMessage":              reflect.TypeFor[client.ThreadMessage](),
	"CreateTemplateRequest":      reflect.TypeFor[client.NewTemplate](),
	"DuplicateTemplateRequest":   nil, // an argument
	"PublishTemplateRequest":     nil, // an argument
	"RenderTemplateRequest":      nil, // arguments
	"RenderedTemplate":           reflect.TypeFor[client.RenderedTemplate](),
	"SendTemplateRequest":        reflect.TypeFor[client.TemplateSend](),
	"Template":                   reflect.TypeFor[client.Template](),
	"TemplateSummary":            nil, // client.Template without its content
	"TemplateSummaryList":        reflect.TypeFor[client.Page[client.Template]](),
	"TemplateVariable":           reflect.TypeFor[client.TemplateVariable](),
	"TemplateVariableRequest":    reflect.TypeFor[client.TemplateVariable](),
	"TemplateVersion":            reflect.TypeFor[client.TemplateVersion](),
	"TemplateVersionList":        reflect.TypeFor[client.Page[client.TemplateVersion]](),
	"UpdateTemplateRequest":      reflect.TypeFor[client.TemplateChange](),
	"UnsubscribeRequest":         reflect.TypeFor[client.Unsubscribe](),
	"UpdateDomainRequest":        reflect.TypeFor[client.DomainChange](),
	"UpdateMailboxRequest":       reflect.TypeFor[client.MailboxChange](),

	"CreateWebhookRequest":       reflect.TypeFor[client.NewWebhook](),
	"UpdateWebhookRequest":       reflect.TypeFor[client.WebhookChange](),
	"RotateWebhookSecretRequest": nil, // an argument
	"TestWebhookRequest":         nil, // an argument
	"Webhook":                    reflect.TypeFor[client.Webhook](),
	"WebhookList":                reflect.TypeFor[client.Page[client.Webhook]](),
	"WebhookDelivery":            reflect.TypeFor[client.WebhookDelivery](),
	"WebhookDeliveryList":        reflect.TypeFor[client.Page[client.WebhookDelivery]](),
	"WebhookDeliveryDetail":      reflect.TypeFor[client.WebhookDeliveryDetail](),
	"WebhookAttempt":             reflect.TypeFor[client.WebhookAttempt](),
	"WebhookReplay":              reflect.TypeFor[client.WebhookReplay](),

	"InboundEmailEvent":          reflect.TypeFor[client.InboundData](),
	"EventMailbox":               nil, // in client.InboundData
	"EmptyMetadata":              nil, // the same
	"InboundEmailEventBody":      reflect.TypeFor[client.Event](),
	"RateLimitWarningEvent":      reflect.TypeFor[client.RateLimitWarningData](),
	"RateLimitWarningEventBody":  reflect.TypeFor[client.Event](),
	"DeliveryStatusEvent":        reflect.TypeFor[client.DeliveryStatusData](),
	"DeliveryStatusEventBody":    reflect.TypeFor[client.Event](),
	"BounceEvent":                reflect.TypeFor[client.BounceData](),
	"BounceEventBody":            reflect.TypeFor[client.Event](),
	"ComplaintEvent":             reflect.TypeFor[client.ComplaintData](),
	"ComplaintEventBody":         reflect.TypeFor[client.Event](),
	"UnsubscribeEvent":           reflect.TypeFor[client.UnsubscribeData](),
	"UnsubscribeEventBody":       reflect.TypeFor[client.Event](),
	"DomainVerifiedEvent":        reflect.TypeFor[client.DomainVerifiedData](),
	"DomainVerifiedEventBody":    reflect.TypeFor[client.Event](),
	"MailboxCreatedEvent":        reflect.TypeFor[client.MailboxCreatedData](),
	"MailboxCreatedEventBody":    reflect.TypeFor[client.Event](),
	"CreateMigrationRequest":     reflect.TypeFor[client.NewMigration](),
	"MigrationSourceRequest":     reflect.TypeFor[client.NewMigrationSource](),
	"TestMigrationSourceRequest": nil, // as arguments
	"MigrationSourceTest":        reflect.TypeFor[client.MigrationSourceTest](),
	"MigrationSourceFolder":      reflect.TypeFor[client.MigrationSourceFolder](),
	"Migration":                  reflect.TypeFor[client.Migration](),
	"MigrationDetail":            reflect.TypeFor[client.MigrationDetail](),
	"MigrationFailure":           reflect.TypeFor[client.MigrationFailure](),
	"MigrationNote":              reflect.TypeFor[client.MigrationNote](),
	"MigrationFolder":            reflect.TypeFor[client.MigrationFolder](),
	"MigrationList":              reflect.TypeFor[client.Page[client.Migration]](),
	"MigrationProgress":          reflect.TypeFor[client.MigrationProgress](),
	"MigrationSource":            reflect.TypeFor[client.MigrationSource](),

	"CreateAppleProfileRequest": nil, // arguments

	"MigrationCompleteEvent":     reflect.TypeFor[client.MigrationData](),
	"MigrationCompleteEventBody": reflect.TypeFor[client.Event](),
}

// elsewhere are schema members that are written or read in another way than as a field.
var elsewhere = map[string][]string{
	"Problem":             {"type"}, // carries no information
	"SendRequest":         {"attachments"},
	"SendTemplateRequest": {"attachments"},
	"SimulateRequest":     {"attachments"},
}

// Every field of the document is a field here, and vice versa.
func TestEveryFieldIsThere(t *testing.T) {
	d := readDocument(t, servertest.Start(t))
	for name, schema := range d.Components.Schemas {
		own, known := types[name]
		if !known {
			t.Errorf("the schema %s is not known", name)
			continue
		}
		if own == nil {
			continue
		}
		fields := fieldsOf(own)
		for property := range schema.Properties {
			if !slices.Contains(fields, property) && !slices.Contains(elsewhere[name], property) {
				t.Errorf("%v lacks %s of %s", own, property, name)
			}
		}
		for _, field := range fields {
			if name == "BatchError" && (field == "title" || field == "request_id" || field == "import") {
				continue // generated
			}
			if name == "CheckResultsRequest" && field == "author" {
				continue // set by the server
			}
			if schema.Properties[field] == nil {
				t.Errorf("%v has %s, which %s lacks", own, field, name)
			}
		}
	}
	for name := range types {
		if _, ok := d.Components.Schemas[name]; !ok {
			t.Errorf("there is no schema %s", name)
		}
	}
}

func fieldsOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			names = append(names, fieldsOf(f.Type)...)
			continue
		}
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// covered fails the test for every operation without a successful request.
func covered(t *testing.T, s *servertest.Server, p *path) {
	t.Helper()
	mux, asked := http.NewServeMux(), map[string]bool{}
	all := readDocument(t, s).operations()
	for _, pattern := range all {
		mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
	}
	for _, r := range p.answered() {
		_, pattern := mux.Handler(r)
		asked[pattern] = true
	}
	for id, pattern := range all {
		if !asked[pattern] {
			t.Errorf("%s (%s) was not asked for, or never with success", id, pattern)
		}
	}
}

// raw returns a response's original JSON.
func raw(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
