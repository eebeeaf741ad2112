// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// TemplateContent is the content of a template version.
type TemplateContent struct {
	Subject   string             `json:"subject"`
	HTML      string             `json:"html,omitempty"` // HTML, Text or both
	Text      string             `json:"text,omitempty"` // generated from the HTML if empty
	InlineCSS bool               `json:"inline_css,omitempty"`
	Variables []TemplateVariable `json:"variables,omitempty"`
}

// TemplateVariable is a declared variable; undeclared ones may be used, too.
type TemplateVariable struct {
	Key      string `json:"key"`                // such as order or user.name
	Type     string `json:"type,omitempty"`     // string, number, boolean, array or object; "" for any
	Required bool   `json:"required,omitempty"` // a send without it is rejected
	Fallback any    `json:"fallback,omitempty"` // used if it is missing
}

// Template is a stored template, with its newest version.
type Template struct {
	ID               string    `json:"id"`
	Name             string    `json:"name"`
	Alias            string    `json:"alias"`             // "" for none
	Version          int       `json:"version"`           // newest version
	PublishedVersion int       `json:"published_version"` // version used for sending
	CreatedAt        time.Time `json:"created_at"`
	UpdatedAt        time.Time `json:"updated_at"`
	TemplateContent            // not in lists
}

// TemplateVersion is a version of a template. It never changes.
type TemplateVersion struct {
	Version   int       `json:"version"`
	CreatedAt time.Time `json:"created_at"`
	TemplateContent
}

// NewTemplate is a template to create.
type NewTemplate struct {
	Name  string `json:"name"`
	Alias string `json:"alias,omitempty"`
	TemplateContent
}

// TemplateChange are changes to a template; nil leaves a field unchanged.
type TemplateChange struct {
	Name      *string             `json:"name,omitempty"`
	Alias     *string             `json:"alias,omitempty"` // "" removes it
	Subject   *string             `json:"subject,omitempty"`
	HTML      *string             `json:"html,omitempty"`
	Text      *string             `json:"text,omitempty"`
	InlineCSS *bool               `json:"inline_css,omitempty"`
	Variables *[]TemplateVariable `json:"variables,omitempty"`
	Publish   *bool               `json:"publish,omitempty"` // false keeps a new version a draft
}

// RenderedTemplate is the result of rendering a template.
type RenderedTemplate struct {
	Subject string   `json:"subject"`
	HTML    string   `json:"html"`
	Text    string   `json:"text"`
	Missing []string `json:"missing"` // used or required, but not given
	Unused  []string `json:"unused"`  // given, but not used
}

// CreateTemplate creates a template and publishes its first version.
func (c *Client) CreateTemplate(ctx context.Context, t NewTemplate) (*Template, error) {
	return post[Template](ctx, c, "/templates", "", t, false)
}

// ListTemplates returns a page of templates, newest first, without content.
func (c *Client) ListTemplates(ctx context.Context, p Paging) (*Page[Template], error) {
	return list[Template](ctx, c, "/templates", nil, p)
}

// Templates iterates over all templates, newest first. It stops after an error.
func (c *Client) Templates(ctx context.Context) iter.Seq2[Template, error] {
	return walk(func(p Paging) (*Page[Template], error) { return c.ListTemplates(ctx, p) })
}

// GetTemplate returns a template. Its id and its alias are equivalent, here and in all other
// methods.
func (c *Client) GetTemplate(ctx context.Context, id string) (*Template, error) {
	return do[Template](ctx, c, call{method: http.MethodGet, path: "/templates/{id}", id: id})
}

// UpdateTemplate changes a template. A change of the content creates a new version.
func (c *Client) UpdateTemplate(ctx context.Context, id string, change TemplateChange) (*Template, error) {
	b, err := jsonBody(change)
	if err != nil {
		return nil, err
	}
	return do[Template](ctx, c, call{method: http.MethodPatch, path: "/templates/{id}", id: id, body: b})
}

// DeleteTemplate deletes a template with all its versions.
func (c *Client) DeleteTemplate(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/templates/{id}", id: id})
}

// DuplicateTemplate creates a new template from another's newest version; an empty name is
// generated.
func (c *Client) DuplicateTemplate(ctx context.Context, id, name string) (*Template, error) {
	return post[Template](ctx, c, "/templates/{id}/duplicate", id, struct {
		Name string `json:"name,omitempty"`
	}{name}, false)
}

// ListTemplateVersions returns a page of a template's versions, newest first. It supports only
// Paging.After.
func (c *Client) ListTemplateVersions(ctx context.Context, id string, p Paging) (*Page[TemplateVersion], error) {
	return do[Page[TemplateVersion]](ctx, c, call{method: http.MethodGet, path: "/templates/{id}/versions", id: id, query: p.into(nil)})
}

// TemplateVersions iterates over all versions of a template, newest first. It stops after an error.
func (c *Client) TemplateVersions(ctx context.Context, id string) iter.Seq2[TemplateVersion, error] {
	return walk(func(p Paging) (*Page[TemplateVersion], error) { return c.ListTemplateVersions(ctx, id, p) })
}

// GetTemplateVersion returns a version of a template.
func (c *Client) GetTemplateVersion(ctx context.Context, id string, version int) (*TemplateVersion, error) {
	return do[TemplateVersion](ctx, c, call{method: http.MethodGet, path: "/templates/{id}/versions/" + strconv.Itoa(version), id: id})
}

// PublishTemplate makes a version the one used for sending.
func (c *Client) PublishTemplate(ctx context.Context, id string, version int) (*Template, error) {
	return post[Template](ctx, c, "/templates/{id}/publish", id, struct {
		Version int `json:"version"`
	}{version}, true)
}

// RenderTemplate renders a version (0: the newest) with variables, which must encode to a JSON
// object. It sends nothing.
func (c *Client) RenderTemplate(ctx context.Context, id string, version int, variables any) (*RenderedTemplate, error) {
	return post[RenderedTemplate](ctx, c, "/templates/{id}/render", id, struct {
		Variables any `json:"variables,omitempty"`
		Version   int `json:"version,omitempty"`
	}{variables, version}, true)
}

// TemplateSend is a message to send with a template's text. The other fields are those of Send.
type TemplateSend struct {
	FromEmail  string   `json:"from_email"`
	FromName   string   `json:"from_name,omitempty"`
	To         []string `json:"to"`
	Cc         []string `json:"cc,omitempty"`
	Bcc        []string `json:"bcc,omitempty"`
	ReplyTo    string   `json:"reply_to,omitempty"`
	TemplateID string   `json:"template_id"` // id or alias; its published version is sent
	Variables  any      `json:"variables,omitempty"`

	Attachments []Attachment `json:"-"`

	Headers        map[string]string `json:"headers,omitempty"`
	Metadata       any               `json:"metadata,omitempty"`
	Tags           []string          `json:"tags,omitempty"`
	ThreadID       string            `json:"thread_id,omitempty"`
	InReplyTo      string            `json:"in_reply_to,omitempty"`
	SendAt         time.Time         `json:"send_at,omitzero"`
	Unsubscribe    *Unsubscribe      `json:"unsubscribe,omitempty"`
	IdempotencyKey string            `json:"-"`
}

// SendTemplate sends a message with a template's text. Attachments and the idempotency key work as
// in Send.
func (c *Client) SendTemplate(ctx context.Context, s *TemplateSend) (*AcceptedMessage, error) {
	var w writer
	w.message(s, s.Attachments)
	b, err := w.body()
	if err != nil {
		return nil, err
	}
	return c.submit(ctx, "/outbound/send-template", s.IdempotencyKey, b)
}
