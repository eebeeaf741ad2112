// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/template"
)

// sendTemplateRequest is a send with the text of a template.
type sendTemplateRequest struct {
	SendFields
	TemplateID string     `json:"template_id,omitempty" required:"true" format:"uuid" doc:"The template, whose published version is sent."`
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
	used, err := a.renderForSend(ctx, p, in)
	if err := mergeFaults(&with.faults, err); err != nil {
		return submission{}, err
	}
	if made := len(used.HTML) + len(used.Text); made > freeBodyBytes {
		if err := with.reserve(made - freeBodyBytes); err != nil {
			return submission{}, err
		}
	}
	s := in.SendFields.outboundRequest(with.spool, with.faults)
	s.Subject, s.HTML, s.Text = used.Subject, used.HTML, used.Text
	s.Template, s.TemplateVersion, s.Class = used.Template, used.Version, "template"
	if err != nil { // so that there are no faults about the fields that the template would have set
		s.Subject, s.Text = "-", "-"
	}
	return submission{sends: []outbound.SendRequest{s}}, nil
}

func (a *API) renderForSend(ctx context.Context, p account.Principal, in *sendTemplateRequest) (template.RenderResult, error) {
	var bad fault.FieldErrors
	if in.TemplateID == "" {
		bad.Add("template_id", "required", "Give the id of a template.")
		return template.RenderResult{}, bad.Err()
	}
	id, err := db.ParseID(in.TemplateID)
	var used template.RenderResult
	if err == nil {
		used, err = a.Templates.Render(ctx, p.Account, id, json.RawMessage(in.Variables))
	}
	if fault.Is(err, fault.NotFound) || id == 0 {
		bad.Add("template_id", "no_such_template", "There is no template with this id.")
		return used, bad.Err()
	}
	return used, err
}
