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

// sendTemplateRequest is a send whose text a template gives.
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

// buildTemplateSend fills the template in. What is wrong with it is told
// together with what is wrong with the other fields.
func (a *API) buildTemplateSend(ctx context.Context, p account.Principal, in *sendTemplateRequest, with decodedBody) (submission, error) {
	used, err := a.renderForSend(ctx, p, in)
	if err := mergeFaults(&with.faults, err); err != nil {
		return submission{}, err
	}
	if made := len(used.HTML) + len(used.Text); made > freeBodyBytes {
		if err := with.reserve(made - freeBodyBytes); err != nil {
			return submission{}, err
		}
	}
	s := in.SendFields.send(with.spool, with.faults)
	s.Subject, s.HTML, s.Text = used.Subject, used.HTML, used.Text
	s.Template, s.TemplateVersion, s.Class = used.Template, used.Version, "template"
	if err != nil { // so that no rule is told of what the template would have given
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
