// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/template"
)

// templateRoom is for the source of a version as JSON.
const templateRoom = 4 * template.MaxSource

// templateRoutes are the stored templates of an account.
func (a *API) templateRoutes(r *router) {
	const read, write = "templates.read", "templates.write"
	handle(r, operation{method: "POST", path: "/templates", id: "createTemplate", checksFirst: true, scope: write, status: 201, conflicts: true, room: templateRoom,
		summary: "Make a template", description: "Its first version is published at once. Templates know `{{a.b}}`, `{{{a}}}` (not escaped in html), " +
			"`{{#if a}} … {{else}} … {{/if}}`, `{{#unless a}}`, `{{#each list}}` with `{{this}}`, `{{@index}}`, `{{@first}}`, `{{@last}}`, `{{@key}}` and `{{../a}}`, and comments `{{! … }}`. " +
			"A value in html is escaped, but a link such as `href=\"{{url}}\"` goes wherever its variable says."}, a.createTemplate)
	handle(r, operation{method: "GET", path: "/templates", id: "listTemplates", scope: read,
		summary: "List templates", description: "Newest first, without their content."}, a.listTemplates)
	handle(r, operation{method: "GET", path: "/templates/{id}", id: "getTemplate", scope: read,
		summary: "Show a template", description: "By its id or its alias, with its newest version."}, a.getTemplate)
	handle(r, operation{method: "PATCH", path: "/templates/{id}", id: "updateTemplate", checksFirst: true, scope: write, conflicts: true, room: templateRoom,
		summary: "Change a template", description: "Only what is given is changed. A change of the content makes a new version, which is published unless `publish` is false; " +
			"versions never change, and what was sent stays as it was."}, a.updateTemplate)
	handle(r, operation{method: "DELETE", path: "/templates/{id}", id: "deleteTemplate", scope: write, status: 204,
		summary: "Delete a template", description: "With all its versions. What was made of it is sent all the same."}, a.deleteTemplate)
	handle(r, operation{method: "POST", path: "/templates/{id}/duplicate", id: "duplicateTemplate", checksFirst: true, scope: write, status: 201, conflicts: true, room: templateRoom,
		summary: "Copy a template", description: "The newest version becomes the first one of a new template, without an alias."}, a.duplicateTemplate)
	handle(r, operation{method: "GET", path: "/templates/{id}/versions", id: "listTemplateVersions", scope: read,
		summary: "List a template's versions", description: "Newest first. The last 1000 are kept, and the published one. A page of long ones may have fewer than `limit`, although `has_more` is true: go on with the cursor."}, a.listTemplateVersions)
	handle(r, operation{method: "GET", path: "/templates/{id}/versions/{version}", id: "getTemplateVersion", scope: read,
		summary: "Show a version of a template", description: "As it was made."}, a.getTemplateVersion)
	handle(r, operation{method: "POST", path: "/templates/{id}/publish", id: "publishTemplate", scope: write, room: templateRoom,
		summary: "Publish a version of a template", description: "From now on it is the one that is sent."}, a.publishTemplate)
	handle(r, operation{method: "POST", path: "/templates/{id}/render", id: "renderTemplate", scope: read, reads: true,
		summary: "Preview a template", description: "Fills in a version, the newest if none is named, and tells what is missing and what was not used. Nothing is sent."}, a.renderTemplate)
}

type templateAnswer struct {
	ID               db.ID     `json:"id" doc:"The template's id."`
	Name             string    `json:"name" doc:"What the template is for." example:"Order confirmation"`
	Alias            *string   `json:"alias" doc:"A name to find it by; null if it has none." example:"order-confirmation"`
	Version          int       `json:"version" doc:"The number of the version that is shown: the newest one." example:"3"`
	PublishedVersion int       `json:"published_version" doc:"The number of the version that is sent." example:"3"`
	CreatedAt        time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt        time.Time `json:"updated_at" doc:"When it was last changed."`
	TemplateContent
}

// TemplateContent is what a version says. It is exported for the OpenAPI
// document, which looks into exported types only.
type TemplateContent struct {
	Subject   string             `json:"subject" doc:"The subject line." example:"Your order {{order}}"`
	HTML      string             `json:"html" doc:"The html; empty if there is none." example:"<p>Hi {{user.name}}</p>"`
	Text      string             `json:"text" doc:"The plain text; empty to have it made of the html." example:"Hi {{user.name}}"`
	InlineCSS bool               `json:"inline_css" doc:"Whether style rules of the html are put into style attributes, for mail programs that drop style elements. Rules that fit no element stay, for mail programs have some of their own. Html of more than 1 MB or 2,000 rules, or of which that would take long, stays as it is."`
	Variables []templateVariable `json:"variables" nullable:"false" doc:"The declared variables; others may be used, too."`
}

type templateVariable struct {
	Key      string   `json:"key" doc:"A name such as order or user.name." example:"user.name"`
	Type     string   `json:"type,omitempty" enum:"string,number,boolean,array,object" doc:"What a given value must be; anything when left out." example:"string"`
	Required bool     `json:"required,omitempty" doc:"Whether a send without it is refused."`
	Fallback anything `json:"fallback,omitempty" doc:"What is used when it is not given."`
}

func showContent(c template.Content) TemplateContent {
	out := TemplateContent{Subject: c.Subject, HTML: c.HTML, Text: c.Text, InlineCSS: c.InlineCSS, Variables: []templateVariable{}}
	for _, v := range c.Variables {
		one := templateVariable{Key: v.Key, Type: v.Type, Required: v.Required}
		if v.Fallback != nil {
			one.Fallback, _ = json.Marshal(v.Fallback) // it was read from JSON
		}
		out.Variables = append(out.Variables, one)
	}
	return out
}

func showTemplate(t template.Template) templateAnswer {
	return templateAnswer{
		ID: t.ID, Name: t.Name, Alias: optional(t.Alias), Version: t.Number, PublishedVersion: t.Published,
		CreatedAt: stamp(t.CreatedAt), UpdatedAt: stamp(t.UpdatedAt), TemplateContent: showContent(t.Content),
	}
}

// readVariables reads declarations; the fallbacks are what the JSON says.
func readVariables(list []templateVariable) []template.Variable {
	out := make([]template.Variable, len(list))
	for i, v := range list {
		out[i] = template.Variable{Key: v.Key, Type: v.Type, Required: v.Required}
		if len(v.Fallback) > 0 {
			d := json.NewDecoder(strings.NewReader(string(v.Fallback)))
			d.UseNumber()
			_ = d.Decode(&out[i].Fallback) // it is well-formed
		}
	}
	return out
}

// mayWriteTemplates: a template is everybody's in the account, so that a key
// for one domain can't change it.
func mayWriteTemplates(p account.Principal) error {
	if p.Domain != "" {
		return errOneDomain
	}
	return nil
}

type createTemplateRequest struct {
	Name      string             `json:"name" doc:"What the template is for: 1 to 200 bytes." example:"Order confirmation"`
	Alias     string             `json:"alias,omitempty" doc:"A name to find it by: 1 to 64 lower-case letters, digits, _ and -." example:"order-confirmation"`
	Subject   string             `json:"subject" doc:"The subject line, at most 2000 bytes." example:"Your order {{order}}"`
	HTML      string             `json:"html,omitempty" doc:"The html, at most 512 KiB; html, text or both are required." example:"<p>Hi {{user.name}}</p>"`
	Text      string             `json:"text,omitempty" doc:"The plain text, at most 512 KiB; it is made of the html when left out." example:"Hi {{user.name}}"`
	InlineCSS bool               `json:"inline_css,omitempty" doc:"Put style rules of the html into style attributes."`
	Variables []templateVariable `json:"variables,omitempty" nullable:"false" maxItems:"200" doc:"Declares variables: which are required, their types, and what stands in for them."`
}

type createTemplateInput struct{ Body createTemplateRequest }

func (a *API) createTemplate(ctx context.Context, p account.Principal, in *createTemplateInput) (templateAnswer, error) {
	if err := mayWriteTemplates(p); err != nil {
		return templateAnswer{}, err
	}
	t, err := a.Templates.Create(ctx, p.Account, in.Body.template())
	return showTemplate(t), err
}

func (b *createTemplateRequest) template() template.New {
	return template.New{Name: b.Name, Alias: b.Alias, Content: template.Content{
		Subject: b.Subject, HTML: b.HTML, Text: b.Text, InlineCSS: b.InlineCSS, Variables: readVariables(b.Variables),
	}}
}

type templateListed struct {
	ID               db.ID     `json:"id" doc:"The template's id."`
	Name             string    `json:"name" doc:"What the template is for." example:"Order confirmation"`
	Alias            *string   `json:"alias" doc:"A name to find it by; null if it has none." example:"order-confirmation"`
	Version          int       `json:"version" doc:"The number of the newest version." example:"3"`
	PublishedVersion int       `json:"published_version" doc:"The number of the version that is sent." example:"3"`
	CreatedAt        time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt        time.Time `json:"updated_at" doc:"When it was last changed."`
}

func (a *API) listTemplates(ctx context.Context, p account.Principal, in *page) (list[templateListed], error) {
	at, err := in.db()
	if err != nil {
		return list[templateListed]{}, err
	}
	found, more, err := a.Templates.List(ctx, p.Account, at)
	if err != nil {
		return list[templateListed]{}, err
	}
	show := func(t template.Template) templateListed {
		return templateListed{t.ID, t.Name, optional(t.Alias), t.Latest, t.Published, stamp(t.CreatedAt), stamp(t.UpdatedAt)}
	}
	return answer(*in, found, more, show, func(t template.Template) string { return t.ID.String() }), nil
}

type templatePath struct {
	ID string `path:"id" doc:"The template's id or its alias."`
}

func (a *API) getTemplate(ctx context.Context, p account.Principal, in *templatePath) (templateAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		t, err := a.Templates.ByAlias(ctx, p.Account, in.ID)
		return showTemplate(t), err
	}
	t, err := a.Templates.Get(ctx, p.Account, id)
	return showTemplate(t), err
}

type updateTemplateRequest struct {
	Name      *string             `json:"name,omitempty" doc:"What the template is for." example:"Order confirmation"`
	Alias     *string             `json:"alias,omitempty" doc:"A name to find it by; empty for none." example:"order-confirmation"`
	Subject   *string             `json:"subject,omitempty" doc:"The subject line." example:"Your order {{order}}"`
	HTML      *string             `json:"html,omitempty" doc:"The html; empty for none." example:"<p>Hi {{user.name}}</p>"`
	Text      *string             `json:"text,omitempty" doc:"The plain text; empty to have it made of the html." example:"Hi {{user.name}}"`
	InlineCSS *bool               `json:"inline_css,omitempty" doc:"Put style rules of the html into style attributes."`
	Variables *[]templateVariable `json:"variables,omitempty" nullable:"false" maxItems:"200" doc:"All declared variables."`
	Publish   *bool               `json:"publish,omitempty" doc:"false keeps the new version a draft; it is published when left out."`
}

type updateTemplateInput struct {
	one
	Body updateTemplateRequest
}

func (a *API) updateTemplate(ctx context.Context, p account.Principal, in *updateTemplateInput) (templateAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		err = mayWriteTemplates(p)
	}
	if err != nil {
		return templateAnswer{}, err
	}
	t, err := a.Templates.Update(ctx, p.Account, id, in.Body.change())
	return showTemplate(t), err
}

func (b *updateTemplateRequest) change() template.Change {
	c := template.Change{
		Name: b.Name, Alias: b.Alias, Subject: b.Subject, HTML: b.HTML, Text: b.Text, InlineCSS: b.InlineCSS, Draft: b.Publish != nil && !*b.Publish,
	}
	if b.Variables != nil {
		list := readVariables(*b.Variables)
		c.Variables = &list
	}
	return c
}

func (a *API) deleteTemplate(ctx context.Context, p account.Principal, in *one) (nothing, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		err = mayWriteTemplates(p)
	}
	if err != nil {
		return nothing{}, err
	}
	return nothing{}, a.Templates.Delete(ctx, p.Account, id)
}

type duplicateTemplateInput struct {
	one
	Body *duplicateTemplateRequest
}

type duplicateTemplateRequest struct {
	Name string `json:"name,omitempty" doc:"The new template's name." example:"Order confirmation, in French"`
}

func (a *API) duplicateTemplate(ctx context.Context, p account.Principal, in *duplicateTemplateInput) (templateAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		err = mayWriteTemplates(p)
	}
	if err != nil {
		return templateAnswer{}, err
	}
	name := ""
	if in.Body != nil {
		name = in.Body.Name
	}
	t, err := a.Templates.Duplicate(ctx, p.Account, id, name)
	return showTemplate(t), err
}

type templateVersionAnswer struct {
	Version   int       `json:"version" doc:"Its number." example:"3"`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
	TemplateContent
}

func showVersion(v template.Version) templateVersionAnswer {
	return templateVersionAnswer{v.Number, stamp(v.CreatedAt), showContent(v.Content)}
}

type listTemplateVersionsInput struct {
	one
	Limit int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	After string `query:"after" doc:"Only what comes after this cursor: what is older."`
}

func (a *API) listTemplateVersions(ctx context.Context, p account.Principal, in *listTemplateVersionsInput) (list[templateVersionAnswer], error) {
	var none list[templateVersionAnswer]
	id, err := db.ParseID(in.ID)
	if err != nil {
		return none, err
	}
	below := 0
	if in.After != "" {
		if below, err = strconv.Atoi(in.After); err != nil || below < 1 {
			var bad fault.Fields
			badCursor(&bad, "after")
			return none, bad.Err()
		}
	}
	found, more, err := a.Templates.Versions(ctx, p.Account, id, below, in.Limit)
	if err != nil {
		return none, err
	}
	return answer(page{}, found, more, showVersion, func(v template.Version) string { return strconv.Itoa(v.Number) }), nil
}

type templateVersionPath struct {
	one
	Version string `path:"version" doc:"The version's number." example:"3"`
}

func (a *API) getTemplateVersion(ctx context.Context, p account.Principal, in *templateVersionPath) (templateVersionAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return templateVersionAnswer{}, err
	}
	number, err := strconv.Atoi(in.Version)
	if err != nil || number < 1 {
		return templateVersionAnswer{}, errNotFound
	}
	t, err := a.Templates.GetVersion(ctx, p.Account, id, number)
	return showVersion(t.Version), err
}

type publishTemplateInput struct {
	one
	Body publishTemplateRequest
}

type publishTemplateRequest struct {
	Version int `json:"version" minimum:"1" doc:"The number of the version." example:"2"`
}

func (a *API) publishTemplate(ctx context.Context, p account.Principal, in *publishTemplateInput) (templateAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err == nil {
		err = mayWriteTemplates(p)
	}
	if err != nil {
		return templateAnswer{}, err
	}
	t, err := a.Templates.Publish(ctx, p.Account, id, in.Body.Version)
	return showTemplate(t), err
}

type renderTemplateInput struct {
	one
	Body renderTemplateRequest
}

type renderTemplateRequest struct {
	Variables object `json:"variables,omitempty" doc:"The values to fill in, at most 256 KiB." example:"{\"order\":42,\"user\":{\"name\":\"Ann\"}}"`
	Version   int    `json:"version,omitempty" minimum:"1" doc:"The number of the version; the newest when left out." example:"2"`
}

type renderedAnswer struct {
	Subject string   `json:"subject" doc:"The subject line." example:"Your order 42"`
	HTML    string   `json:"html" doc:"The html." example:"<p>Hi Ann</p>"`
	Text    string   `json:"text" doc:"The plain text." example:"Hi Ann"`
	Missing []string `json:"missing" nullable:"false" doc:"What the template asks for or requires, and was not given." example:"user.last_name"`
	Unused  []string `json:"unused" nullable:"false" doc:"What was given and the template does not ask for." example:"coupon"`
}

func (a *API) renderTemplate(ctx context.Context, p account.Principal, in *renderTemplateInput) (renderedAnswer, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return renderedAnswer{}, err
	}
	if in.Body.Version < 0 {
		return renderedAnswer{}, errNotFound
	}
	r, err := a.Templates.Preview(ctx, p.Account, id, in.Body.Version, json.RawMessage(in.Body.Variables))
	return renderedAnswer{r.Subject, r.HTML, r.Text, append([]string{}, r.Missing...), append([]string{}, r.Unused...)}, err
}
