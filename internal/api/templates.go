// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/template"
)

// maxTemplateResponse is the maximum size of a version's source as JSON, in bytes.
const maxTemplateResponse = 4 * template.MaxSource

// templateRoutes registers the endpoints of an account's stored templates.
func (a *API) templateRoutes(r *router) {
	const read, write = "templates.read", "templates.write"
	handle(r, operation{method: "POST", path: "/templates", id: "createTemplate", validatesFirst: true, scope: write, status: 201, mayConflict: true, maxResponseBytes: maxTemplateResponse,
		summary: "Make a template", description: "Its first version is published at once. Templates know `{{a.b}}`, `{{{a}}}` (not escaped in html), " +
			"`{{#if a}} … {{else}} … {{/if}}`, `{{#unless a}}`, `{{#each list}}` with `{{this}}`, `{{@index}}`, `{{@first}}`, `{{@last}}`, `{{@key}}` and `{{../a}}`, and comments `{{! … }}`. " +
			"A value in html is escaped, but a link such as `href=\"{{url}}\"` goes wherever its variable says."}, a.createTemplate)
	handle(r, operation{method: "GET", path: "/templates", id: "listTemplates", scope: read,
		summary: "List templates", description: "Newest first, without their content."}, a.listTemplates)
	handle(r, operation{method: "GET", path: "/templates/{id}", id: "getTemplate", scope: read,
		summary: "Show a template", description: "By its id or its alias, with its newest version."}, a.getTemplate)
	handle(r, operation{method: "PATCH", path: "/templates/{id}", id: "updateTemplate", validatesFirst: true, scope: write, mayConflict: true, maxResponseBytes: maxTemplateResponse,
		summary: "Change a template", description: "Only what is given is changed. A change of the content makes a new version, which is published unless `publish` is false; " +
			"versions never change, and what was sent stays as it was."}, a.updateTemplate)
	handle(r, operation{method: "DELETE", path: "/templates/{id}", id: "deleteTemplate", scope: write, status: 204,
		summary: "Delete a template", description: "With all its versions. What was made of it is sent all the same."}, a.deleteTemplate)
	handle(r, operation{method: "POST", path: "/templates/{id}/duplicate", id: "duplicateTemplate", validatesFirst: true, scope: write, status: 201, mayConflict: true, maxResponseBytes: maxTemplateResponse,
		summary: "Copy a template", description: "The newest version becomes the first one of a new template, without an alias."}, a.duplicateTemplate)
	handle(r, operation{method: "GET", path: "/templates/{id}/versions", id: "listTemplateVersions", scope: read,
		summary: "List a template's versions", description: "Newest first. The last 1000 are kept, and the published one. A page of long ones may have fewer than `limit`, although `has_more` is true: go on with the cursor."}, a.listTemplateVersions)
	handle(r, operation{method: "GET", path: "/templates/{id}/versions/{version}", id: "getTemplateVersion", scope: read,
		summary: "Show a version of a template", description: "As it was made."}, a.getTemplateVersion)
	handle(r, operation{method: "POST", path: "/templates/{id}/publish", id: "publishTemplate", scope: write, maxResponseBytes: maxTemplateResponse,
		summary: "Publish a version of a template", description: "From now on it is the one that is sent."}, a.publishTemplate)
	handle(r, operation{method: "POST", path: "/templates/{id}/render", id: "renderTemplate", scope: read, readOnly: true,
		summary: "Preview a template", description: "Fills in a version, the newest if none is named, and tells what is missing and what was not used. Nothing is sent."}, a.renderTemplate)
}

type templateResponse struct {
	ID               db.ID     `json:"id" doc:"The template's id."`
	Name             string    `json:"name" doc:"What the template is for." example:"Order confirmation"`
	Alias            *string   `json:"alias" doc:"A name to find it by; null if it has none." example:"order-confirmation"`
	Version          int       `json:"version" doc:"The number of the version that is shown: the newest one." example:"3"`
	PublishedVersion int       `json:"published_version" doc:"The number of the version that is sent." example:"3"`
	CreatedAt        time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt        time.Time `json:"updated_at" doc:"When it was last changed."`
	TemplateContent
}

// TemplateContent is the content of a version. It is exported for the OpenAPI document, which uses
// exported types only.
type TemplateContent struct {
	Subject   string                     `json:"subject" doc:"The subject line." example:"Your order {{order}}"`
	HTML      string                     `json:"html" doc:"The html; empty if there is none." example:"<p>Hi {{user.name}}</p>"`
	Text      string                     `json:"text" doc:"The plain text; empty to have it made of the html." example:"Hi {{user.name}}"`
	InlineCSS bool                       `json:"inline_css" doc:"Whether style rules of the html are put into style attributes, for mail programs that drop style elements. Rules that fit no element stay, for mail programs have some of their own. Html of more than 1 MB or 2,000 rules, or of which that would take long, stays as it is."`
	Variables []templateVariableResponse `json:"variables" doc:"The declared variables; others may be used, too."`
}

type templateVariableResponse struct {
	Key      string             `json:"key" doc:"A name such as order or user.name." example:"user.name"`
	Type     apijson.NullString `json:"type" enum:"string,number,boolean,array,object" doc:"What a given value must be; null for anything." example:"string"`
	Required bool               `json:"required" doc:"Whether a send without it is refused."`
	Fallback jsonValueOrNull    `json:"fallback" doc:"What is used when it is not given; null for nothing."`
}

type templateVariableRequest struct {
	Key      string    `json:"key" doc:"A name such as order or user.name." example:"user.name"`
	Type     string    `json:"type,omitempty" enum:"string,number,boolean,array,object" doc:"What a given value must be; anything when left out." example:"string"`
	Required bool      `json:"required,omitempty" doc:"Whether a send without it is refused."`
	Fallback jsonValue `json:"fallback,omitempty" doc:"What is used when it is not given."`
}

func newTemplateContent(c template.Content) TemplateContent {
	out := TemplateContent{Subject: c.Subject, HTML: c.HTML, Text: c.Text, InlineCSS: c.InlineCSS, Variables: []templateVariableResponse{}}
	for _, v := range c.Variables {
		one := templateVariableResponse{Key: v.Key, Type: apijson.NullString(v.Type), Required: v.Required}
		if v.Fallback != nil {
			one.Fallback, _ = json.Marshal(v.Fallback) // always valid: it was decoded from JSON
		}
		out.Variables = append(out.Variables, one)
	}
	return out
}

func newTemplateResponse(t template.Template) templateResponse {
	return templateResponse{
		ID: t.ID, Name: t.Name, Alias: optionalString(t.Alias), Version: t.Number, PublishedVersion: t.Published,
		CreatedAt: utcTime(t.CreatedAt), UpdatedAt: utcTime(t.UpdatedAt), TemplateContent: newTemplateContent(t.Content),
	}
}

// convertVariables converts variable declarations. The fallbacks are the values in the JSON.
func convertVariables(list []templateVariableRequest) []template.Variable {
	out := make([]template.Variable, len(list))
	for i, v := range list {
		out[i] = template.Variable{Key: v.Key, Type: v.Type, Required: v.Required}
		if len(v.Fallback) > 0 {
			d := json.NewDecoder(strings.NewReader(string(v.Fallback)))
			d.UseNumber()
			_ = d.Decode(&out[i].Fallback) // always well formed
		}
	}
	return out
}

// requireTemplateWrite returns a fault for a domain-restricted key: templates belong to the whole
// account.
func requireTemplateWrite(p account.Principal) error {
	if p.Domain != "" {
		return errDomainRestricted
	}
	return nil
}

// writableTemplateID returns the id of a template that the principal may change.
func (a *API) writableTemplateID(ctx context.Context, p account.Principal, name string) (db.ID, error) {
	if err := requireTemplateWrite(p); err != nil {
		return 0, err
	}
	return a.Templates.FindID(ctx, p.Account, name)
}

type createTemplateRequest struct {
	Name      string                    `json:"name" doc:"What the template is for: 1 to 200 bytes." example:"Order confirmation"`
	Alias     string                    `json:"alias,omitempty" doc:"A name that stands for the id: 1 to 64 lower-case letters, digits, _ and -." example:"order-confirmation"`
	Subject   string                    `json:"subject" doc:"The subject line, at most 2000 bytes." example:"Your order {{order}}"`
	HTML      string                    `json:"html,omitempty" doc:"The html, at most 512 KiB; html, text or both are required." example:"<p>Hi {{user.name}}</p>"`
	Text      string                    `json:"text,omitempty" doc:"The plain text, at most 512 KiB; it is made of the html when left out." example:"Hi {{user.name}}"`
	InlineCSS bool                      `json:"inline_css,omitempty" doc:"Put style rules of the html into style attributes."`
	Variables []templateVariableRequest `json:"variables,omitempty" maxItems:"200" doc:"Declares variables: which are required, their types, and what stands in for them."`
}

// adjustSchema adds an example with a text: text or html is required.
func (createTemplateRequest) adjustSchema(s *schema) {
	s.Examples = []any{map[string]any{"name": "Order confirmation", "subject": "Your order {{order}}", "html": "<p>Hi {{user.name}}</p>"}}
}

type createTemplateInput struct{ Body createTemplateRequest }

func (a *API) createTemplate(ctx context.Context, p account.Principal, in *createTemplateInput) (templateResponse, error) {
	if err := requireTemplateWrite(p); err != nil {
		return templateResponse{}, err
	}
	t, err := a.Templates.Create(ctx, p.Account, in.Body.template())
	return newTemplateResponse(t), err
}

func (b *createTemplateRequest) template() template.CreateParams {
	return template.CreateParams{Name: b.Name, Alias: b.Alias, Content: template.Content{
		Subject: b.Subject, HTML: b.HTML, Text: b.Text, InlineCSS: b.InlineCSS, Variables: convertVariables(b.Variables),
	}}
}

type templateSummaryResponse struct {
	ID               db.ID     `json:"id" doc:"The template's id."`
	Name             string    `json:"name" doc:"What the template is for." example:"Order confirmation"`
	Alias            *string   `json:"alias" doc:"A name to find it by; null if it has none." example:"order-confirmation"`
	Version          int       `json:"version" doc:"The number of the newest version." example:"3"`
	PublishedVersion int       `json:"published_version" doc:"The number of the version that is sent." example:"3"`
	CreatedAt        time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt        time.Time `json:"updated_at" doc:"When it was last changed."`
}

func (a *API) listTemplates(ctx context.Context, p account.Principal, in *pageParams) (listResponse[templateSummaryResponse], error) {
	read := func(at db.Page) ([]template.Template, bool, error) { return a.Templates.List(ctx, p.Account, at) }
	show := func(t template.Template) templateSummaryResponse {
		return templateSummaryResponse{t.ID, t.Name, optionalString(t.Alias), t.Latest, t.Published, utcTime(t.CreatedAt), utcTime(t.UpdatedAt)}
	}
	return listPage(in, read, show, func(t template.Template) db.ID { return t.ID })
}

// templateParams holds the path parameter of a template.
type templateParams struct {
	ID string `path:"id" doc:"The template's id or its alias."`
}

func (a *API) getTemplate(ctx context.Context, p account.Principal, in *templateParams) (templateResponse, error) {
	id, err := a.Templates.FindID(ctx, p.Account, in.ID)
	if err != nil {
		return templateResponse{}, err
	}
	t, err := a.Templates.Get(ctx, p.Account, id)
	return newTemplateResponse(t), err
}

type updateTemplateRequest struct {
	Name      *string                    `json:"name,omitempty" doc:"What the template is for." example:"Order confirmation"`
	Alias     *string                    `json:"alias,omitempty" doc:"A name to find it by; empty for none." example:"order-confirmation"`
	Subject   *string                    `json:"subject,omitempty" doc:"The subject line." example:"Your order {{order}}"`
	HTML      *string                    `json:"html,omitempty" doc:"The html; empty for none." example:"<p>Hi {{user.name}}</p>"`
	Text      *string                    `json:"text,omitempty" doc:"The plain text; empty to have it made of the html." example:"Hi {{user.name}}"`
	InlineCSS *bool                      `json:"inline_css,omitempty" doc:"Put style rules of the html into style attributes."`
	Variables *[]templateVariableRequest `json:"variables,omitempty" maxItems:"200" doc:"All declared variables."`
	Publish   *bool                      `json:"publish,omitempty" doc:"false keeps the new version a draft; it is published when left out."`
}

type updateTemplateInput struct {
	templateParams
	Body updateTemplateRequest
}

func (a *API) updateTemplate(ctx context.Context, p account.Principal, in *updateTemplateInput) (templateResponse, error) {
	id, err := a.writableTemplateID(ctx, p, in.ID)
	if err != nil {
		return templateResponse{}, err
	}
	t, err := a.Templates.Update(ctx, p.Account, id, in.Body.change())
	return newTemplateResponse(t), err
}

func (b *updateTemplateRequest) change() template.Change {
	c := template.Change{
		Name: b.Name, Alias: b.Alias, Subject: b.Subject, HTML: b.HTML, Text: b.Text, InlineCSS: b.InlineCSS, Draft: b.Publish != nil && !*b.Publish,
	}
	if b.Variables != nil {
		list := convertVariables(*b.Variables)
		c.Variables = &list
	}
	return c
}

func (a *API) deleteTemplate(ctx context.Context, p account.Principal, in *templateParams) (emptyResponse, error) {
	id, err := a.writableTemplateID(ctx, p, in.ID)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Templates.Delete(ctx, p.Account, id)
}

type duplicateTemplateInput struct {
	templateParams
	Body *duplicateTemplateRequest
}

type duplicateTemplateRequest struct {
	Name string `json:"name,omitempty" doc:"The new template's name." example:"Order confirmation, in French"`
}

func (a *API) duplicateTemplate(ctx context.Context, p account.Principal, in *duplicateTemplateInput) (templateResponse, error) {
	id, err := a.writableTemplateID(ctx, p, in.ID)
	if err != nil {
		return templateResponse{}, err
	}
	name := ""
	if in.Body != nil {
		name = in.Body.Name
	}
	t, err := a.Templates.Duplicate(ctx, p.Account, id, name)
	return newTemplateResponse(t), err
}

type templateVersionResponse struct {
	Version   int       `json:"version" doc:"Its number." example:"3"`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
	TemplateContent
}

func newTemplateVersionResponse(v template.Version) templateVersionResponse {
	return templateVersionResponse{v.Number, utcTime(v.CreatedAt), newTemplateContent(v.Content)}
}

type listTemplateVersionsInput struct {
	templateParams
	pageParams
}

func (a *API) listTemplateVersions(ctx context.Context, p account.Principal, in *listTemplateVersionsInput) (listResponse[templateVersionResponse], error) {
	var none listResponse[templateVersionResponse]
	id, err := a.Templates.FindID(ctx, p.Account, in.ID)
	if err != nil {
		return none, err
	}
	var read pageReader[template.Version] = func(at db.Page) ([]template.Version, bool, error) {
		if at.After == 0 && at.Before > 0 {
			return a.Templates.VersionsAbove(ctx, p.Account, id, int(at.Before-1), at.Limit)
		}
		return a.Templates.Versions(ctx, p.Account, id, int(max(at.After-1, 0)), at.Limit)
	}
	position := func(v template.Version) db.ID { return db.ID(v.Number) + 1 } // positions begin at 2: 1 is below all of them
	at, err := in.dbPageOf(func(text string) (db.ID, error) {
		n, err := strconv.ParseInt(text, 10, 32)
		return db.ID(max(n, 0)) + 1, err
	}, read.exists(position))
	if err != nil {
		return none, err
	}
	return listPageAt(&in.pageParams, at, read, newTemplateVersionResponse, position)
}

type templateVersionInput struct {
	templateParams
	Version string `path:"version" doc:"The version's number." example:"3"`
}

func (a *API) getTemplateVersion(ctx context.Context, p account.Principal, in *templateVersionInput) (templateVersionResponse, error) {
	id, err := a.Templates.FindID(ctx, p.Account, in.ID)
	if err != nil {
		return templateVersionResponse{}, err
	}
	number, err := strconv.Atoi(in.Version)
	if err != nil || number < 1 {
		return templateVersionResponse{}, errNotFound
	}
	t, err := a.Templates.GetVersion(ctx, p.Account, id, number)
	return newTemplateVersionResponse(t.Version), err
}

type publishTemplateInput struct {
	templateParams
	Body publishTemplateRequest
}

type publishTemplateRequest struct {
	Version int `json:"version" minimum:"1" doc:"The number of the version." example:"2"`
}

func (a *API) publishTemplate(ctx context.Context, p account.Principal, in *publishTemplateInput) (templateResponse, error) {
	id, err := a.writableTemplateID(ctx, p, in.ID)
	if err != nil {
		return templateResponse{}, err
	}
	t, err := a.Templates.Publish(ctx, p.Account, id, in.Body.Version)
	return newTemplateResponse(t), err
}

type renderTemplateInput struct {
	templateParams
	Body renderTemplateRequest
}

type renderTemplateRequest struct {
	Variables jsonObject `json:"variables,omitempty" doc:"The values to fill in, at most 256 KiB." example:"{\"order\":42,\"user\":{\"name\":\"Ann\"}}"`
	Version   int        `json:"version,omitempty" minimum:"1" doc:"The number of the version; the newest when left out." example:"2"`
}

type renderedTemplateResponse struct {
	Subject string   `json:"subject" doc:"The subject line." example:"Your order 42"`
	HTML    string   `json:"html" doc:"The html." example:"<p>Hi Ann</p>"`
	Text    string   `json:"text" doc:"The plain text." example:"Hi Ann"`
	Missing []string `json:"missing" doc:"What the template asks for or requires, and was not given." example:"user.last_name"`
	Unused  []string `json:"unused" doc:"What was given and the template does not ask for." example:"coupon"`
}

func (a *API) renderTemplate(ctx context.Context, p account.Principal, in *renderTemplateInput) (renderedTemplateResponse, error) {
	id, err := a.Templates.FindID(ctx, p.Account, in.ID)
	if err != nil {
		return renderedTemplateResponse{}, err
	}
	if in.Body.Version < 0 {
		return renderedTemplateResponse{}, errNotFound
	}
	r, err := a.Templates.Preview(ctx, p.Account, id, in.Body.Version, json.RawMessage(in.Body.Variables))
	return renderedTemplateResponse{r.Subject, r.HTML, r.Text, append([]string{}, r.Missing...), append([]string{}, r.Unused...)}, err
}
