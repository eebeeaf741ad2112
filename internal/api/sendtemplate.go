// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/template"
)

// maxRenderedBytes is the maximum size of the texts that templates make for one request.
const maxRenderedBytes = 24 << 20

// sendTemplateRequest is a send with the text of a template.
type sendTemplateRequest struct {
	SendFields
	TemplateID string     `json:"template_id,omitempty" required:"true" doc:"The id or alias of the template, whose published version is sent." example:"order-confirmation"`
	Variables  jsonObject `json:"variables,omitempty" required:"true" doc:"The values to fill in, at most 256 KiB." example:"{\"order\":42,\"user\":{\"name\":\"Ann\"}}"`
}

func (a *API) sendTemplateRoutes(r *router) {
	handleSend(r, operation{method: "POST", path: "/outbound/send-template", id: "sendTemplate", scope: "outbound.send", status: http.StatusAccepted, mayConflict: true,
		summary: "Send an email made of a template", description: "With all the fields of a send but subject, text and html, which the template's published version gives. " +
			"A variable that the template requires and that is missing is told as `variables.NAME`."}, sendBodyLimits(), a.buildTemplateSend, newSendResponse)
}

// buildTemplateSend renders the template. It reports the template's faults together with those of
// the other fields.
func (a *API) buildTemplateSend(ctx context.Context, p account.Principal, in *sendTemplateRequest, with decodedAttachments) (submission, error) {
	s := in.SendFields.outboundRequest(with.spool, with.faults)
	err := a.newTemplateRenderer(p, with).apply(ctx, &s, in.TemplateID, in.Variables)
	return submission{sends: []outbound.SendRequest{s}}, err
}

// templateRenderer sets the texts of sends from templates.
type templateRenderer struct {
	*template.Renderer
	reserve        func(n int) error
	made, reserved int // bytes of the texts; reserved is beyond freeBodyBytes
}

func (a *API) newTemplateRenderer(p account.Principal, with decodedAttachments) *templateRenderer {
	return &templateRenderer{Renderer: a.Templates.NewRenderer(p.Account), reserve: with.reserve}
}

// apply sets subject, html and text of a send. Faults of the template and its variables become
// faults of the send.
func (r *templateRenderer) apply(ctx context.Context, s *outbound.SendRequest, name string, variables jsonObject) error {
	used, err := r.render(ctx, name, variables)
	s.Template, s.TemplateVersion, s.Class = used.Template, used.Version, "template"
	if err != nil {
		s.Subject, s.Text = "-", "-" // so that there are no faults about the fields that the template would have set
		return mergeFaults(&s.RequestFaults, withoutFieldsOf(err, s.RequestFaults))
	}
	s.Subject, s.HTML, s.Text = used.Subject, used.HTML, used.Text
	r.made += len(used.Subject) + len(used.HTML) + len(used.Text)
	if r.made > maxRenderedBytes {
		return fault.New(fault.TooLarge, "texts_too_large", "The texts that templates make for one request may have %d bytes together. Send fewer messages at once.", maxRenderedBytes)
	}
	if more := r.made - freeBodyBytes - r.reserved; more > 0 {
		r.reserved += more
		return r.reserve(more)
	}
	return nil
}

// withoutFieldsOf removes the faults of fields that are part of a field which could not be read.
func withoutFieldsOf(err error, unread fault.FieldErrors) error {
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Fields) == 0 {
		return err
	}
	var rest fault.FieldErrors
	for _, field := range f.Fields {
		if !slices.ContainsFunc(unread, func(u fault.FieldError) bool { return strings.HasPrefix(field.Path, u.Path+".") }) {
			rest = append(rest, field)
		}
	}
	return rest.Err()
}

func (r *templateRenderer) render(ctx context.Context, name string, variables jsonObject) (template.RenderResult, error) {
	var bad fault.FieldErrors
	if name == "" {
		bad.Add("template_id", "required", "Give the id or the alias of a template.")
		return template.RenderResult{}, bad.Err()
	}
	used, err := r.Render(ctx, name, json.RawMessage(variables))
	if fault.Is(err, fault.NotFound) {
		bad.Add("template_id", "no_such_template", "There is no template with this id or alias.")
		return used, bad.Err()
	}
	return used, err
}
