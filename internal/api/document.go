// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
)

// document is the OpenAPI document, built from the same types that decode requests and encode
// responses.
type document struct {
	openAPI
	schemas *schemas
}

const apiDescription = `Mailboxes and sending for your own domains.

Requests and answers are JSON objects with names in snake_case, times in UTC with milliseconds (RFC 3339) and ids that are UUIDs. Every field of an answer is always there: ` + "`null`" + ` where it has no value. Send your API key as ` +
	"`Authorization: Bearer ms_…`" + ` with every request.

Lists come in pages, newest first, or oldest first with ` + "`order=asc`" + `: go on with ` + "`after`" + ` set to ` + "`next_cursor`" + ` while ` + "`has_more`" + ` is true. The last page has a cursor, too, which finds later what has been added at that end. A cursor belongs to one list, filter and order; the id of an entry serves in its place. Only the list of events promises that a reader who goes on like this misses nothing: an entry of another list may be committed a moment after a newer one.

Errors are problems (RFC 9457) whose ` + "`code`" + ` is stable. A request that breaks rules is answered with status 422 and every field at fault; fields that an endpoint does not know are refused as well. What belongs to another account is answered with 404. Each answer has an ` + "`X-Request-Id`" + `.

Every ` + "`POST`" + ` that changes something takes an ` + "`Idempotency-Key`" + `: your own id for the request. Repeated within 24 hours by the same API key to the same path with the same content, the request does nothing, and gets the first answer again with the header ` + "`Idempotency-Replayed: true`" + `. The content of JSON is compared by its values: the order of members, spaces and escapes don't matter. A key that was used with other content is answered with 422 ` + "`idempotency_key_reused`" + `. While the first request is in progress, the answer is 409 ` + "`idempotency_in_flight`" + `: come again after ` + "`Retry-After`" + `. If the service was interrupted and can't know how the first request ended, it is 409 ` + "`idempotency_result_unknown`" + `: look whether it took effect. What is refused is not kept: correct the request and use the key again.

Limits are told in ` + "`RateLimit-Policy` and `RateLimit`" + ` (draft-ietf-httpapi-ratelimit-headers): requests a second with every answer, messages an hour and a day and recipients a day with the answers to sends. What is too much is answered with status 429 and ` + "`Retry-After`" + `, and did nothing. Hours and days are those of UTC.`

// tags are the resources, in the order of the API reference.
var tags = [...]tagObject{
	{Name: "Domains", Description: "Names that you own, and the DNS records that each needs."},
	{Name: "Mailboxes", Description: "Addresses with a password, for mail programs."},
	{Name: "Aliases", Description: "Addresses whose mail goes to others."},
	{Name: "Sending", Description: "Mail that your application sends, and what became of it."},
	{Name: "Templates", Description: "Stored texts with variables, in versions that never change."},
	{Name: "Suppressions", Description: "Addresses that get no mail of yours: they bounced, complained, unsubscribed, or were added."},
	{Name: "Threads", Description: "What was sent and what came in answer, in order."},
	{Name: "Events", Description: "What happened: deliveries, bounces, arrivals."},
	{Name: "Webhooks", Description: "URLs of yours that events are sent to, and what became of each."},
	{Name: "Migrations", Description: "Mailboxes that are copied from other servers."},
	{Name: "Statistics", Description: "How much was sent and arrived, and what became of it."},
	{Name: "Sandbox", Description: "In `mailstead dev`: mail as from outside, and what would have gone there."},
	{Name: "API keys", Description: "What your applications sign in with."},
	{Name: "Limits", Description: "How much your account may use, and how much it has."},
	{Name: "Activity", Description: "The audit log: who changed what, and who read mail."},
	{Name: "Operators", Description: "For those who run the service: the accounts, their limits and queued mail, and the DNS records of the service. The scope `operator` is given at the server's command line alone."},
}

func newDocument(version string) *document {
	d := &document{schemas: newSchemas()}
	d.openAPI = openAPI{
		OpenAPI: "3.1.0",
		Info:    map[string]string{"title": "Mailstead", "version": version, "description": apiDescription},
		Servers: []map[string]string{{"url": "/", "description": "The service that this document comes from."}},
		Tags:    tags[:],
		Paths:   map[string]map[string]*operationObject{},
		Components: components{
			Schemas:   d.schemas.byName,
			Responses: map[string]*responseObject{},
			Headers:   rateLimitHeaders(),
			SecuritySchemes: map[string]map[string]string{
				"key": {"type": "http", "scheme": "bearer", "description": "An API key: ms_ and 52 letters and digits."},
			},
		},
		Security: []map[string][]string{{"key": {}}},
	}
	problems := d.schemas.ref(reflect.TypeFor[problem]())
	for status, p := range problemExamples {
		name, what := "Problem", "Any other error."
		if status != 0 {
			name, what = "Problem"+strconv.Itoa(status), http.StatusText(status)+": "+p.Detail
		}
		d.Components.Responses[name] = &responseObject{Description: what, Content: map[string]*mediaType{
			"application/problem+json": {Schema: problems, Example: p},
		}}
		if status == http.StatusTooManyRequests {
			d.Components.Responses[name].Headers = headerRefs(rateLimitPolicyHeader, rateLimitHeader, "Retry-After")
		}
	}
	return d
}

// problemExamples are the errors that the document shows, by status.
var problemExamples = func() map[int]*problem {
	all := map[int]*problem{}
	for _, p := range []*problem{
		newProblem(http.StatusBadRequest, "invalid_json", "The request's body is not valid JSON in UTF-8."),
		newProblem(http.StatusUnauthorized, "invalid_api_key", "This API key is not valid. Check that it was copied whole, and that it was not deleted."),
		newProblem(http.StatusForbidden, "missing_scope", "This API key lacks the scope domains.write."),
		newProblem(http.StatusNotFound, "not_found", "There is nothing with this id."),
		newProblem(http.StatusConflict, "domain_exists", "Your account has this domain already."),
		newProblem(http.StatusRequestEntityTooLarge, "body_too_large", "The request's body may have 1048576 bytes."),
		newProblem(http.StatusUnsupportedMediaType, "unsupported_media_type", "Send the body as JSON in UTF-8."),
		newProblem(http.StatusUnprocessableEntity, "validation_failed", "Some fields need correcting."),
		newProblem(http.StatusTooManyRequests, "sends_per_hour_exceeded", "This account may send 1000 messages an hour; too few of them are left. Go on at 2026-05-04 11:00 UTC."),
		newProblem(http.StatusInternalServerError, "internal_error", "Something went wrong on our side. Please try again."),
	} {
		p.RequestID, p.Errors = "ofvd5mpqfkhd2tmxjsyhzqvzr4", []fieldErrorResponse{}
		all[p.Status] = p
	}
	all[http.StatusUnprocessableEntity].Errors = []fieldErrorResponse{{"to[2]", "invalid_address", "This must be an address such as you@example.com."}}
	all[0] = all[http.StatusInternalServerError]
	return all
}()

// describeOperation adds an operation: its parameters and body from the tags of I, its response
// from O.
func describeOperation[I, O any](d *document, o operation) {
	op := &operationObject{
		OperationID: o.id, Summary: o.summary, Tags: []string{tagOf(o.path)},
		Description: o.description + "\n\nNeeds the scope `" + o.scope + "`.", Responses: map[string]*responseObject{},
	}
	problems := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError}
	in := reflect.TypeFor[I]()
	d.addParameters(op, in)
	if o.takesIdempotencyKey() {
		d.addParameters(op, reflect.TypeFor[idempotencyKeyInput]())
	}
	if strings.Contains(o.path, "{") {
		problems = append(problems, http.StatusNotFound)
	}
	if body, ok := in.FieldByName("Body"); ok {
		op.RequestBody = &requestBody{
			Required:    body.Type.Kind() != reflect.Pointer,
			Description: "A JSON object.",
			Content:     map[string]*mediaType{"application/json": {Schema: d.schemas.of(body.Type)}},
		}
		problems = append(problems, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if o.requestMedia != "" {
		op.RequestBody = &requestBody{
			Required:    true,
			Description: "A file.",
			Content:     map[string]*mediaType{},
		}
		for media := range strings.SplitSeq(o.requestMedia, ", ") {
			op.RequestBody.Content[media] = &mediaType{Schema: &schema{Type: "string"}}
		}
		problems = append(problems, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	problems = append(problems, http.StatusUnprocessableEntity)
	if o.mayConflict || o.takesIdempotencyKey() {
		problems = append(problems, http.StatusConflict)
	}
	for _, status := range problems {
		op.Responses[strconv.Itoa(status)] = &responseObject{Ref: fmt.Sprintf("#/components/responses/Problem%d", status)}
	}
	op.Responses["default"] = &responseObject{Ref: "#/components/responses/Problem"}
	op.Responses[strconv.Itoa(o.successStatus())] = d.successResponse(o, reflect.TypeFor[O]())
	path := "/api/v1" + strings.ReplaceAll(o.path, "...}", "}")
	if d.Paths[path] == nil {
		d.Paths[path] = map[string]*operationObject{}
	}
	d.Paths[path][strings.ToLower(o.method)] = op
}

func (d *document) successResponse(o operation, out reflect.Type) *responseObject {
	r := &responseObject{Description: http.StatusText(o.successStatus()), Headers: headerRefs(rateLimitPolicyHeader, rateLimitHeader)}
	switch {
	case out == reflect.TypeFor[emptyResponse]():
	case o.responseMedia != "":
		r.Content = map[string]*mediaType{}
		for media := range strings.SplitSeq(o.responseMedia, ", ") {
			r.Content[strings.Split(media, ";")[0]] = &mediaType{Schema: &schema{Type: "string"}}
		}
	default:
		r.Content = map[string]*mediaType{"application/json": {Schema: d.schemas.of(out)}}
	}
	return r
}

func (d *document) addParameters(op *operationObject, in reflect.Type) {
	for i := range in.NumField() {
		f := in.Field(i)
		if f.Anonymous {
			d.addParameters(op, f.Type)
			continue
		}
		for _, place := range []string{"path", "query", "header"} {
			name := f.Tag.Get(place)
			if name == "" {
				continue
			}
			schema := d.schemas.ofField(f)
			p := &parameter{Name: name, In: place, Required: place == "path" || f.Tag.Get("required") == "true", Description: schema.Description, Schema: schema}
			if f.Type.Kind() == reflect.Map {
				p.Style, p.Explode = "deepObject", new(true)
			}
			if schema.Type == "array" {
				schema.Nullable, p.Explode = false, new(bool)
			}
			op.Parameters = append(op.Parameters, p)
		}
	}
}

// marshal returns the document as JSON.
func (d *document) marshal() []byte {
	d.schemas.allowAdditionalProperties()
	text, err := json.MarshalIndent(d.openAPI, "", " ")
	if err != nil {
		panic(fmt.Sprintf("the OpenAPI document can't be written: %v", err))
	}
	return text
}

// tagOf returns the tag of an endpoint, by the first part of its path.
func tagOf(path string) string {
	switch resource, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/"); resource {
	case "domains":
		return "Domains"
	case "mailboxes":
		return "Mailboxes"
	case "aliases":
		return "Aliases"
	case "outbound":
		return "Sending"
	case "threads":
		return "Threads"
	case "templates":
		return "Templates"
	case "suppressions":
		return "Suppressions"
	case "events":
		return "Events"
	case "webhooks":
		return "Webhooks"
	case "migrations":
		return "Migrations"
	case "stats":
		return "Statistics"
	case "sandbox":
		return "Sandbox"
	case "api-keys":
		return "API keys"
	case "limits":
		return "Limits"
	case "activity":
		return "Activity"
	case "operator":
		return "Operators"
	default:
		panic("the document has no tag for " + path)
	}
}

// jsonValue is a JSON value, unchanged from the input.
type jsonValue json.RawMessage

var jsonValueType = reflect.TypeFor[jsonValue]()

// MarshalJSON returns the value itself.
func (v jsonValue) MarshalJSON() ([]byte, error) {
	if len(v) == 0 {
		return []byte("null"), nil
	}
	return v, nil
}

func (jsonValue) schema(*schemas) *schema { return &schema{} }

// jsonValueOrNull is a JSON value of a response, which may be null.
type jsonValueOrNull json.RawMessage

// MarshalJSON returns the value itself.
func (v jsonValueOrNull) MarshalJSON() ([]byte, error) { return jsonValue(v).MarshalJSON() }

func (jsonValueOrNull) schema(*schemas) *schema { return &schema{Type: anyType} }

// jsonObject is a JSON object, unchanged from the input.
type jsonObject json.RawMessage

var jsonObjectType = reflect.TypeFor[jsonObject]()

// MarshalJSON returns the object itself.
func (o jsonObject) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("{}"), nil
	}
	return o, nil
}

func (jsonObject) schema(*schemas) *schema {
	return &schema{Type: "object", AdditionalProperties: true}
}
