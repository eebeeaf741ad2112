// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"github.com/mailstead/mailstead/client"
)

func (h *fixture) templates() {
	h.Helper()
	ctx := h.Context()
	made, err := h.c.CreateTemplate(ctx, client.NewTemplate{Name: "Welcome", Alias: "welcome", TemplateContent: client.TemplateContent{
		Subject: "Welcome {{name}}", HTML: "<p>Hi {{name}}</p>",
		Variables: []client.TemplateVariable{{Key: "name", Type: "string", Required: true}, {Key: "n", Type: "number", Fallback: 1}},
	}})
	h.want("making a template", err)
	if made.Version != 1 || made.PublishedVersion != 1 || len(made.Variables) != 2 || made.Variables[1].Fallback != 1.0 {
		h.Errorf("made %+v", made)
	}
	_, err = h.c.CreateTemplate(ctx, client.NewTemplate{Name: "x", TemplateContent: client.TemplateContent{Subject: "{{", Text: "x"}})
	refused(h, "a broken template", err, 422, "validation_failed", "subject invalid_template")
	if got, err := h.c.GetTemplate(ctx, "welcome"); err != nil || got.ID != made.ID {
		h.Errorf("by alias: %+v, %v", got, err)
	}
	text, no := "Hello {{name}}", false
	changed, err := h.c.UpdateTemplate(ctx, made.ID, client.TemplateChange{Text: &text, Publish: &no})
	if err != nil || changed.Version != 2 || changed.PublishedVersion != 1 || changed.Text != text {
		h.Errorf("changed to %+v, %v", changed, err)
	}
	if got, err := h.c.PublishTemplate(ctx, made.ID, 2); err != nil || got.PublishedVersion != 2 {
		h.Errorf("published: %+v, %v", got, err)
	}
	if got, err := h.c.ListTemplateVersions(ctx, made.ID, client.Paging{Limit: 1}); err != nil || len(got.Data) != 1 || got.Data[0].Version != 2 || got.NextCursor == "" {
		h.Errorf("versions: %+v, %v", got, err)
	}
	if all := collect(h, h.c.TemplateVersions(ctx, made.ID)); len(all) != 2 || all[1].Version != 1 {
		h.Errorf("all versions: %+v", all)
	}
	if got, err := h.c.GetTemplateVersion(ctx, made.ID, 1); err != nil || got.Version != 1 || got.Text != "" {
		h.Errorf("the first version: %+v, %v", got, err)
	}
	r, err := h.c.RenderTemplate(ctx, made.ID, 1, map[string]any{"name": "Ann", "other": 1})
	if err != nil || r.Subject != "Welcome Ann" || r.Text != "Hi Ann" || len(r.Missing) != 0 || len(r.Unused) != 1 {
		h.Errorf("rendered %+v, %v", r, err)
	}
	send := &client.TemplateSend{FromEmail: "desk@demo.test", To: []string{"bob@demo.test"}, TemplateID: made.ID, Variables: map[string]string{"name": "Bob"}}
	sent, err := h.c.SendTemplate(ctx, send)
	h.want("sending a template", err)
	if m, err := h.c.GetMessage(ctx, sent.ID); err != nil || m.Subject != "Welcome Bob" || m.TemplateID != made.ID || m.TemplateVersion != 2 {
		h.Errorf("sent %+v, %v", m, err)
	}
	own := client.Send{FromEmail: "desk@demo.test", To: []string{"bob@demo.test"}, Subject: "Own", Text: "x"}
	batch, err := h.c.SendBatch(ctx, &client.Batch{Messages: []client.BatchMessage{*send, &own}})
	h.want("a template in a batch", err)
	for i, want := range []string{"Welcome Bob", "Own"} {
		if m, err := h.c.GetMessage(ctx, batch.Data[i].Accepted.ID); err != nil || m.Subject != want {
			h.Errorf("sent %+v, %v", m, err)
		}
	}
	send.Variables = nil
	_, err = h.c.SendTemplate(ctx, send)
	refused(h, "a missing variable", err, 422, "validation_failed", "variables.name required")
	double, err := h.c.DuplicateTemplate(ctx, made.ID, "")
	if err != nil || double.Name != "Copy of Welcome" || double.Alias != "" || double.Text != text {
		h.Errorf("a copy: %+v, %v", double, err)
	}
	count := 0
	for got, err := range h.c.Templates(ctx) {
		if err != nil || got.Subject != "" {
			h.Errorf("in the list: %+v, %v", got, err)
		}
		count++
	}
	if count != 2 {
		h.Errorf("%d templates", count)
	}
	h.want("deleting", h.c.DeleteTemplate(ctx, double.ID))
}
